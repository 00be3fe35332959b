"""What operators do beside changing jobs: queues stand still and go on."""

from datetime import datetime
from typing import Final

from mainspring.stores.postgres.bodies import printable
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_PAUSE: Final = statement("pause")
_RESUME: Final = statement("pause_end")


def pause(at: datetime | None, queue: str, by: str, reason: str) -> Verb[bool]:
    return bool((yield Ask(_PAUSE, (at, queue, printable(by), printable(reason)))))


def resume(queue: str) -> Verb[bool]:
    """Let a queue go on; if it stood still, its jobs may be claimed from now on."""
    return bool((yield Ask(_RESUME, (queue,))))
