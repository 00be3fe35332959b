"""Django's database connections in the threads and processes that run tasks.

A connection of Django belongs to a thread. In a web server Django closes those that are broken or too old when a request
begins and when it ends. Threads of a node see no requests: without the same around each call, a connection that the
server has closed would fail every later call of its thread.

Django is never imported here. Where the program has not loaded and configured it, nothing happens.
"""

import logging
import sys
from collections.abc import Callable
from typing import Final, TypeVar

log: Final = logging.getLogger("mainspring.node")

T = TypeVar("T")


def call_with_fresh_connections(function: Callable[[], T]) -> T:
    """Call a function, and have Django close connections that are broken or too old before and after, in this thread."""
    _close_old_connections()
    try:
        return function()
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    database, configuration = sys.modules.get("django.db"), sys.modules.get("django.conf")
    if database is None or configuration is None:
        return
    try:
        if configuration.settings.configured:
            database.close_old_connections()
    except Exception:  # how a function ended is not changed by it
        log.exception("Django: close_old_connections failed; the call goes on")
