"""Payloads of NOTIFY: their format, and merging of those that wait to be sent.

| payload | meaning |
| --- | --- |
| empty, or not understood | anything but jobs that became claimable: schedules, locks, outboxes |
| `ended` | jobs ended, and nothing became claimable |
| `jobs DUE KEY COUNT GROUP` | jobs became claimable, and nothing else changed |
| `also DUE KEY COUNT GROUP` | the same, and anything else may have changed |
| `taken GROUP KEY KEY …` | after these announcements, a claim left nothing to nodes of the group |

DUE has instants in microseconds since 1970, separated by commas: the least, and the first few that are still to come; it
is `-` if marks need not be pulled back. COUNT is a number, `-` if unknown, or `*` if no
node waits for its turn. GROUP is that of the nodes in the process that sent it, or `-`.

Every role that can connect to the database can send such payloads. Keys are sent back, in the text of a NOTIFY: a payload
with a key or group of other characters than ours is not understood.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from mainspring.stores.announcements import JobsAnnounced, JobsTaken

ANYTHING: Final = ""
ENDED: Final = "ended"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_JOBS: Final = "jobs"
_ALSO: Final = "also"
_TAKEN: Final = "taken"
_NONE: Final = "-"
_EVERYONE: Final = "*"
_KEY: Final = re.compile("[0-9a-z]+")
_TAKEN_KEY: Final = re.compile("@?[0-9a-z]+")
"""With `@`, all jobs that are due at an instant."""
_GROUP: Final = re.compile("[0-9a-z]+|-")
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_KEYS: Final = 200
"""Keys in one payload: PostgreSQL allows 8000 bytes."""
_MAX_DUES: Final = 8
_MAX_MERGED: Final = 64
"""Due times in one payload, beside the least, and of commits that wait to be sent."""


class Announcement(NamedTuple):
    """Jobs that became claimable."""

    key: str
    dues: tuple[datetime, ...]
    """When they are due: the least first."""
    jobs: int | None = None
    for_everyone: bool = False
    group: str = ""


class Received(NamedTuple):
    """What a payload says."""

    announced: JobsAnnounced | None = None
    taken: JobsTaken | None = None
    is_other_change: bool = False


def encode_announcement(announcement: Announcement, *, anything: bool) -> str:
    key, dues, jobs, for_everyone, group = announcement
    due = ",".join(str((one - EPOCH) // _MICROSECOND) for one in dues) or _NONE
    count = _EVERYONE if for_everyone else _NONE if jobs is None else str(jobs)
    return f"{_ALSO if anything else _JOBS} {due} {key} {count} {group or _NONE}"


def decode(payload: str, *, local: bool = False) -> Received:
    """Read a payload; one that is not understood may mean anything."""
    match payload.split(" "):
        case ["ended"]:
            return Received()
        case ["jobs" | "also" as kind, due, key, count, group] if _KEY.fullmatch(key) and _GROUP.fullmatch(group):
            try:
                dues = [] if due == _NONE else [EPOCH + int(one) * _MICROSECOND for one in due.split(",")]
                announced = JobsAnnounced(
                    key=key,
                    due=dues[0] if dues else None,
                    later=tuple(dues[1:]),
                    jobs=None if count in {_NONE, _EVERYONE} else max(1, int(count)),
                    for_everyone=count == _EVERYONE,
                    local=local,
                    group="" if group == _NONE else group,
                )
            except (ValueError, OverflowError):
                return Received(is_other_change=True)
            return Received(announced=announced, is_other_change=kind == _ALSO)
        case ["taken", group, *keys] if _GROUP.fullmatch(group) and all(map(_TAKEN_KEY.fullmatch, keys)):
            return Received(taken=JobsTaken(group=group, keys=tuple(keys)))
        case _:
            return Received(is_other_change=True)


def first_dues(dues: Iterable[datetime], now: datetime) -> tuple[datetime, ...]:
    """Return the least of these instants, and the first few that are still to come."""
    ordered = sorted(set(dues))
    return (*ordered[:1], *[one for one in ordered[1:] if one > now][:_MAX_DUES])


@dataclass(slots=True)
class Outgoing:
    """What is to be sent, merged into as few payloads as possible."""

    announcement: Announcement | None = None
    """One for all: with the least due time and the last key, because whoever claims after the last commit sees all."""
    anything: bool = False
    ended: bool = False
    taken: dict[str, list[str]] = field(default_factory=dict)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything but reports of taken announcements."""
        return self.announcement is not None or self.anything or self.ended

    @property
    def is_waiting(self) -> bool:
        return self.has_changes or bool(self.taken)

    def add_payload(self, payload: str) -> None:
        received = decode(payload)
        if received.taken is not None:
            self.add_taken(received.taken)
        elif received.announced is not None:
            self._announce(received.announced)
            self.anything |= received.is_other_change
        else:
            self.anything |= received.is_other_change
            self.ended |= not received.is_other_change

    def add_taken(self, taken: JobsTaken) -> None:
        keys = self.taken.setdefault(taken.group, [])
        keys += taken.keys
        del keys[:-_MAX_KEYS]

    def payloads(self, now: datetime) -> list[str]:
        found = []
        if self.announcement is not None:
            announcement = self.announcement._replace(dues=first_dues(self.announcement.dues, now))
            found.append(encode_announcement(announcement, anything=self.anything))
        elif self.anything:
            found.append(ANYTHING)
        if (
            self.ended and not self.anything and self.announcement is None
        ):  # each of these rings whoever waits for an end
            found.append(ENDED)
        return found + [" ".join([_TAKEN, group, *keys]) for group, keys in self.taken.items()]

    def _announce(self, new: JobsAnnounced) -> None:
        old = self.announcement
        dues = set(new.later) if new.due is None else {new.due, *new.later}
        jobs, everyone = new.jobs, new.for_everyone
        if old is not None:
            dues.update(old.dues)
            jobs = None if old.jobs is None or jobs is None else old.jobs + jobs
            everyone = everyone or old.for_everyone
        self.announcement = Announcement(new.key, tuple(sorted(dues)[:_MAX_MERGED]), jobs, everyone, new.group)
