"""The SQL of this store: one statement a file, read once.

Every file says on top what its statement promises and which index serves it; `tests/stores/test_sqlite_plans.py` asks
SQLite whether that is so.
"""

from importlib.resources import files
from typing import Final

_FOLDER: Final = files("mainspring.stores.sqlite").joinpath("sql")


def statement(name: str) -> str:
    """Read the statement of that name. Without its comments: SQLite would read past them at every call."""
    text = _FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()
