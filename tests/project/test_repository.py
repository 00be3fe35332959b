"""What must not get into a commit: the names of one machine and of the registries behind it."""

from collections.abc import Iterable
from pathlib import Path

import pytest

# In two halves, so that this file passes its own test.
NEEDLES = [
    (first + second).encode()
    for first, second in [
        ("pypi.", "org"),
        ("files.python", "hosted.org"),
        ("registry.", "npmjs.org"),
        ("deb.", "debian.org"),
        ("/ro", "ot/"),
        ("/wo", "rk/"),
        ("/tmp/", "probe"),  # noqa: S108 - half of a word to look for
    ]
]


def finds(root: Path, files: Iterable[Path]) -> list[str]:
    return [
        f"{file}:{number}: {needle.decode()}"
        for file in files
        for number, line in enumerate((root / file).read_bytes().splitlines(), start=1)
        for needle in NEEDLES
        if needle in line
    ]


def test_no_file_names_a_registry_or_a_path_of_one_machine(root: Path, committed: list[Path]) -> None:
    assert finds(root, committed) == []


@pytest.mark.parametrize("needle", NEEDLES)
def test_each_of_them_would_be_found(tmp_path: Path, needle: bytes) -> None:
    (tmp_path / "notes.txt").write_bytes(b"one line\nsee <" + needle + b"> for more\n")

    assert finds(tmp_path, [Path("notes.txt")]) == [f"notes.txt:2: {needle.decode()}"]


def test_the_list_of_files_is_that_of_the_checkout(committed: list[Path]) -> None:
    assert {Path("pyproject.toml"), Path("Makefile"), Path("src/mainspring/__init__.py")} <= set(committed)
    assert not [file for file in committed if file.parts[0] in {".git", ".venv", ".venvs", ".mypy_cache"}]
