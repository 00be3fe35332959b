"""Those who watch a store."""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

Bell: TypeAlias = Callable[[], None]

_logger: Final = logging.getLogger("mainspring.stores")


class Bells:
    """All bells of a store. They outlive its closing: who watches goes on when it is opened again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[object, Bell] = {}

    def watch(self, ring: Bell) -> Callable[[], None]:
        watcher = object()
        with self._lock:
            self._bells = {**self._bells, watcher: ring}

        def end() -> None:
            with self._lock:
                self._bells = {one: bell for one, bell in self._bells.items() if one is not watcher}

        return end

    def ring(self) -> None:
        for bell in self._bells.values():
            try:
                bell()
            except Exception:  # what was committed is committed, whatever a listener thinks of it
                _logger.exception("a watcher of the sidecar store raised")
