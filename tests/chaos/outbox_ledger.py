"""What the log of a run with outboxes says, and what must be true of it however the run went."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from mainspring.core.outbox import partition_of
from tests.chaos.ledger import Line, lines_of


class Place(NamedTuple):
    """Where a message stands, as a handler was told."""

    outbox: str
    partition: int
    seq: int
    key: str
    name: str


class Effect(NamedTuple):
    """A row that a handler has written in its transaction, in the order of writing."""

    outbox: str
    partition: int
    seq: int
    name: str


@dataclass(frozen=True, slots=True)
class OutboxLedger:
    """The log, sorted by what it says; lists are in the order in which it was written."""

    given: list[tuple[Place, Line]]
    handled: list[tuple[Place, Line]]
    published: dict[str, int]
    """When messages were about to be published."""
    committed: dict[str, int]
    """When commits were acknowledged."""

    @classmethod
    def read(cls, folder: Path) -> "OutboxLedger":
        lines = lines_of(folder)
        return cls(
            given=[(place_of(line), line) for line in lines if line.event == "given"],
            handled=[(place_of(line), line) for line in lines if line.event == "handled"],
            published={line.job: line.at for line in lines if line.event == "publishes"},
            committed={line.job: line.at for line in lines if line.event == "committed"},
        )

    def check_all_are_there(self, outbox: str, written: Mapping[str, str], lasts: Mapping[int, int]) -> None:
        """See that exactly what was committed was handled, each key in its partition, under numbers without a gap."""
        handled = {place for place, _ in self.handled if place.outbox == outbox}
        given = {place for place, _ in self.given if place.outbox == outbox}
        assert {place.name: place.key for place in handled} == written
        assert given == handled, "given to a handler, and never handled; or given under two numbers"
        assert len({place.name for place in given}) == len(given), "a message with two places"
        for partition, last in lasts.items():
            here = sorted(place.seq for place in handled if place.partition == partition)
            assert here == list(range(1, last + 1)), f"{outbox}/{partition}: a hole, or two messages of one number"
        assert all(place.partition == partition_of(place.key, len(lasts)) for place in given)

    def check_order(self, outbox: str, *, by_key: bool = False) -> None:
        """See that whatever was handed out for the first time came in the order of numbers, for all programs together."""
        for events in (self.given, self.handled):
            first: dict[object, list[int]] = defaultdict(list)
            for place in dict.fromkeys(place for place, _ in events if place.outbox == outbox):
                first[place.key if by_key else place.partition].append(place.seq)
            for which, seqs in first.items():
                assert seqs == sorted(seqs), f"{outbox}, {which}"

    def check_what_was_committed_before_comes_first(self) -> int:
        """See that A has the lower number wherever A was committed before B was published; returns how many such pairs
        of neighbours there were that were published the other way round.
        """
        of_lines: dict[tuple[str, int], set[Place]] = defaultdict(set)
        for place, _ in self.handled:
            of_lines[place.outbox, place.partition].add(place)
        for line, places in of_lines.items():
            earliest = inf  # of the commits of what has a higher number
            for place in sorted(places, key=lambda one: one.seq, reverse=True):
                assert self.published[place.name] < earliest, (
                    f"{line}: {place} was published after a later one was there"
                )
                earliest = min(earliest, self.committed[place.name])
        return sum(
            self.published[one.name] > self.published[following.name]
            for places in of_lines.values()
            for one, following in pairwise(sorted(places, key=lambda one: one.seq))
        )

    def given_again(self) -> int:
        """Count deliveries beyond the first."""
        counts = Counter(place for place, _ in self.given)
        return sum(counts.values()) - len(counts)

    def passed_over(self, key: str, outbox: str) -> int:
        """Count messages of other keys that were handled while one of this key in their partition waited for its turn."""
        found = 0
        waiting: dict[int, Place] = {}
        done: set[Place] = set()
        events = sorted([*((line.at, "given", place) for place, line in self.given if place.outbox == outbox)]
            + [(line.at, "handled", place) for place, line in self.handled if place.outbox == outbox])  # fmt: skip
        for _, event, place in events:
            if place.key == key and event == "given" and place not in done:
                waiting.setdefault(place.partition, place)
            elif place.key == key:
                done.add(place)
                waiting.pop(place.partition, None)
            elif event == "handled" and place.partition in waiting:
                found += place.seq > waiting[place.partition].seq
        return found


def check_effects(effects: Iterable[Effect], outbox: str, written: Mapping[str, str]) -> None:
    """See that each message has had its effect once, in the order of its partition."""
    of_partitions: dict[int, list[Effect]] = defaultdict(list)
    for effect in effects:
        if effect.outbox == outbox:
            of_partitions[effect.partition].append(effect)
    assert sorted(one.name for rows in of_partitions.values() for one in rows) == sorted(written)
    for partition, rows in of_partitions.items():
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1)), f"{outbox}/{partition}"


def place_of(line: Line) -> Place:
    outbox, partition, seq, key, name = line.job.split("/")
    return Place(outbox, int(partition), int(seq), key, name)
