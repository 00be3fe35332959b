"""How a process notices that the one that started it is gone, however it went: its end of a pipe is closed then."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

log: Final = logging.getLogger("mainspring.worker")


@contextmanager
def lifeline(end: Callable[[], None]) -> Iterator[None]:
    """Have `end` called, while the block runs, when nobody holds the other end of our stdin any more."""
    loop = asyncio.get_running_loop()
    stdin = sys.stdin.fileno()

    def read() -> None:
        if not os.read(stdin, 1):
            loop.remove_reader(stdin)
            log.warning("whoever started this is gone; ending")
            end()

    loop.add_reader(stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
