"""Checks of where a SQLite file is: the file, its folder, the file system and the disk under it."""

import os
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.client.words import length, size

MOUNTS: Final = Path("/proc/self/mountinfo")
SHARED: Final = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.davfs",
        "fuse.glusterfs",
        "fuse.grpcfuse",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
    ]
)
"""File systems that are shared over a network or with a host: locks and shared memory do not hold there."""

LITTLE: Final = 500_000_000  # bytes that are left, below which it is time to look
TOO_LITTLE: Final = 50_000_000  # below which the log of a busy day does not fit any more
SLACK: Final = timedelta(seconds=5)


def place(path: Path) -> Iterator[Finding]:
    """Look at a file and everything around it."""
    try:
        if not path.parent.is_dir():
            yield fail("file", f"there is no folder {path.parent}", "make it, or correct the URL")
            return
        yield from _file(path)
    except OSError as error:  # in a folder that is closed to us
        yield fail("file", f"{path} cannot be looked at: {error.strerror}", "let this user into its folders")
        return
    yield file_system(path, MOUNTS.read_text(encoding="utf-8") if MOUNTS.exists() else None)
    yield disk(path)


def _file(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield fail("file", f"there is no file {path}", "run a worker, or `mainspring migrate`, to make it")
    elif not path.is_file():
        yield fail("file", f"{path} is no file", "correct the URL")
    elif not may(path, os.R_OK | os.W_OK):
        yield fail("file", f"{path} cannot be read and written by this user", "change its owner or its mode")
    else:
        yield ok("file", f"{path}, {size(path.stat().st_size)}")
        yield written(path, datetime.now(UTC))
        yield from open_to_all(path)
    if not may(path.parent, os.W_OK | os.X_OK):
        yield fail("folder", f"this user cannot write in {path.parent}", "SQLite keeps its log beside the file")
    else:
        yield ok("folder", "can be written, as SQLite's log beside the file needs")


def may(path: Path, mode: int) -> bool:
    """Say whether this user may do something with a file or folder."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def open_to_all(path: Path) -> Iterator[Finding]:
    """Warn of a file that every account of the machine can read, with all arguments and results in it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & stat.S_IROTH:
        says = f"every account of this machine can read the file, mode {mode:o}"
        yield warn("file mode", says, f"run chmod o-rwx on {path} and on the files beside it")


def written(path: Path, now: datetime) -> Finding:
    """Hold the file's own time against the clock."""
    log = path.with_name(path.name + "-wal")
    newest = max(one.stat().st_mtime for one in (path, log) if one.exists())
    ahead = datetime.fromtimestamp(newest, UTC) - now
    if ahead > SLACK:
        return warn(
            "file time",
            f"the file was written {length(ahead)} from now",
            "the clock has been set back, or the clocks of two machines differ; set them by NTP",
        )
    return ok("file time", f"last written {length(-ahead)} ago")


def file_system(path: Path, mounts: str | None) -> Finding:
    """Say on what kind of file system a path is, by the kernel's list of mounts."""
    kind = kind_of(path, mounts) if mounts else None
    if kind is None:
        return ok("file system", "its kind cannot be seen on this system")
    if kind in SHARED:
        return warn(
            "file system",
            f"{kind} is shared over a network or with a host, where SQLite's locks do not hold",
            "move the file to a local disk; two machines on one file will corrupt it",
        )
    return ok("file system", kind)


def kind_of(path: Path, mounts: str) -> str | None:
    """Find the mount that a path is on, and return its kind; of several on one point, the last holds."""
    real = path.resolve()
    best, kind = -1, None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split(" ")[4].encode().decode("unicode_escape"))  # a space is written \040
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), after.split(" ")[0]
    return kind


def disk(path: Path, *, little: int = LITTLE, too_little: int = TOO_LITTLE) -> Finding:
    """Say how much room is left."""
    free = shutil.disk_usage(path.parent).free
    if free < too_little:
        return fail("disk", f"{size(free)} are left", "make room: without it nothing can be enqueued or settled")
    if free < little:
        return warn("disk", f"{size(free)} are left", "make room before it is needed")
    return ok("disk", f"{size(free)} are left")
