"""The checkout as a newcomer gets it: what is committed or about to be, and nothing that was built."""

import fnmatch
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def committed() -> list[Path]:
    """The files that are tracked, or untracked and not ignored; paths from the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listing.stdout.split("\0") if listing.returncode == 0 else list(without_git())
    return sorted(Path(name) for name in names if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def checkout(committed: list[Path]) -> Callable[[Path], Path]:
    """Copies the checkout to a folder that is not there yet."""

    def copy(target: Path) -> Path:
        for file in committed:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, target / file)
        return target

    return copy


def without_git() -> Iterator[str]:
    """Walk the tree as git would: a source archive has no history, and git trusts no checkout of another user's."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines() if line]
    for folder, folders, files in os.walk(ROOT):
        here = Path(folder).relative_to(ROOT)

        def kept(name: str, here: Path = here) -> bool:
            return name != ".git" and not any(
                fnmatch.fnmatch(candidate, pattern) for pattern in ignored for candidate in (name, str(here / name))
            )

        folders[:] = filter(kept, folders)
        yield from (str(here / name) for name in files if kept(name))
