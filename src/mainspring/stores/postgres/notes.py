"""Notes: what running attempts want to have kept."""

from collections.abc import Iterator, Sequence
from typing import Final

from mainspring.core.job import JobId
from mainspring.stores.postgres.bodies import line_bytes, progress_bytes
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import LogLine, Note

_HOLD: Final = statement("note_hold")
_TRACES: Final = statement("note_traces")
_LINES: Final = statement("note_lines")
_LINES_KEPT: Final = 1000


def note(notes: Sequence[Note]) -> Verb[tuple[bool, ...]]:
    """Keep notes; whether each was accepted, in order. Several statements: whoever ends an attempt meanwhile waits."""
    held = yield from _hold(notes)
    accepted = tuple((one.job, one.lease, one.node) in held for one in notes)
    kept = [one for one, is_kept in zip(notes, accepted, strict=True) if is_kept]
    yield from _keep_traces(kept)
    yield from _keep_lines(kept)
    return accepted


def _hold(notes: Sequence[Note]) -> Verb[set[tuple[JobId, int, str]]]:
    leaves: dict[tuple[JobId, int, str], bool] = {}
    for one in notes:
        who = (one.job, one.lease, one.node)
        leaves[who] = leaves.get(who, False) or bool(one.saved is not None or one.progress or one.lines)
    said = [(*who, leaves_some) for who, leaves_some in leaves.items()]
    held = yield Ask(_HOLD, _columns(said, 4))
    return {(job, lease, node) for job, lease, node in held}


def _keep_traces(notes: Sequence[Note]) -> Verb[None]:
    traces: dict[JobId, tuple[bytes | None, bytes | None]] = {}
    for one in notes:
        saved, progress = traces.get(one.job, (None, None))
        said = progress_bytes(one.progress)
        traces[one.job] = (saved if one.saved is None else one.saved, progress if said is None else said)
    rows = [(job, saved, progress) for job, (saved, progress) in traces.items() if (saved, progress) != (None, None)]
    if rows:
        yield Ask(_TRACES, _columns(rows, 3))


def _keep_lines(notes: Sequence[Note]) -> Verb[None]:
    lines: dict[JobId, list[LogLine]] = {}
    for one in notes:
        lines.setdefault(one.job, []).extend(one.lines)
    rows = [row for job, said in lines.items() for row in _placed(job, said[-_LINES_KEPT:])]
    if rows:
        yield Ask(_LINES, (*_columns(rows, 3), _LINES_KEPT))


def _placed(job: JobId, lines: Sequence[LogLine]) -> Iterator[tuple[JobId, int, bytes]]:
    for place, line in enumerate(lines, start=1):
        yield job, place, line_bytes(line)


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> tuple[list[object], ...]:
    return tuple([row[column] for row in rows] for column in range(width))
