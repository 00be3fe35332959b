"""Payloads of NOTIFY: their format, and merging of notifications that wait to be sent.

| payload | meaning |
| --- | --- |
| empty, or of another form | anything but jobs that became claimable: schedules, locks, outboxes |
| `ended` | jobs ended, and nothing became claimable |
| `jobs DUE KEY COUNT GROUP` | jobs became claimable, and nothing else changed |
| `also DUE KEY COUNT GROUP` | the same, and anything else may have changed |
| `taken GROUP DUE KEY KEY …` | after these announcements, a claim left no due job for the nodes of the group |

DUE has instants in microseconds since 1970, separated by commas: the earliest, and the first few that are still to
come. `now` in front of them stands for jobs that a limit or a breaker held back: they are due, and claims have not
passed them, so no position is moved back. Claims of other processes may have passed parked jobs: they find these by
the next read from the start. `-`: no instant. COUNT is a number, `-` if unknown, or `*` if no node
waits for its turn. GROUP is that of a node in the process that sent it, or `-`.

Every role that can connect to the database can send such payloads. Keys are sent back, in the text of a NOTIFY: a payload
whose key or group has characters that ours never have, or is longer, is treated as one of another form.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.stores.announcements import JobsAnnounced, JobsTaken

OTHER_CHANGE: Final = ""
ENDED: Final = "ended"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_JOBS: Final = "jobs"
_ALSO: Final = "also"
_TAKEN: Final = "taken"
_NONE: Final = "-"
_NOW: Final = "now"
_ALL_NODES: Final = "*"
_KEY: Final = re.compile("[0-9a-z]{1,32}")
_TAKEN_KEY: Final = re.compile("@?[0-9a-z]{1,32}")
"""With `@`, all jobs that are due at an instant."""
_GROUP: Final = re.compile("[0-9a-z]{1,32}|-")
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_KEYS: Final = 200
"""Keys in one payload: PostgreSQL allows 8000 bytes."""
_MAX_DUE_TIMES: Final = 8
_MAX_MERGED: Final = 64
"""Due times in one payload, beside the least, and of commits that wait to be sent."""


class Received(NamedTuple):
    """The contents of a payload."""

    announced: JobsAnnounced | None = None
    taken: JobsTaken | None = None
    other_change: bool = False


def encode_announcement(announced: JobsAnnounced, *, other_change: bool) -> str:
    due = _encode_due_times(announced.due_times, were_held_back=announced.were_held_back)
    count = _ALL_NODES if announced.for_all_nodes else _NONE if announced.jobs is None else str(announced.jobs)
    return f"{_ALSO if other_change else _JOBS} {due} {announced.key} {count} {announced.group or _NONE}"


def encode_taken(taken: JobsTaken) -> str:
    return " ".join([_TAKEN, taken.group, _encode_due_times(taken.due_times), *taken.keys])


def decode(payload: str, *, local: bool = False) -> Received:
    """Read a payload; one of another form may mean anything."""
    try:
        match payload.split(" "):
            case ["ended"]:
                return Received()
            case ["jobs" | "also" as kind, due, key, count, group] if _KEY.fullmatch(key) and _GROUP.fullmatch(group):
                were_held_back, due_times = _decode_due_times(due)
                announced = JobsAnnounced(
                    key=key,
                    due_times=due_times,
                    were_held_back=were_held_back,
                    jobs=None if count in {_NONE, _ALL_NODES} else max(1, int(count)),
                    for_all_nodes=count == _ALL_NODES,
                    local=local,
                    group="" if group == _NONE else group,
                )
                return Received(announced=announced, other_change=kind == _ALSO)
            case ["taken", group, due, *keys] if _GROUP.fullmatch(group) and all(map(_TAKEN_KEY.fullmatch, keys)):
                return Received(taken=JobsTaken(group=group, keys=tuple(keys), due_times=_decode_due_times(due)[1]))
            case _:
                return Received(other_change=True)
    except (ValueError, OverflowError):  # not a number, or not an instant
        return Received(other_change=True)


def first_due_times(due_times: Iterable[datetime], now: datetime) -> tuple[datetime, ...]:
    """Return the earliest of these instants, and the first few that are still to come."""
    ordered = sorted(set(due_times))
    return (*ordered[:1], *[one for one in ordered[1:] if one > now][:_MAX_DUE_TIMES])


@dataclass(slots=True)
class Outgoing:
    """Notifications that wait to be sent, merged into as few payloads as possible."""

    announced: JobsAnnounced | None = None
    """One for all: with the earliest due time and the last key, because a claim after the last commit sees all jobs."""
    other_change: bool = False
    ended: bool = False
    taken: dict[str, JobsTaken] = field(default_factory=dict)
    """By group."""

    @property
    def has_changes(self) -> bool:
        """Whether there is anything but reports of taken announcements."""
        return self.announced is not None or self.other_change or self.ended

    @property
    def is_waiting(self) -> bool:
        return self.has_changes or bool(self.taken)

    def announce(self, new: JobsAnnounced) -> None:
        """Add an announcement that came after the others."""
        old = self.announced
        if old is not None:
            due_times = sorted({*old.due_times, *new.due_times})[:_MAX_MERGED]
            jobs = None if old.jobs is None or new.jobs is None else old.jobs + new.jobs
            new = replace(
                new,
                due_times=tuple(due_times),
                were_held_back=old.were_held_back or new.were_held_back,
                jobs=jobs,
                for_all_nodes=old.for_all_nodes or new.for_all_nodes,
            )
        self.announced = new

    def report_taken(self, new: JobsTaken) -> None:
        """Add a report that came after the others."""
        old = self.taken.get(new.group, JobsTaken(group=new.group, keys=()))
        keys = (*old.keys, *new.keys)[-_MAX_KEYS:]
        due_times = tuple(sorted({*old.due_times, *new.due_times})[:_MAX_DUE_TIMES])
        self.taken[new.group] = JobsTaken(group=new.group, keys=keys, due_times=due_times)

    def merge(self, newer: "Outgoing") -> None:
        """Add all notifications of another one that came after this."""
        if newer.announced is not None:
            self.announce(newer.announced)
        for taken in newer.taken.values():
            self.report_taken(taken)
        self.other_change |= newer.other_change
        self.ended |= newer.ended

    def payloads(self, now: datetime) -> list[str]:
        found = []
        if self.announced is not None:
            announced = replace(self.announced, due_times=first_due_times(self.announced.due_times, now))
            found.append(encode_announcement(announced, other_change=self.other_change))
        elif self.other_change:
            found.append(OTHER_CHANGE)
        elif self.ended:  # all other payloads also wake callers that wait for an end
            found.append(ENDED)
        return found + [encode_taken(taken) for taken in self.taken.values()]


def _encode_due_times(due_times: Iterable[datetime], *, were_held_back: bool = False) -> str:
    instants = [str((one - EPOCH) // _MICROSECOND) for one in due_times]
    return ",".join([_NOW, *instants] if were_held_back else instants) or _NONE


def _decode_due_times(text: str) -> tuple[bool, tuple[datetime, ...]]:
    words = [] if text == _NONE else text.split(",")
    were_held_back = words[:1] == [_NOW]
    return were_held_back, tuple(EPOCH + int(one) * _MICROSECOND for one in words[were_held_back:])
