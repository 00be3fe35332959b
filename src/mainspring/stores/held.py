"""What keeps a store from clearing away what is not needed any more: transactions that stay open."""

from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable


class Held(NamedTuple):
    """What keeps dead rows from being cleared away."""

    who: str
    role: str
    program: str
    state: str
    seconds: float | None
    """For how long; None: nobody knows."""
    pid: int | None


@runtime_checkable
class HoldsBack(Protocol):
    """A store that can tell who holds it back."""

    async def held(self, longer: timedelta) -> tuple[Held, ...]:
        """Name what has been open for longer than that, the longest first."""
        ...
