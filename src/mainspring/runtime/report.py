"""What a node says about how it is doing: the body of a `NodeReport`."""

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from mainspring.core.job import JobId

MOST_JOBS: Final = 50
LONGEST_ERROR: Final = 200


class ServiceState(StrEnum):
    """What a service is at."""

    RUNNING = "running"  # a step is under way, or the next one is about to be
    SLEEPING = "sleeping"
    IDLE = "idle"  # it waits to be woken
    FAILING = "failing"  # its last step raised; it waits before it tries again
    STANDBY = "standby"  # a singleton that runs on another node
    STOPPED = "stopped"  # it has ended, or died


class ServiceReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One service on one node."""

    name: str
    state: ServiceState
    is_own: bool = False
    """One of Mainspring's own duties, and not declared by the app."""
    is_singleton: bool = False
    is_held: bool = False
    """Of a singleton: it runs here."""
    directive: str = ""
    """What its last step returned: proceed, idle or sleep."""
    executions: int = 0
    failures: int = 0
    """In a row."""
    error: str = ""
    """Of the last step that raised: its class and the first line."""
    error_at: datetime | None = None
    backoff: float | None = None
    """Seconds that it waits after its last failure."""
    next_at: datetime | None = None
    """When it sleeps or backs off: until when, unless it is woken."""


class RunningJob(Struct, frozen=True, kw_only=True):
    """An attempt under way."""

    id: JobId
    task: str
    queue: str
    attempt: int
    since: datetime
    is_abandoned: bool = False
    """Its end is written, and its body goes on: it did not stop when told to. It keeps its place here, and in limits."""


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a node is doing."""

    memory: int | None = None
    """Bytes of the process, as far as the machine tells."""
    cpu: float | None = None
    """Share of one processor that the process took lately; with threads and processes it may be more than 1."""
    lag: float = 0.0
    """Seconds by which the event loop was late last."""
    busy: int = 0
    places: int = 0
    is_quiet: bool = False
    """An operator has it take nothing new."""
    is_silent: bool = False
    """It could not renew, and takes nothing new."""
    skew: float = 0.0
    """Seconds by which the store's clock is ahead of the machine's."""
    running: tuple[RunningJob, ...] = ()
    """The longest first, fifty at most."""
    services: tuple[ServiceReport, ...] = ()


def written(report: Report) -> bytes:
    """Write a report down, as it is kept."""
    return msgspec.json.encode(report)


def read(body: bytes) -> Report | None:
    """Read a report; None if it cannot be understood, as from a later version."""
    try:
        return msgspec.json.decode(body, type=Report)
    except msgspec.DecodeError:
        return None


def first_line(error: BaseException) -> str:
    """Name an error in one short line."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - an error that cannot even be printed has a class all the same
        text = ""
    said = text.splitlines()[0].strip() if text else ""
    name = type(error).__name__
    return (f"{name}: {said}" if said else name)[:LONGEST_ERROR]
