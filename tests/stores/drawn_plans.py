"""What the comparison of stores draws about schedules: plans, and steps with them.

Few names, short intervals, and unique keys that other jobs have too: so that steps meet at revisions, slots and keys.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob, DeleteJob
from mainspring.core.job import Retention
from mainspring.core.missed import Missed
from mainspring.core.names import Name
from mainspring.core.outcome import Raised, Succeeded
from mainspring.core.rules import Every, Manual, Rule
from mainspring.core.schedule import Overlap, Plan, Template
from mainspring.core.unique import OnConflict, UniqueKey
from tests.stores import drawn
from tests.stores.drawn import ERROR, TASKS, numbers, seldom, sometimes, uniques

NAMES = [Name("", "sweep"), Name("shop", "sweep"), Name("", "report")]
OWNERS = [None, "shop", "blog"]
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpec:
    """What a schedule is to do."""

    rule: Rule
    overlap: Overlap
    missed: Missed
    unique: UniqueKey | None
    max_attempts: int
    keep_runs: timedelta
    max_runs: int | None

    @property
    def plan(self) -> Plan:
        template = Template(
            task=TASKS[0],
            payload=b"{}",
            backoff=Backoff.fixed("2s"),
            max_attempts=self.max_attempts,
            queue="mail",
            loss_limit=2,
            retention=Retention(succeeded=timedelta(minutes=5), failed=timedelta(hours=1)),
            unique=self.unique,
        )
        return Plan(
            rule=self.rule,
            template=template,
            missed=self.missed,
            overlap=self.overlap,
            keep_runs=self.keep_runs,
            max_runs=self.max_runs,
        )


def first(rule: Rule, overlap: Overlap, unique: UniqueKey | None = None) -> PlanSpec:
    """What every story begins with: few are about schedules if these have to be drawn first."""
    return PlanSpec(
        rule=rule,
        overlap=overlap,
        missed=Missed.latest(),
        unique=unique,
        max_attempts=2,
        keep_runs=timedelta(minutes=1),
        max_runs=None,
    )


FIRST = [
    first(Every(7 * SECOND), Overlap.QUEUE_ONE),
    first(Every(5 * SECOND, after_end=True), Overlap.ALLOW),
    first(Every(7 * SECOND), Overlap.ALLOW, UniqueKey(key="x", on_conflict=OnConflict.RAISE)),
]
# Half of them wait for the end of a run now and then: that is where a step and a settle meet.
specs = st.builds(
    PlanSpec,
    rule=st.sampled_from([Every(7 * SECOND), Every(60 * SECOND), *[Every(5 * SECOND, after_end=True)] * 2, Manual()]),
    overlap=st.sampled_from([*Overlap, Overlap.QUEUE_ONE, Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS]),
    missed=st.sampled_from([Missed.latest(), Missed.skip(), Missed.all(limit=3, per_tick=2)]),
    unique=sometimes.flatmap(lambda one: uniques if one else st.none()),
    max_attempts=st.sampled_from([1, 1, 3]),
    keep_runs=st.sampled_from([timedelta(minutes=1), timedelta(hours=2), timedelta(days=30)]),
    max_runs=st.sampled_from([None, None, 3]),
)
FATAL = Raised(error=ERROR, retryable=False)
commands = st.sampled_from([CancelJob(), CancelJob(), DeleteJob()])
names = st.sampled_from([NAMES[0], NAMES[0], *NAMES])
what = st.sampled_from(["pause", "resume", "remove", "run", "run", "backfill", "backfill", "change", "wait"])

STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = drawn.STEPS | {
    "plan": (3, {"name": names, "spec": specs, "owner": st.sampled_from(OWNERS), "paused": seldom}),
    "tick": (12, {"seconds": st.sampled_from([0, 0, 5, 7, 7, 60]), "late": seldom}),
    "step": (5, {"name": names, "what": what, "pick": numbers, "spec": specs, "late": seldom}),
    "end_runs": (10, {"pick": numbers, "outcome": st.sampled_from([Succeeded(), FATAL]), "command": commands}),
    "steps_at_once": (2, {"name": names, "steps": st.lists(st.tuples(what, sometimes), min_size=2, max_size=4)}),
    "prune_soon": (2, {"minutes": st.sampled_from([1, 2, 180])}),
    "list_by_page": (1, {"pick": numbers, "limit": st.integers(1, 4)}),
}
steps = drawn.drawn_from(STEPS)
