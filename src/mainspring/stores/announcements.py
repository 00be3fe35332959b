"""Notifications of a store, by kind: jobs announced, jobs taken, other changes.

An optional role of a store, for nodes. All of it is a hint: nodes also poll once a second, and a store without this role has
only `Wake.watch`, which does not distinguish the kinds.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct


class JobsAnnounced(Struct, frozen=True, kw_only=True):
    """Jobs became claimable, or will be when they are due."""

    key: str
    """Identifies the announcement; the same in all processes that receive it."""
    due_times: tuple[datetime, ...] = ()
    """When the jobs are due: the earliest instant, and the first few that are still to come."""
    were_held_back: bool = False
    """Jobs behind a limit or a breaker may be claimable now, whatever `due_times` contains."""
    jobs: int | None = None
    """Upper bound of their number; None: unknown, treated as one."""
    for_all_nodes: bool = False
    """Anything may have become claimable: nodes do not take turns."""
    local: bool = False
    """It was committed by this process."""
    group: str = ""
    """Group of a node in the process that committed it, which claims at once (`core.turns.group_name`)."""


class JobsTaken(Struct, frozen=True, kw_only=True):
    """After these announcements, a claim left no due job for the nodes of a group."""

    group: str
    keys: tuple[str, ...]
    due_times: tuple[datetime, ...] = ()
    """When the next jobs are due, as far as these claims found."""


class OtherChange(Struct, frozen=True):
    """A change of schedules, locks, outboxes, or anything that is not a job."""


Notice: TypeAlias = JobsAnnounced | JobsTaken | OtherChange


@runtime_checkable
class Announcements(Protocol):
    """A store whose nodes can take turns at notifications."""

    def subscribe(self, listener: Callable[[Notice], None], group: Callable[[], str]) -> Callable[[], None]:
        """Call `listener`, in any thread, after commits by any process; return a function that unsubscribes.

        `group` returns the group of the subscribing node. As with `Wake.watch`, several commits may lead to one call, which
        comes after the last of them. The end of a job that frees no place, closes no breaker and belongs to no schedule
        need not lead to a call.
        """
        ...

    def report_taken(self, taken: JobsTaken) -> None:
        """Notify other nodes that the jobs of announcements are taken; several reports may become one notification."""
        ...

    @property
    def receives_announcements(self) -> bool:
        """Whether commits of other processes are announced here at present."""
        ...
