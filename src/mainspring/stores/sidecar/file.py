"""The file that the document is in: read whole, and replaced whole or not at all.

What is new is written beside it, brought to the disk, and put in its place by a rename, which is brought to the disk
too. So there is always one whole document under the name: the one before, or the new one. Every system call goes
through `Files`, which tests replace to fail, or to end, at any of them.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

FOLDER: Final = "_system"
NAME: Final = "background_jobs.json"

_MODE: Final = 0o644


class Files(Protocol):
    """The system calls that it takes. Each raises `OSError`, as those of `os` do."""

    def make_folder(self, path: Path) -> None: ...

    def read(self, path: Path) -> bytes: ...

    def create(self, path: Path) -> int: ...

    def write(self, file: int, data: bytes | memoryview) -> int: ...

    def sync(self, file: int) -> None: ...

    def close(self, file: int) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def sync_folder(self, path: Path) -> None: ...

    def remove(self, path: Path) -> None: ...


class SystemFiles:
    """The operating system's own."""

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)

    def write(self, file: int, data: bytes | memoryview) -> int:
        return os.write(file, data)

    def sync(self, file: int) -> None:
        os.fsync(file)

    def close(self, file: int) -> None:
        os.close(file)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync_folder(self, path: Path) -> None:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class DocumentFile:
    """One document under one name."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.path: Final = folder / FOLDER / NAME
        self._folder = self.path.parent
        self._new = self.path.with_name(f"{NAME}.tmp")
        self._files = files
        self._before = b""

    @property
    def store(self) -> str:
        """What errors call it."""
        return f"sidecar {self.path}"

    def make_folder(self) -> None:
        self._files.make_folder(self._folder)

    def try_out(self) -> None:
        """See that a file can be made there: who opens the store learns of it, and not the first slot."""
        self._files.close(self._files.create(self._new))
        self._files.remove(self._new)

    def read(self) -> bytes:
        """Read what is there: nothing, if there is no file."""
        try:
            self._before = self._files.read(self.path)
        except FileNotFoundError:
            self._before = b""
        return self._before

    def replace(self, document: bytes) -> None:
        """Put a document in the place of the one before. Once it returns, that holds; if it raises, that one is there."""
        placed = False
        try:
            self._write(document)
            self._files.rename(self._new, self.path)
            placed = True
            self._files.sync_folder(self._folder)
        except OSError:
            with suppress(OSError):  # the error that is told is the first one
                self._take_back(placed=placed)
            raise
        self._before = document

    def _write(self, document: bytes) -> None:
        file = self._files.create(self._new)
        try:
            rest = memoryview(document)
            while rest:
                rest = rest[self._files.write(file, rest) :]
            self._files.sync(file)
        finally:
            self._files.close(file)

    def _take_back(self, *, placed: bool) -> None:
        """Leave nothing behind: it may be the room that is missing. What the name leads to by now is put right."""
        if placed:
            self._write(self._before)
            self._files.rename(self._new, self.path)
            self._files.sync_folder(self._folder)
        else:
            self._files.remove(self._new)
