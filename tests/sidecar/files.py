"""File layers for tests: one that fails or ends at any system call, and one that loses what was not synced."""

import os
import random
from collections.abc import Callable
from errno import EIO, ENOENT
from pathlib import Path
from typing import TypeVar

from mainspring.stores.sidecar.file import SystemFiles

T = TypeVar("T")


class Killed(BaseException):
    """Stands for SIGKILL: nothing is done after it."""


class UnsyncedFiles(SystemFiles):
    """Leaves it to the system when to write: for tests of which none cuts the power, and which write very often."""

    def sync(self, file: int) -> None: ...

    def sync_folder(self, path: Path) -> None: ...


class FaultyFiles(UnsyncedFiles):
    """Counts system calls, and fails at some of them or ends at one. A write may be cut short first, as by a full disk."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.always: int | None = None
        self.fail_at: dict[int, int] = {}
        self.kill_at: int | None = None

    def make_folder(self, path: Path) -> None:
        self._call("make_folder", lambda: super(FaultyFiles, self).make_folder(path))

    def read(self, path: Path) -> bytes:
        return self._call("read", lambda: super(FaultyFiles, self).read(path))

    def create(self, path: Path, like: Path) -> int:
        return self._call("create", lambda: super(FaultyFiles, self).create(path, like))

    def write(self, file: int, data: bytes | memoryview) -> int:
        half = data[: max(1, len(data) // 2)]  # so that there are several of them
        return self._call("write", lambda: super(FaultyFiles, self).write(file, half))

    def sync(self, file: int) -> None:
        self._call("sync", lambda: super(FaultyFiles, self).sync(file))

    def close(self, file: int) -> None:
        super().close(file)  # as on Linux, where it is closed even if that is told as an error
        self._call("close", lambda: None)

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", lambda: super(FaultyFiles, self).rename(source, target))

    def sync_folder(self, path: Path) -> None:
        self._call("sync_folder", lambda: super(FaultyFiles, self).sync_folder(path))

    def remove(self, path: Path) -> None:
        self._call("remove", lambda: super(FaultyFiles, self).remove(path))

    def _call(self, name: str, call: Callable[[], T]) -> T:
        number = len(self.calls)
        self.calls.append(name)
        if self.kill_at is not None and number >= self.kill_at:
            raise Killed
        error = self.fail_at.get(number, self.always)
        if error is not None:
            raise OSError(error, os.strerror(error))
        return call()


class Inode:
    """A file's content, and how much of it is on the disk."""

    def __init__(self) -> None:
        self.content = b""
        self.on_disk = b""


class Disk:
    """A disk in memory, on which what was not synced may be lost when the power is cut.

    Of a file, any beginning of what was written since may be there; of a folder, any of the states that it went through
    since it was last brought to the disk.
    """

    def __init__(self) -> None:
        self._files: dict[int, Inode] = {}
        self._folder: dict[Path, Inode] = {}
        self._was: list[dict[Path, Inode]] = [{}]
        self._left = -1

    def cut_after(self, calls: int) -> None:
        """Cut the power after so many system calls more."""
        self._left = calls

    def power_up(self, dice: random.Random) -> None:
        """Come back with what may be left."""
        self._folder = dict(dice.choice([*self._was, self._folder]))
        for inode in self._folder.values():
            whole = inode.content
            if inode.on_disk != whole:
                inode.content = dice.choice([inode.on_disk, whole[: dice.randint(0, len(whole))]])
            inode.on_disk = inode.content
        self._was = [dict(self._folder)]
        self._files.clear()
        self._left = -1

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)  # for the lock, which is a real file

    def may_write(self, path: Path) -> bool:  # noqa: ARG002 -- always
        return True

    def read(self, path: Path) -> bytes:
        if path not in self._folder:
            raise FileNotFoundError(ENOENT, "not there", str(path))
        return self._folder[path].content

    def create(self, path: Path, like: Path) -> int:  # noqa: ARG002 -- there are no modes
        self._step()
        if path in self._folder:
            self._change(path, None)
        inode = Inode()
        self._change(path, inode)
        number = len(self._files) + 1_000_000
        self._files[number] = inode
        return number

    def write(self, file: int, data: bytes | memoryview) -> int:
        self._step()
        part = bytes(data[: max(1, len(data) // 3)])
        self._files[file].content += part
        return len(part)

    def sync(self, file: int) -> None:
        self._step()
        self._files[file].on_disk = self._files[file].content

    def close(self, file: int) -> None:
        self._step()
        if file not in self._files:
            raise OSError(EIO, "closed already")

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        inode = self._folder[source]
        self._change(source, None)
        self._was.pop()  # a rename is one step
        self._change(target, inode)

    def sync_folder(self, path: Path) -> None:  # noqa: ARG002 -- there is one
        self._step()
        self._was = [dict(self._folder)]

    def remove(self, path: Path) -> None:
        self._step()
        if path in self._folder:
            self._change(path, None)

    def _step(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def _change(self, path: Path, inode: Inode | None) -> None:
        self._was.append(dict(self._folder))
        if inode is None:
            del self._folder[path]
        else:
            self._folder[path] = inode
