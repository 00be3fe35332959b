"""What goes wrong with files, in our own words."""

import errno
import os
from pathlib import Path
from typing import Final

from mainspring.errors import StoreError, StoreUnavailable

_WILL_NOT_PASS: Final = {
    errno.EACCES: "this user may not; give it the right to read and write {folder} and what is in it",
    errno.EPERM: "this user may not; give it the right to read and write {folder} and what is in it",
    errno.ENOTDIR: "there is a file where a folder should be; name another folder, or move {what} away",
    errno.EISDIR: "there is a folder where the file should be; move {what} away",
    errno.ELOOP: "its links lead nowhere; mend them, or name another folder",
    errno.ENAMETOOLONG: "the name is too long; name another folder",
}
_ADVICE: Final = {
    errno.EROFS: "the file system is read-only, and what schedules do could not be kept; name a folder on another",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the user's share of the disk is used up; make room",
}


def on_opening(path: Path, error: OSError) -> StoreError:
    """Say why a document cannot be opened."""
    code = error.errno or 0
    said = os.strerror(code) if code else str(error)
    folder = path.parent.parent
    if code == errno.ENOTDIR and (folder.parent.name, folder.name) == (path.parent.name, path.name):
        told = f"that is the file itself, and a URL names the folder that has {path.parent.name} in it"
        return StoreError(f"sidecar {folder}", f"{told}: {folder.parent.parent}")
    if advice := _WILL_NOT_PASS.get(code):
        told = advice.format(folder=path.parent, what=error.filename or path)
        return StoreError(f"sidecar {path}", f"it cannot be opened: {said}: {told}")
    return StoreUnavailable(f"sidecar {path}", f"it cannot be opened: {_ADVICE.get(code, said)}")


def on_writing(path: Path, error: OSError) -> StoreUnavailable:
    """Say why a document could not be written. Nothing of what was to be kept has happened."""
    code = error.errno or 0
    said = os.strerror(code) if code else str(error)
    return StoreUnavailable(
        f"sidecar {path}", f"it could not be written: {_ADVICE.get(code, said).partition(';')[0]}; nothing was changed"
    )
