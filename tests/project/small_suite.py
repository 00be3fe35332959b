"""Small suites of tests, with the tests/conftest.py of the project."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

PARTS_OF_CONFTEST = ("tier.py", "xdist_scheduler.py")


class SmallSuite:
    """A folder of test modules, which pytest runs there."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        (folder / "tests").mkdir()
        shutil.copy(root / "tests" / "conftest.py", folder)
        for name in PARTS_OF_CONFTEST:
            shutil.copy(root / "tests" / name, folder / "tests")
        servers = shutil.ignore_patterns("test_*")
        shutil.copytree(root / "tests" / "servers", folder / "tests" / "servers", ignore=servers)
        markers = "needs(part): see conftest.py", "full: see tier.py", "slow: see conftest.py"
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "\n".join(f"    {one}" for one in markers))

    def run(self, *texts: str, options: tuple[str, ...] = (), **variables: str) -> str:
        """Write a module of each text, run all, and return what was printed."""
        for number, text in enumerate(texts):
            (self.folder / f"test_{number}.py").write_text(dedent(text), encoding="utf-8")
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTEST_"))
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "-p", "no:schemathesis", *options],
            cwd=self.folder,
            env=inherited | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return f"{done.stdout}\nexit {done.returncode}"
