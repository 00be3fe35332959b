"""What attempts leave behind, as the JSON that it is kept as: text in it may hold whatever a handler made up."""

from datetime import UTC
from math import isfinite
from typing import Final

import msgspec
from msgspec.structs import replace

from mainspring.stores.postgres.rows import clean, encode
from mainspring.stores.records import AttemptView, LogLine, Progress

_attempt: Final = msgspec.json.Decoder(AttemptView)
_line: Final = msgspec.json.Decoder(LogLine)
_progress: Final = msgspec.json.Decoder(Progress)


def attempt_bytes(attempt: AttemptView) -> bytes:
    error = attempt.error
    if error is not None:
        type_, message, traceback = map(clean, (error.type, error.message, error.traceback))
        error = replace(error, type=type_, message=message, traceback=traceback)
    return encode(replace(attempt, error=error, reason=clean(attempt.reason)))


def attempt(stored: bytes) -> AttemptView:
    return _attempt.decode(stored)


def line_bytes(line: LogLine) -> bytes:
    return encode(LogLine(line.at.astimezone(UTC), clean(line.level), clean(line.message)))


def line(stored: bytes) -> LogLine:
    return _line.decode(stored)


def progress_bytes(progress: Progress | None) -> bytes | None:
    """Write how far a job is; JSON has no way to say that of what is no number."""
    if progress is None or not isfinite(progress.percent):
        return None
    return encode(Progress(progress.percent, clean(progress.message)))


def progress(stored: bytes | None) -> Progress | None:
    return None if stored is None else _progress.decode(stored)


def printable(text: str) -> str:
    """Return text that a column of text can hold: without NUL, which is spelt out."""
    return clean(text).replace("\0", "\\x00")
