"""What the suite asks of the author of a store: handles on a state, and a clock that the suite moves."""

from datetime import datetime, timedelta
from typing import Final, Protocol

from mainspring.duration import Duration, seconds
from mainspring.stores.port import Store
from mainspring.testing.virtual import START, VirtualClock

ODD_START: Final = START + timedelta(microseconds=123_457)
"""No whole number of milliseconds, so that an instant that was cut short shows."""


class SettableClock(VirtualClock):
    """A clock that moves only when it is told to: `advance` lets time pass, `jump` sets the wall time alone."""

    def __init__(self, start: datetime = ODD_START) -> None:
        self._seconds = 0.0
        super().__init__(lambda: self._seconds, start)

    def advance(self, by: Duration) -> None:
        self._seconds += seconds(by)


class Harness(Protocol):
    """Makes handles of the store under test, all on the same state, which is empty at first.

    A fixture named `harness` returns one for each test. It gives the fixture `clock` to every handle that it makes.
    """

    async def open(self) -> Store:
        """Return a handle that is open. Where one object is all there can be, it may be the same again and again.

        The suite closes what it has opened.
        """
        ...

    async def crash(self, store: Store) -> None:
        """Let go of a handle as a process does that is killed: nothing is closed, written or waited for.

        The suite does not touch it again. What it holds in this process may be freed when the fixture ends.
        """
        ...


class LastingHarness(Harness, Protocol):
    """Also for a store whose state outlives the process, and may be found in any condition."""

    def unopened(self) -> Store:
        """Return another handle on the same state, not open yet."""
        ...

    async def occupy(self) -> None:
        """Put something in the place of the state that is no store of ours; nothing has been opened there before."""
        ...

    async def outgrow(self) -> None:
        """Make the state one that newer code than this has written. All handles on it have been closed."""
        ...

    async def content(self) -> object:
        """Return whatever equals itself for as long as the state has not been changed."""
        ...

    async def obstruct(self) -> None:
        """Bring about trouble that may pass (G6) and hinders every write; the store should give up soon."""
        ...

    async def clear(self) -> None:
        """End that trouble."""
        ...


class UserTransaction(Protocol):
    """A transaction of the user's own, begun by the harness; the user has written the number 1 in it."""

    @property
    def handle(self) -> object:
        """What the store is given: a connection, a session."""
        ...

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class TransactionsHarness(Harness, Protocol):
    """Also for a store that plays the role Transactions.

    Beside the store's tables there is one of the user's, with one column of numbers.
    """

    write_number: str
    """A statement that takes one number as its only parameter and writes it to the user's table."""

    async def numbers(self) -> list[int]:
        """Read the user's table, in order, as anyone else sees it."""
        ...

    async def begin(self, *, blocking: bool) -> UserTransaction:
        """Begin a transaction with a driver that blocks, or with one that does not if there is one."""
        ...

    async def begin_elsewhere(self) -> UserTransaction:
        """Begin a transaction on another database, by whatever driver."""
        ...

    async def commit_each(self) -> UserTransaction:
        """Return a connection that commits each statement by itself, the user's one included."""
        ...
