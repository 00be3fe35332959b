"""One server for several processes that run tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SUITE = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_it(postgres, number):
    postgres.sql("CREATE TABLE mine (n integer)")
    postgres.sql("DROP TABLE mine")
    started = postgres.sql("SELECT pg_postmaster_start_time()")
    print(postgres.database, started, file=open(f"seen-{number}", "w"))
    if number == 0 and postgres.database == "tests_gw0":
        os._exit(1)
"""


def test_processes_share_a_server_that_outlives_each_of_them_and_have_a_database_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(SUITE, encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAINSPRING_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.servers.fixtures", "-n", "2"],
        cwd=tmp_path,
        env=variables | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    seen = [path.read_text(encoding="utf-8").split(maxsplit=1) for path in sorted(tmp_path.glob("seen-*"))]
    assert len(seen) == 4, done.stdout
    assert len({database for database, _ in seen}) > 1
    assert len({server for _, server in seen}) == 1
    assert "crashed" in done.stdout
