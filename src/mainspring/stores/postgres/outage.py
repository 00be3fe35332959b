"""Whether the database can be reached, told once when it is lost and once when it is back."""

import logging
import threading
import time
from typing import Final

from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.trouble import said

_logger: Final = logging.getLogger("mainspring.stores.postgres")


class Outage:
    """Writes both into the log, and nothing for all the statements that fail in between. For any thread."""

    def __init__(self, settings: Settings) -> None:
        self.since: float | None = None
        self._store = settings.store
        self._guard = threading.Lock()

    def begin(self, error: Exception) -> None:
        with self._guard:
            if self.since is not None:
                return
            self.since = time.monotonic()
        _logger.warning("%s: the database is out of reach (%s); trying again", self._store, said(error))

    def end(self) -> None:
        with self._guard:
            if self.since is None:
                return
            lasted, self.since = time.monotonic() - self.since, None
        _logger.warning("%s: the database is back after %.1f s", self._store, lasted)
