"""What a sidecar store does not do: keep jobs that no schedule has made, and write in transactions."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

from mainspring.errors import StoreError
from mainspring.stores.port import Transaction
from mainspring.stores.records import Enqueued, NewJob, Settled, Settlement


def keeps_no_jobs(path: Path) -> StoreError:
    return StoreError(
        f"sidecar {path}",
        "it keeps no jobs but those of schedules, so that nothing can be enqueued; declare a schedule of the task, "
        'which may be Manual() and run when asked, or keep jobs in a database: Mainspring("sqlite:///jobs.db")',
    )


class NoTransactions:
    """The role Transactions, which says no: there is no database that handlers could write to."""

    @property
    def path(self) -> Path:
        raise NotImplementedError

    def transaction(self, *, limit: timedelta | None = None) -> AbstractAsyncContextManager[Transaction]:  # noqa: ARG002 -- the port's
        raise self._no_database()

    def blocks(self, tx: object) -> bool:  # noqa: ARG002 -- the port's
        return False

    async def enqueue_in(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:  # noqa: ARG002 -- the port's
        raise keeps_no_jobs(self.path)

    def enqueue_in_sync(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:  # noqa: ARG002 -- the port's
        raise keeps_no_jobs(self.path)

    async def settle_in(self, tx: object, settlement: Settlement) -> Settled:  # noqa: ARG002 -- the port's
        raise self._no_database()

    def settle_in_sync(self, tx: object, settlement: Settlement) -> Settled:  # noqa: ARG002 -- the port's
        raise self._no_database()

    def _no_database(self) -> StoreError:
        problem = "it has no database, and so no transactions; for those use sqlite:/// or postgresql://"
        return StoreError(f"sidecar {self.path}", problem)
