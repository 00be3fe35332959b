"""What operators do beside changing jobs: queues stand still and go on."""

from typing import Final

from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_PAUSE: Final = statement("pause")
_RESUME: Final = statement("resume")


def pause(session: Session, queue: str, by: str, reason: str) -> bool:
    return bool(session.run(_PAUSE, (queue, session.now, by, reason)))


def resume(session: Session, queue: str) -> bool:
    resumed = bool(session.run(_RESUME, (queue,)))
    session.woke = session.woke or resumed
    return resumed
