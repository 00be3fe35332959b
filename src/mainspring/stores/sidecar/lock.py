"""One process at a time: a lock on a file beside the document, which the system frees with the process that holds it.

Beside the document itself, if its name is a link: two names of one document have one lock.
"""

import errno
import fcntl
import os
import stat
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from mainspring.errors import StoreError, StoreUnavailable

SUFFIX: Final = ".lock"
IN_USE: Final = "it is in use by"
"""How the problem begins where another process has the document."""

_HELD: Final["weakref.WeakSet[FileLock]"] = weakref.WeakSet()


class FileLock:
    """Held from `take` to `free`. The file stays where it is, with the number of the process that had it last."""

    def __init__(self, document: Path, real: Path | None = None) -> None:
        self._document = document
        self._path = (real or document).with_suffix(SUFFIX)
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock; `StoreError` names who has it."""
        file = self._open()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise self._taken(holder) from None
        except BaseException:
            os.close(file)
            raise
        self._file = file
        _HELD.add(self)

    def _open(self) -> int:
        """Open the lock file. Links and other files in its place are refused, since the content is overwritten."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self._path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._foreign("a symbolic link") from None
            raise
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            return file
        os.close(file)
        raise self._foreign("a file with several names" if stat.S_ISREG(found.st_mode) else "no regular file")

    def _foreign(self, what: str) -> StoreError:
        return StoreError(
            f"sidecar {self._document}",
            f"{self._path} is {what} and was not created by Mainspring; check who can write to its folder, and delete it",
        )

    def check(self) -> None:
        """See that the lock is still the one that others would find: else somebody may have the document too."""
        held = None if self._file is None else os.fstat(self._file)
        with suppress(FileNotFoundError):
            there = self._path.stat()
            if held and (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                return
        raise StoreUnavailable(
            f"sidecar {self._document}", f"{self._path} was replaced or deleted; restart what uses it"
        )

    def free(self) -> None:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a child that was forked just now may have the file open still
        self.let_go()
        _HELD.discard(self)

    def let_go(self) -> None:
        """Close the file. In a forked child that leaves the lock with the parent, whose file it is too."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _taken(self, holder: str) -> StoreError:
        who = f"process {holder}" if holder.isdecimal() else "another process"
        if holder == str(os.getpid()):
            who = f"this process ({holder}) already"
        return StoreError(
            f"sidecar {self._document}",
            f"{IN_USE} {who}, and one at a time can have it; end that one first, or keep jobs that several "
            "processes share in sqlite:///jobs.db",
        )


def _after_fork() -> None:
    for lock in tuple(_HELD):
        lock.let_go()


os.register_at_fork(after_in_child=_after_fork)
