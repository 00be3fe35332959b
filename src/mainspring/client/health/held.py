"""Checks of what holds a database back: transactions that stay open, and standbys that are gone."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from mainspring.client.health.finding import Finding, warn
from mainspring.client.words import length
from mainspring.stores.held import Held, HoldsBack
from mainspring.stores.port import Store

LONG: Final = 300.0
"""Seconds that a transaction may be open before it is worth a line."""
MOST: Final = 5
"""Transactions that are named."""


async def held_back(store: Store) -> list[Finding]:
    """Say who holds an open store back; of one that does not know, nothing."""
    return holders(await store.held(timedelta(seconds=LONG))) if isinstance(store, HoldsBack) else []


def holders(held: Sequence[Held]) -> list[Finding]:
    """Say what keeps dead rows from being cleared away."""
    found = [warn("vacuum", _told(one), _end(one), "held_transaction") for one in held[:MOST]]
    if len(held) > MOST:
        found.append(warn("vacuum", f"and {len(held) - MOST} more", "look at pg_stat_activity", "held_transaction"))
    return found


def _told(held: Held) -> str:
    about = ", ".join(filter(None, [held.role, held.program, held.state]))
    open_for = f" has been open for {length(held.seconds)}" if held.seconds is not None else ""
    return f"{held.who} ({about}){open_for} and keeps dead rows from being cleared away"


def _end(held: Held) -> str:
    if held.pid is not None:
        return f"see what it is at; SELECT pg_terminate_backend({held.pid}) ends it"
    if held.seconds is not None:
        return "COMMIT PREPARED or ROLLBACK PREPARED, by whoever prepared it"
    return "bring the standby back, or drop the slot: SELECT pg_drop_replication_slot(…)"
