"""A transaction for a handler, on a connection that nobody else uses meanwhile.

What the handler's own statements raise is the handler's business, and comes as the driver raises it; what has to do
with the connection is the store's.
"""

import asyncio
from collections.abc import Callable, Sequence

from mainspring.errors import DeclarationError, StoreError, TransactionTooLong
from mainspring.stores.postgres.aside import on_loop
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.trouble import Kind, kind, translated
from mainspring.stores.postgres.verb import Row


class Lease:
    """An open transaction. May be used from any event loop, by one at a time."""

    def __init__(self, settings: Settings, connected: Connected, limit: float, give_back: Callable[[], None]) -> None:
        """Take over a connection on which a transaction was begun; on its loop."""
        self.connected = connected
        self._settings = settings
        self._limit = limit
        self._give_back = give_back
        self._home = asyncio.get_running_loop()
        self._over: Exception | None = None
        """What to tell whoever comes now."""
        self._timer = self._home.call_later(limit, self._end, TransactionTooLong(limit))
        connected.within = limit + settings.timeout  # the limit comes first

    async def fetch(self, text: str, /, *values: object) -> Sequence[Row]:
        """Run a statement; returns its rows."""
        return await on_loop(self._home, "a transaction on the PostgreSQL store", lambda: self._fetch(text, values))

    async def commit(self) -> None:
        """End it, so that all is kept. If that gets no answer, nobody knows whether it is: `StoreUnavailable`."""
        await on_loop(self._home, "a transaction on the PostgreSQL store", self._commit)

    async def roll_back(self) -> None:
        """End it without a trace; one that is over has none."""
        await on_loop(self._home, "a transaction on the PostgreSQL store", self._roll_back)

    def abandon(self) -> None:
        """End it at once, with its connection, without waiting for that."""
        over = DeclarationError("tx", "whoever used it was cancelled; nothing of it is kept")
        if asyncio.get_running_loop() is self._home:
            self._end(over)
        else:
            self._home.call_soon_threadsafe(self._end, over)

    # On its own loop.

    async def _fetch(self, text: str, values: tuple[object, ...]) -> Sequence[Row]:
        self._check()
        try:
            return await self.connected.fetch(text, *values)
        except Exception as error:
            self._raise_ours(error)
            raise
        except BaseException:
            self.abandon()  # the statement may still be running
            raise

    async def _commit(self) -> None:
        self._check()
        self._timer.cancel()
        self.connected.within = self._settings.timeout
        try:
            status = await self.connected.execute("COMMIT")
        except Exception as error:
            self._raise_ours(error)
            raise
        finally:
            self._leave()
        if status != "COMMIT":  # of a transaction that has failed before PostgreSQL says nothing else
            raise StoreError(self._settings.store, "a statement has failed, so that nothing of the transaction is kept")

    async def _roll_back(self) -> None:
        if self._over is not None:
            return
        self._timer.cancel()
        self.connected.within = self._settings.timeout
        try:
            if not self.connected.is_closed:
                await self.connected.execute("ROLLBACK")
        except Exception:  # noqa: BLE001 -- what raised before is what counts, and the server rolls back what it lost
            self.connected.terminate()
        finally:
            self._leave()

    def _leave(self) -> None:
        self._over = self._over or DeclarationError("tx", "its block has ended; nothing more can be done in it")
        self._give_back()

    def _check(self) -> None:
        if self._over is not None:
            raise self._over

    def _end(self, why: Exception) -> None:
        if self._over is None:
            self._over = why
            self._timer.cancel()
            self.connected.terminate()
            self._give_back()

    def _raise_ours(self, error: Exception) -> None:
        """Raise what has to do with the connection as an error of the store's; the rest is for the handler."""
        if self._over is not None:
            raise self._over from error
        if kind(error) is Kind.LOST:
            raise translated(self._settings, error) from error
