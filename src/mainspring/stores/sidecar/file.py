"""The file that the document is in: read whole, and replaced whole or not at all.

What is new is written beside it, brought to the disk, and put in its place by a rename, which is brought to the disk
too. So there is always one whole document under the name: the one before, or the new one. It has the mode of the one
before, and its owner where that is allowed; a link stays a link, and what it leads to is replaced. Every step goes
through `Files`, which tests replace to fail, or to end, at any of them.
"""

import os
import stat
from contextlib import suppress
from errno import EACCES
from pathlib import Path
from typing import Final, Protocol

FOLDER: Final = "_system"
NAME: Final = "background_jobs.json"

_OURS_ALONE: Final = 0o600
_OF_GROUP: Final = 0o070
_WRITABLE: Final = 0o222


class Files(Protocol):
    """The system calls that it takes. Each raises `OSError`, as those of `os` do."""

    def make_folder(self, path: Path) -> None: ...

    def may_write(self, path: Path) -> bool: ...

    def read(self, path: Path) -> bytes: ...

    def create(self, path: Path, like: Path) -> int:
        """Make a file, empty, with mode and owner of another one if that is there."""
        ...

    def write(self, file: int, data: bytes | memoryview) -> int: ...

    def sync(self, file: int) -> None: ...

    def close(self, file: int) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def sync_folder(self, path: Path) -> None: ...

    def remove(self, path: Path) -> None: ...


class SystemFiles:
    """The operating system's own."""

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it. Each is on the disk by its name: else all that is in it could go with it."""
        if not path.parent.exists():
            self.make_folder(path.parent)
        path.mkdir(exist_ok=True)
        with suppress(PermissionError):  # whoever may not look into the folder above has not made it just now
            self.sync_folder(path.parent)  # also if it was there: who made it may have been cut off right after

    def may_write(self, path: Path) -> bool:
        """Say whether a file may be written to, if there is one. For root, the mode is a word of its owner's all the same."""
        try:
            is_closed = not path.stat().st_mode & _WRITABLE
        except FileNotFoundError:
            return True
        return not is_closed and os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def create(self, path: Path, like: Path) -> int:
        path.unlink(missing_ok=True)  # of somebody who was killed, and who may have been another user
        before = like.stat() if like.exists() else None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = os.open(path, flags, _OURS_ALONE)
        if before:
            _make_like(file, before)
        return file

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


def _make_like(file: int, before: os.stat_result) -> None:
    """Give a file the owner and mode of another, as far as this user may. Nobody gets to read what was closed to them."""
    mode = stat.S_IMODE(before.st_mode)
    now = os.fstat(file)
    with suppress(OSError):
        if now.st_uid != before.st_uid:  # which is for root alone
            os.fchown(file, before.st_uid, -1)
    try:
        if now.st_gid != before.st_gid:
            os.fchown(file, -1, before.st_gid)
    except OSError:
        mode &= ~_OF_GROUP  # it would be another group's
    with suppress(OSError):  # some file systems have no modes
        os.fchmod(file, mode)


class DocumentFile:
    """One document under one name."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.path: Final = folder / FOLDER / NAME
        self.real: Path = self.path
        """Where it is, if the name or a folder is a link."""
        self._files = files
        self._before = b""

    @property
    def store(self) -> str:
        """What errors call it."""
        return f"sidecar {self.path}"

    @property
    def _new(self) -> Path:
        return self.real.with_name(f"{self.real.name}.tmp")

    def make_folder(self) -> None:
        """Make the folder, and find out where a link leads: until it is opened again, that is the place."""
        self._files.make_folder(self.path.parent)
        self.real = Path(os.path.realpath(self.path))

    def try_out(self) -> None:
        """See that a file can be made there: who opens the store learns of it, and not the first slot.

        It would take the place of one that is read-only, which somebody has made so on purpose.
        """
        if not self._files.may_write(self.real):
            raise PermissionError(EACCES, "it is read-only", str(self.real))
        self._files.close(self._files.create(self._new, self.real))
        self._files.remove(self._new)

    def peek(self) -> bytes | None:
        """Read what is there at the moment; None: no file."""
        try:
            return self._files.read(self.path)
        except FileNotFoundError:
            return None

    def read(self) -> bytes:
        """Read what is there, and what is to be put back if the next one cannot be written."""
        self._before = self.peek() or b""
        return self._before

    def replace(self, document: bytes) -> None:
        """Put a document in the place of the one before. Once it returns, that holds; if it raises, that one is there."""
        placed = False
        try:
            self._write(document)
            self._files.rename(self._new, self.real)
            placed = True
            self._files.sync_folder(self.real.parent)
        except OSError:
            with suppress(OSError):  # the error that is told is the first one
                self._take_back(placed=placed)
            raise
        self._before = document

    def _write(self, document: bytes) -> None:
        file = self._files.create(self._new, self.real)
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
            self._files.rename(self._new, self.real)
            self._files.sync_folder(self.real.parent)
        else:
            self._files.remove(self._new)
