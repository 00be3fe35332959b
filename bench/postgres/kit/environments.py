"""Virtual environments for the peers, one each: made from PyPI when first asked for, kept in .cache/bench."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
CACHE = CHECKOUT / ".cache" / "bench"
STAMP = "bench-installed"


class NotInstalled(Exception):
    """A peer cannot be had; the argument says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What pip is asked for; the folder's name says the same, so that another version gets another folder."""

    name: str
    requirements: tuple[str, ...]

    def python(self) -> Path:
        """Return its interpreter, and make the environment before if it is not there."""
        folder = CACHE / f"{self.name}-{sys.implementation.cache_tag}"
        python = folder / "bin" / "python"
        if not (folder / STAMP).exists():  # it is written last: an interrupted build counts as none
            print(f"Setting up {folder.relative_to(CHECKOUT)} …", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(python), "-m", "pip", "install", "--quiet", *self.requirements])
            (folder / STAMP).touch()
        return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = done.stdout.strip().splitlines() or ["no output"]
        raise NotInstalled(f"{' '.join(command[1:4])} failed: {lines[-1]}")
