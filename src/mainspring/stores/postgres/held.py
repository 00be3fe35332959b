"""What keeps dead rows from being cleared away in PostgreSQL."""

from typing import Final

from mainspring.stores.held import Held
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_HELD: Final = statement("held")


def held(seconds: float) -> Verb[tuple[list[Held], bool]]:
    """Say also whether sessions of all roles were seen."""
    rows = yield Ask(_HELD, (seconds,))
    return [Held(*row[:-1]) for row in rows if row[0] is not None], rows[0][-1]
