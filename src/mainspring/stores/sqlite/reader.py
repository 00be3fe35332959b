"""The readers: a few threads with connections of their own, which never wait for the writer and never write."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from mainspring.errors import StoreClosed
from mainspring.stores.sqlite.answers import Answer
from mainspring.stores.sqlite.connect import FileIdentity, connect_reader
from mainspring.stores.sqlite.fork import IdleConnections
from mainspring.stores.sqlite.lanes import Known, Lanes
from mainspring.stores.sqlite.retry import persist
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.trouble import spoils_connection, translated

T = TypeVar("T")

THREADS: Final = 4
"""A long list does not hold up a short look."""
THREADS_OF_SEARCHES: Final = 2
"""What people look for may take a second each time. However many do, what the nodes read waits for none of them."""


class Reader:
    """Owns the connections that read."""

    def __init__(self, settings: Settings, file: FileIdentity, lanes: Known, *, threads: int = THREADS) -> None:
        self._settings = settings
        self._file = file
        self._lanes = lanes
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="mainspring-sqlite-reader")
        self._idle = IdleConnections()

    async def read(self, look: Callable[[Session], T]) -> T:
        """Look at the tables as they are at one moment. Safe in any thread with a running loop."""
        answer: Answer[T] = Answer()
        try:
            self._threads.submit(self._answer, look, answer)
        except RuntimeError:
            raise StoreClosed(self._settings.store, "it has been closed") from None
        return await answer.wait("a reader of the SQLite store")

    def close(self) -> None:
        """Finish what was asked. Blocks."""
        self._threads.shutdown()
        self._idle.close()

    def _answer(self, look: Callable[[Session], T], answer: Answer[T]) -> None:
        if answer.is_unwanted:  # its caller has given up while it waited for a thread
            return
        try:
            # Readers are turned away only for a moment: while the log is recovered, or the file is closed elsewhere.
            answer.set(persist(lambda: self._snapshot(look), self._settings.patience))
        except BaseException as error:  # noqa: BLE001 -- the caller gets it
            answer.fail(translated(self._settings.store, error))
        Answer.bring([answer])

    def _snapshot(self, look: Callable[[Session], T]) -> T:
        self._file.check(self._settings.store)
        connection = self._idle.take() or connect_reader(self._settings.path)
        try:
            session = Session(connection, self._settings.now(), Lanes(self._lanes), self._settings.store)
            connection.execute("BEGIN")
            seen = look(session)
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if spoils_connection(error):
                connection.close()
            else:
                self._idle.put(connection)
            raise
        self._idle.put(connection)
        session.lanes.keep()
        return seen
