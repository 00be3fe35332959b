"""SIGTERM and SIGINT: the first asks a node for an orderly end, the second has it hurry."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mainspring.runtime.events import log
from mainspring.runtime.node import Node

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def obeyed(node: Node) -> Iterator[None]:
    """Have signals end the node while the block runs, on the loop that it runs on."""
    loop = asyncio.get_running_loop()

    def receive(number: signal.Signals) -> None:
        if not node.stop.is_set():
            log.info("%s: finishing what runs; once more to hurry", number.name)
            node.stop.set()
        elif not node.hurry.is_set():
            log.warning("%s again: cancelling what runs", number.name)
            node.hurry.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
