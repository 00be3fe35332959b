"""The audit log: who did what."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mainspring.stores.overview import MOST_LINES, Entry, EntryFilter, EntryPage, NewEntry
from mainspring.stores.sqlite.rows import Row, clean, instant, micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_ADD: Final = statement("audit_add")
_PAGE: Final = statement("view_audit")
_PAGE_ABOUT: Final = statement("view_audit_about")
_BEYOND: Final = statement("audit_beyond")
_BEYOND_ABOUT: Final = statement("audit_beyond_about")
_LAST: Final = (1 << 63) - 1


def write(session: Session, entries: Sequence[NewEntry], at: datetime | None) -> None:
    """Add lines. Whatever a name is made of, who it was has to be told."""
    written = session.now if at is None else micros(at)
    session.run_many(
        _ADD,
        [
            (written, *map(clean, (one.who, one.action, one.about)), one.count, clean(one.outcome), one.detail)
            for one in entries
        ],
    )


def page(session: Session, which: EntryFilter, limit: int, after: int | None) -> EntryPage:
    wanted = {
        "who": which.who,
        "action": which.action,
        "about": which.about,
        "after": _LAST if after is None else after,
        "limit": limit + 1,
        "most": MOST_LINES,
    }
    of_all, about = (_PAGE, _BEYOND), (_PAGE_ABOUT, _BEYOND_ABOUT)
    lines, first_beyond = of_all if which.about is None else about
    # Only who leaves lines out looks at more than a page.
    far = session.rows_by_name(first_beyond, wanted) if which.who is not None or which.action is not None else ()
    beyond = far[0][0] if far else None
    rows = session.rows_by_name(lines, {**wanted, "beyond": -1 if beyond is None else beyond})
    entries = tuple(map(_entry, rows[:limit]))
    if len(rows) > limit:
        return EntryPage(entries=entries, after=entries[-1].id)
    return EntryPage(entries=entries, after=None if beyond is None else beyond + 1)


def _entry(row: Row) -> Entry:
    id_, at, who, action, about, count, outcome, detail = row
    entry = NewEntry(who=who, action=action, about=about, count=count, outcome=outcome, detail=detail)
    return Entry(id=id_, at=instant(at), entry=entry)
