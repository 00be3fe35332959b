"""What a claim may give out: the node's room, pauses, the gates of tasks, queues and keys, and the breakers of tasks."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Final

from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.passage import ENDLESS, Passage, Trial
from mainspring.stores.records import ClaimRequest
from mainspring.stores.sqlite import breakers, gates
from mainspring.stores.sqlite.lanes import Care, Lane
from mainspring.stores.sqlite.rows import instant, micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_PAUSED: Final = statement("paused_queues")
_RULES: Final = statement("rules_all")
_GATE: Final = slice(1, 8)
_BREAKER: Final = slice(1, None)


class Rooms:
    """Room in every respect, as it shrinks while jobs are taken."""

    def __init__(self, session: Session, request: ClaimRequest) -> None:
        self._session = session
        self._request = request
        self._at_once = request.room
        self._left = request.room + request.ahead
        self._suspects = request.suspects
        self._taken: Counter[str] = Counter()
        self._paused = {queue for (queue,) in session.rows(_PAUSED)}
        self._gates: dict[tuple[Scope, str], tuple[Gate, datetime | None]] = {}
        self._trials: dict[Name, Trial] = {}
        self._read(session)
        self._passages: dict[tuple[Scope, str, str], Passage] = {}
        self._admitted: dict[int, bool] = {}

    def _read(self, session: Session) -> None:
        for row in session.rows(_RULES):
            if row[0] == "gate":
                gate, spent_until = gates.with_account(row[_GATE])
                self._gates[gate.scope, gate.name] = gate, spent_until
            else:
                kept = breakers.kept_of(row[_BREAKER])
                self._trials[kept.task] = Trial(kept, instant(session.now))

    @property
    def wanted(self) -> int:
        """How many jobs the request asks for."""
        return self._request.room + self._request.ahead

    @property
    def left(self) -> int:
        return self._left

    def admits(self, lane: Lane) -> bool:
        """Say whether the request asks for this lane at all, and no operator has closed its queue."""
        admitted = self._admitted.get(lane.id)
        if admitted is None:
            admitted = self._admitted[lane.id] = self._admits(lane)
        return admitted

    def _admits(self, lane: Lane) -> bool:
        request = self._request
        if lane.task not in request.tasks or lane.queue in self._paused:
            return False
        if request.room_in(lane.queue) <= 0:
            return False
        return not lane.suspect or request.suspects > 0

    def of(self, lane: Lane) -> int:
        """How many more jobs of a lane may be taken now, as far as their keys let them."""
        room = min(self._suspects, self._left) if lane.suspect else self._left
        room = min(room, self._request.room_in(lane.queue) - self._taken[lane.queue])
        for passage in self.passages(lane):
            room = min(room, passage.room)
        trial = self._trials.get(lane.task)
        return room if trial is None else min(room, trial.room)

    def is_unlimited(self, lane: Lane) -> bool:
        """Return whether nothing but the node's own room limits how many jobs of an admitted lane may be taken."""
        if lane.care is not Care.NONE and (self.is_ahead or lane.suspect):
            return False
        if self._request.queues is not None and lane.queue in self._request.queues:
            return False
        if not self._gates and not self._trials:
            return True
        task = str(lane.task)
        subjects = (Scope.TASK, task), (Scope.KEY, task), (Scope.QUEUE, lane.queue)
        return lane.task not in self._trials and not any(subject in self._gates for subject in subjects)

    def take_unlimited(self, jobs: int) -> None:
        """Take jobs of lanes that are unlimited."""
        self._at_once -= jobs
        self._left -= jobs

    def must_wait(self, lane: Lane) -> bool:
        """Return whether a job of a lane, and all jobs behind it, must wait for a free place."""
        return lane.care is not Care.NONE and self._at_once <= 0

    @property
    def is_ahead(self) -> bool:
        """Whether more may be taken than can start at once."""
        return self._left > max(0, self._at_once)

    def close(self) -> None:
        """End the claim: no more jobs are taken."""
        self._left = 0

    def take(self, lane: Lane, key: str | None, jobs: int = 1) -> None:
        self._at_once -= jobs
        self._left -= jobs
        if lane.suspect:
            self._suspects -= jobs
        self._taken[lane.queue] += jobs
        for passage in self.passages(lane):
            passage.let_pass(jobs)
        if keyed := self.key_passage(lane, key):
            keyed.let_pass(jobs)
        if trial := self._trials.get(lane.task):
            trial.let_pass(jobs)

    def passages(self, lane: Lane) -> Iterator[Passage]:
        """The gates that all jobs of a lane have to pass."""
        if not self._gates:
            return
        for scope, name in ((Scope.TASK, str(lane.task)), (Scope.QUEUE, lane.queue)):
            if passage := self._passage(scope, name):
                yield passage

    def _passage(self, scope: Scope, name: str) -> Passage | None:
        found = self._gates.get((scope, name))
        if not found:
            return None
        return self._passages.get((scope, name, "")) or self._approach(gates.approach(self._session, *found))

    @property
    def has_limits(self) -> bool:
        """Whether a lane that the request names may be closed."""
        return bool(self._paused or self._gates or self._trials or self._request.queues) or self._request.suspects <= 0

    def has_keyed_gate(self, lane: Lane) -> bool:
        return (Scope.KEY, str(lane.task)) in self._gates

    @property
    def has_trials(self) -> bool:
        return bool(self._trials)

    def trial(self, task: Name) -> Trial | None:
        """The breaker that all jobs of a task have to pass, if there is one."""
        return self._trials.get(task) if self._trials else None

    def key_passage(self, lane: Lane, key: str | None) -> Passage | None:
        """The gate that jobs of a lane with this key have to pass, if there is one."""
        if key is None or not self._gates:
            return None
        name = str(lane.task)
        found = self._gates.get((Scope.KEY, name))
        if not found:
            return None
        known = self._passages.get((Scope.KEY, name, key))
        if known:
            return known
        return self._approach(gates.approach_with_key(self._session, found[0], key))

    def of_key(self, lane: Lane, key: str | None) -> int:
        passage = self.key_passage(lane, key)
        return ENDLESS if passage is None else passage.room

    def passes_at(self, lane: Lane, at: int) -> int | None:
        """When a job of this lane that is due then could pass; None if another has to leave first."""
        barriers: list[Passage | Trial] = [*self.passages(lane)]
        if trial := self.trial(lane.task):
            barriers.append(trial)
        for barrier in barriers:
            if barrier.is_full:
                return None
            if barrier.opens_at is not None:
                at = max(at, micros(barrier.opens_at))
        return at

    @property
    def touched(self) -> list[Passage]:
        """The gates that something has passed."""
        return [passage for passage in self._passages.values() if passage.passed]

    def key_gates(self, tasks: Collection[str]) -> list[Gate]:
        """Return the gates by key of those of some tasks that the request names; without limits if they have none."""
        named = {str(task) for task in self._request.tasks} if tasks else set()
        found = [(task, self._gates.get((Scope.KEY, task))) for task in tasks if task in named]
        return [gate[0] if gate else Gate(scope=Scope.KEY, name=task) for task, gate in found]

    @property
    def rated_tasks(self) -> list[Name]:
        """The request's tasks that have a rate for each key, but for those of which another job has to leave first."""
        if not self._gates:
            return []
        found = [(task, self._gates.get((Scope.KEY, str(task)))) for task in self._request.tasks]
        return [task for task, gate in found if gate and gate[0].rate and not self._is_full(task)]

    def _is_full(self, task: Name) -> bool:
        barriers = self._passage(Scope.TASK, str(task)), self.trial(task)
        return any(barrier is not None and barrier.is_full for barrier in barriers)

    def _approach(self, passage: Passage) -> Passage:
        self._passages[passage.gate.scope, passage.gate.name, passage.key] = passage
        return passage
