"""Django's database connections in the threads and processes that run tasks.

A Django connection belongs to a thread. In a web server, Django closes broken and expired connections at the start and
the end of each request. The threads of a node serve no requests: without the same around each call, a connection that
the server has closed would fail every later call in its thread.

Django is never imported here. Where the program has not loaded and configured it, nothing happens.
"""

import logging
import sys
from collections.abc import Callable
from typing import Final, TypeVar

log: Final = logging.getLogger("mainspring.node")

T = TypeVar("T")


def call_with_fresh_connections(function: Callable[[], T]) -> T:
    """Call a function, and close broken and expired Django connections of this thread before and after it."""
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
    except Exception:  # must not change the outcome of the function
        log.exception("Django: close_old_connections failed; the call is not affected")
