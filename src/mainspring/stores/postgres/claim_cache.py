"""Claim cache: rules, priorities, positions, and whether jobs are expected, kept between claims."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias

from mainspring.core.limits import Gate
from mainspring.stores.postgres.lines import Line, LineIndex, Source, Subject
from mainspring.stores.postgres.positions import SLOW_READ_S, PositionCache, Positions, pause_after
from mainspring.stores.postgres.rules import Rules

_FIRST_PRIORITIES: Final = (50,)
"""Priorities of a line of which nothing is known: the default of jobs."""
_BELOW_ALL: Final = -1
_ABOVE_ALL: Final = 101

_Index: TypeAlias = tuple[LineIndex, str]
"""The part of an index that a line reads: which index, and of which queue or task."""


class Gap(NamedTuple):
    """A range of priorities in which a line has had no jobs so far."""

    line: Line
    above: int
    below: int


class ClaimCache:
    """Cache between claims. Thread-safe: every value is replaced whole, or under a lock."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        """The time of the database, as exactly as it is known here."""
        self.hears: Callable[[], bool] = lambda: False
        """Whether commits of other processes are notified here: then an empty claim need not read from the start."""
        self.expects = False
        """Whether there is probably a job: it was announced, or the last claim did not take all."""
        self.last_chances = False
        """Whether jobs that are not claimed ahead were among the last that were claimed."""
        self.suspects = True
        """Whether suspects may be waiting."""
        self.full: frozenset[Subject] = frozenset()
        """Gates of tasks and queues that let no job pass when they were last read."""
        self.gated = False
        """Whether the last jobs that were claimed had to pass a gate: then the next ones probably have to."""
        self.only_rest = True
        """Whether the last claim could take jobs of the line of the rest only."""
        self.positions = PositionCache()
        self._guard = threading.Lock()
        self._priorities: dict[_Index, tuple[int, ...]] = {}
        self._gaps_after: dict[_Index, float] = {}
        self._gaps_took = 0.0
        self._counted: dict[Subject, Gate] = {}

    def after_fork(self) -> None:
        """Replace locks in a forked child: another thread of the parent may have held them."""
        self._guard = threading.Lock()
        self.positions.after_fork()

    # Priorities

    def sources(self, lines: Sequence[Line]) -> list[Source]:
        """Return every known priority of every line, the highest first."""
        return [Source(line, priority) for line in lines for priority in self._known(line)]

    def _known(self, line: Line) -> tuple[int, ...]:
        return self._priorities.get(_index(line), _FIRST_PRIORITIES)

    def gaps(self, lines: Sequence[Line], *, whole: bool) -> list[Gap]:
        """Return the ranges in which to look for other priorities of these lines.

        Lines whose gaps were read a moment ago are left out, unless a job was announced since then or `whole` is set.
        Where that read took long, they are left out in any case: gaps may contain many entries of claimed jobs.
        """
        clock = time.monotonic()
        whole = whole and not self.gaps_are_slow
        due = [line for line in lines if whole or self._gaps_after.get(_index(line), 0.0) <= clock]
        found = []
        for line in due:
            known = sorted(self._known(line))
            found += [
                Gap(line, above, below) for above, below in zip([_BELOW_ALL, *known], [*known, _ABOVE_ALL], strict=True)
            ]
        return [gap for gap in found if gap.above + 1 < gap.below]

    @property
    def gaps_are_slow(self) -> bool:
        """Whether it took long to look into gaps."""
        return self._gaps_took > SLOW_READ_S

    def looked_into_gaps(self, began: Positions, gaps: Iterable[Gap], took: float | None = None) -> None:
        """Record that there was no job in these gaps, and how many seconds that took if it was measured."""
        with self._guard:
            if took is not None:
                self._gaps_took = took
            until = time.monotonic() + pause_after(self._gaps_took)
            if self.positions.pulls == began.pulls or self.gaps_are_slow:
                self._gaps_after = self._gaps_after | {_index(gap.line): until for gap in gaps}

    def learn(self, found: Iterable[tuple[Line, int]]) -> None:
        """Add priorities of lines."""
        with self._guard:
            for line, priority in found:
                known = tuple(sorted({*self._known(line), priority}, reverse=True))
                self._priorities = self._priorities | {_index(line): known}

    # Rules

    def replace_rules(self, rules: Rules) -> None:
        """Replace the rules: gates may have been removed and set again, so jobs behind them are to be counted again."""
        self.rules, self._counted = rules, {}
        self.positions.forget()

    def uncounted(self, gates: Iterable[Gate]) -> list[Gate]:
        """Return gates that are new or have changed since they were counted: running jobs may have no place in them."""
        return [gate for gate in gates if self._counted.get((gate.scope, gate.name)) != gate]

    def counted(self, gates: Iterable[Gate]) -> None:
        """Record that every running job that needs a place in these gates has one, as of a committed transaction."""
        self._counted = self._counted | {(gate.scope, gate.name): gate for gate in gates}

    # What the next claim may expect

    def expect(self, began: Positions, *, expects: bool) -> None:
        """Record whether a claim left jobs; one that was announced meanwhile counts too."""
        self.expects = expects or self.positions.pulls != began.pulls

    def announced(self, least: datetime | None) -> None:
        """Expect a job that is due since then; None: none has become claimable."""
        if least is None:
            return
        self.positions.pull(least)
        with self._guard:
            if not self.gaps_are_slow:
                self._gaps_after = {}
        self.expects = True


def _index(line: Line) -> _Index:
    return line.kind, line.name
