"""Notes: what running attempts want to have kept."""

from collections.abc import Sequence
from typing import Final

from mainspring.stores.records import Note
from mainspring.stores.sqlite import nodes
from mainspring.stores.sqlite.rows import clean, micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_RUNNING: Final = statement("job_running")
_SAVE: Final = statement("trace_save")
_PROGRESS: Final = statement("trace_progress")
_LAST_LINE: Final = statement("log_line_last")
_ADD_LINE: Final = statement("log_line_add")
_TRIM_LINES: Final = statement("log_lines_trim")
_LINES_KEPT: Final = 1000


def note(session: Session, notes: Sequence[Note]) -> list[bool]:
    """Keep notes; whether each was accepted, in order."""
    living = {node: nodes.is_alive(session, node) for node in {one.node for one in notes}}
    return [living[one.node] and _keep(session, one) for one in notes]


def _keep(session: Session, note: Note) -> bool:
    found = session.row(_RUNNING, (note.job.bytes, note.lease, note.node))
    if found is None:
        return False
    (number,) = found
    if note.saved is not None:
        session.run(_SAVE, (number, note.saved))
    if note.progress is not None:
        session.run(_PROGRESS, (number, note.progress.percent, clean(note.progress.message)))
    if note.lines:
        (last,) = session.rows(_LAST_LINE, (number,))[0]
        lines = enumerate(note.lines, start=last + 1)
        session.run_many(
            _ADD_LINE, [(number, place, micros(line.at), line.level, clean(line.message)) for place, line in lines]
        )
        session.run(_TRIM_LINES, (number, last + len(note.lines) - _LINES_KEPT))
    return True
