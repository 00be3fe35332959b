"""What the comparison of stores draws: new jobs, outcomes, gates, claims.

Few tasks, queues and keys, and most of it about one task: so that jobs meet at gates and unique keys, which is where
stores differ. The weights were chosen by putting faults into a store and counting how soon they are found.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from hypothesis import strategies as st

from mainspring.core.breaker import Breaker, Phase
from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import NodeId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import (
    AttemptError,
    Deferred,
    Expired,
    Interrupted,
    Lost,
    NoSuchTask,
    Raised,
    Snoozed,
    Succeeded,
)
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.ids import new_claim_number
from mainspring.stores.records import ClaimRequest

TASKS = [Name("", "send"), Name("photos", "resize"), Name("", "rare")]
QUEUES = ["mail", "photos"]
# Each priority stands in one queue: between queues of the same priority the port fixes no order.
LANES = [("mail", 50), ("photos", 51), ("mail", 10), ("photos", 90)]
SCOPES = [*((Scope.QUEUE, queue) for queue in QUEUES), *((s, str(t)) for s in (Scope.TASK, Scope.KEY) for t in TASKS)]
HOT = [(Scope.TASK, str(TASKS[0])), (Scope.KEY, str(TASKS[0])), (Scope.QUEUE, QUEUES[0])]
ERROR = AttemptError(type="ValueError", message="no")

numbers = st.integers(0, 10**6)
seldom = st.sampled_from([False] * 7 + [True])
sometimes = st.sampled_from([False, False, True])
some_tasks = st.just(frozenset(TASKS)) | st.sets(st.sampled_from(TASKS), min_size=1).map(frozenset)
lanes = st.sampled_from([LANES[0]] * 3 + LANES)
delays = st.sampled_from([timedelta(0)] * 4 + [timedelta(seconds=5), timedelta(minutes=5)])
uniques = st.builds(
    UniqueKey,
    key=st.sampled_from(["x", "x", "y"]),
    period=st.sampled_from([None, timedelta(seconds=8), timedelta(minutes=20)]),
    on_conflict=st.sampled_from(OnConflict),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A new job, but for its id."""

    number: int
    task: Name
    lane: tuple[str, int]
    delay: timedelta
    key: str | None
    unique: UniqueKey | None
    expires: timedelta | None
    max_attempts: int
    loss_limit: int
    again: bool
    """With an id that is there already."""


specs = st.builds(
    Spec,
    number=st.integers(0, 50),
    task=st.sampled_from([TASKS[0]] * 4 + TASKS),
    lane=lanes,
    delay=delays,
    key=st.sampled_from([None, "a", "a", "b"]),
    unique=sometimes.flatmap(lambda one: uniques if one else st.none()),
    expires=st.sampled_from([None, None, timedelta(seconds=6)]),
    max_attempts=st.sampled_from([1, 3, 4, 9]),
    loss_limit=st.sampled_from([1, 2, 2, 3]),
    again=seldom,
)
ends_of_all = {
    "success": st.builds(Succeeded, st.none() | st.binary(max_size=4)),
    "retry": st.builds(Raised, error=st.just(ERROR), retry_in=st.none() | delays),
    "snooze": st.builds(Snoozed, delay=delays, reason=st.sampled_from(["", "later"])),
    "interrupted": st.builds(Interrupted, started=st.booleans()),
    "lost": st.just(Lost()),
    "deferred": st.just(Deferred(delay=timedelta(0))),
    "failure": st.sampled_from([Expired(), NoSuchTask(), Raised(error=ERROR, retryable=False)]),
}
# Most jobs come back: what is claimed again and again has more to go wrong with.
endings = st.sampled_from([*ends_of_all, "retry", "snooze", "snooze", "interrupted", "lost", "lost"]).flatmap(
    lambda kind: ends_of_all[kind]
)
gates = st.builds(
    lambda passage, concurrency, rate: Gate(scope=passage[0], name=passage[1], concurrency=concurrency, rate=rate),
    st.sampled_from([*HOT * 4, *SCOPES]),
    st.sampled_from([None, 1, 2, 2, 3]),
    sometimes.flatmap(
        lambda paced: (
            st.builds(
                Rate,
                count=st.integers(1, 3),
                period=st.sampled_from([timedelta(seconds=1), timedelta(seconds=7), timedelta(minutes=1)]),
                burst=st.integers(1, 3),
            )
            if paced
            else st.none()
        )
    ),
)
rules = st.builds(
    Breaker,
    threshold=st.sampled_from([1, 2, 2, 3]),
    cooldown=st.sampled_from([5, 7, 7, 60]).map(lambda s: timedelta(0, s)),
)
hot_tasks = st.sampled_from([TASKS[0]] * 3 + TASKS)
commands = st.one_of(
    st.sampled_from([CancelJob(), CancelJob(), RetryJob(), RetryJob(), DeleteJob()]),
    st.builds(lambda lane: MoveJob(queue=lane[0], priority=lane[1]), lanes),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A claim, but for who makes it."""

    room: int
    ahead: int = 0
    suspects: int = 9
    tasks: frozenset[Name] = frozenset(TASKS)
    queues: dict[str, int] | None = None
    others: bool = False
    behind: timedelta | None = None
    """How long ago it must have been due."""
    number: int = field(default_factory=new_claim_number)

    def of(self, node: NodeId, term: int, now: datetime) -> ClaimRequest:
        return ClaimRequest(
            node=node,
            term=term,
            tasks=self.tasks,
            queues=self.queues,
            others=self.others,
            room=self.room,
            ahead=self.ahead,
            suspects=self.suspects,
            due_by=None if self.behind is None else now - self.behind,
            number=self.number,
        )


wishes = st.builds(
    Wish,
    room=st.sampled_from([0, 1, 2, 3, 4]),
    ahead=st.sampled_from([0, 0, 1, 2]),
    suspects=st.sampled_from([0, 1, 2]),
    tasks=some_tasks,
    queues=sometimes.flatmap(
        lambda named: st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 3)) if named else st.none()
    ),
    others=sometimes,
    behind=st.sampled_from([None, None, None, timedelta(seconds=4)]),
)


class Step(NamedTuple):
    """A method of a story, and what it is called with."""

    name: str
    values: dict[str, Any]


# How often, and with what. Most steps are about jobs.
STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "enqueue": (4, {"some": st.lists(specs, min_size=1, max_size=4)}),
    "work": (
        10,
        {
            "pick": numbers,
            "room": st.integers(1, 5),
            "ends": st.lists(st.tuples(endings, seldom), min_size=4, max_size=4),
        },
    ),
    "claim": (5, {"pick": numbers, "wish": wishes}),
    "claim_plainly": (3, {"pick": numbers}),
    "settle": (8, {"ends": st.lists(st.tuples(numbers, endings, sometimes), min_size=1, max_size=3)}),
    "settle_wrongly": (
        3,
        {
            "pick": numbers,
            "outcome": endings,
            "whose": st.none() | numbers,
            "lease": st.sampled_from([0, 0, 0, -1, 1]),
        },
    ),
    "settle_for_another": (1, {"pick": numbers, "outcome": endings, "whose": numbers}),
    "be_overtaken": (3, {"pick": numbers, "outcome": endings, "by": st.sampled_from(["cancel", "claim"])}),
    "reap": (2, {"pick": numbers, "keeps_place": seldom}),
    "command": (5, {"pick": numbers, "command": commands, "late": seldom}),
    "move_in_time": (1, {"pick": numbers, "minutes": st.integers(-2, 2)}),
    "note": (
        3,
        {
            "pick": numbers,
            "whose": st.none() | numbers,
            "saved": st.none() | st.binary(max_size=3),
            "lines": st.integers(0, 2),
        },
    ),
    "declare": (3, {"gate": gates}),
    "declare_the_same": (2, {"pick": numbers}),
    "rule": (3, {"task": hot_tasks, "rule": st.none() | rules | rules}),
    "fail": (8, {"pick": numbers, "room": st.integers(1, 4), "fatal": sometimes}),
    "probe": (
        6,
        {
            "pick": numbers,
            "rule": rules,
            "outcome": endings,
            "how": st.sampled_from(["as it is", "as it is", "cancelled", "without a term", "by a reaper"]),
        },
    ),
    "operate": (
        2,
        {
            "task": hot_tasks,
            "phase": st.sampled_from([None, None, Phase.OPEN, Phase.CLOSED]),
            "behind": st.sampled_from([None, None, 0, 1]),
        },
    ),
    "release": (2, {"pick": numbers, "whose": st.none() | numbers}),
    "join": (2, {"known": some_tasks}),
    "renew": (2, {"pick": numbers}),
    "declare_dead": (2, {"pick": numbers, "behind": st.sampled_from([None, 0, 0, 1])}),
    "time_passes": (6, {"seconds": st.sampled_from([0.000001, 1, 1, 5, 7, 7, 60, 4000, 100_000])}),
    "the_clock_is_set_back": (1, {"seconds": st.sampled_from([1, 3, 90])}),
    "pause_or_resume": (1, {"queue": st.sampled_from([*QUEUES, "empty"]), "pause": sometimes}),
    "something_rare": (
        3,
        {
            "what": st.sampled_from(["update", "prune", "mend", "order", "answer", "unknown"]),
            "pick": numbers,
        },
    ),
    "lock": (
        2,
        {
            "name": st.sampled_from(["ticker", "pruner"]),
            "holder": st.sampled_from("ab"),
            "does": st.sampled_from(["acquire", "acquire", "extend", "resign"]),
            "pick": numbers,
        },
    ),
}


def drawn_from(table: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]]) -> st.SearchStrategy[Step]:
    """Draw a step, as often as its weight says."""
    return st.sampled_from([name for name, (weight, _) in table.items() for _ in range(weight)]).flatmap(
        lambda name: st.builds(Step, name=st.just(name), values=st.fixed_dictionaries(table[name][1]))
    )
