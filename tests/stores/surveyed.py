"""A story in which the store is looked at as a whole, and operators limit queues, beside all that happens to jobs."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.job import Cause, NodeId, State
from mainspring.stores.overview import Argument, Census, Overview, Search
from mainspring.stores.records import Facts, JobView, NewJob
from tests.stores import drawn
from tests.stores.asked import chosen
from tests.stores.drawn import QUEUES, TASKS, Spec, numbers
from tests.stores.pair import Side
from tests.stores.story import Story

NOTHING = timedelta(0)
TAGS = ["red", "blue"]
BUDGETS = [NOTHING, timedelta(seconds=10)]


def on(side: Side) -> Overview:
    assert isinstance(side.store, Overview)
    return side.store


async def all_pages(side: Side, which: Search, limit: int, budget: timedelta) -> list[JobView]:
    """Go on until there is nothing older. What one store needs several pages for, another may bring in one."""
    found: list[JobView] = []
    after = None
    while True:
        page = await on(side).search(which, limit=limit, after=after, budget=budget)
        assert len(page.jobs) <= limit
        assert page.looked >= len(page.jobs)
        assert (page.back_to is None) == (page.looked == 0)
        assert page.after is None or after is None or page.after < after, "it goes on"
        found += page.jobs
        after = page.after
        if after is None:
            return found


def maybe(some: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Leave it out mostly: of jobs that have to be so in ten ways there are none."""
    return st.one_of(st.none(), st.none(), st.none(), some)


wishes = st.fixed_dictionaries(
    {
        "states": maybe(st.lists(st.sampled_from(State), max_size=3, unique=True).map(tuple)),
        "queue": maybe(st.sampled_from([*QUEUES, "empty"])),
        "task": maybe(st.sampled_from(TASKS)),
        "tag": maybe(st.sampled_from(TAGS)),
        "cause": maybe(st.sampled_from(Cause)),
        "key": maybe(st.sampled_from(["a", "b", "c"])),
        "error": maybe(st.sampled_from(["no", "VALUEERROR: N", "yes"])),
        "argument": maybe(
            st.builds(
                Argument,
                path=st.sampled_from([("number",), ("lines", "0"), ("lines", "1", "sku")]),
                value=st.sampled_from([None, b"1", b"1.0", b"true", b'"a"']),
            )
        ),
    }
)


class Surveyed(Story):
    """What happens to both stores, and how they are seen."""

    def new(self, spec: Spec) -> NewJob:
        lines = b'[1, {"sku": "a"}]' if self.made % 3 else b"{}"
        facts = Facts(tags=tuple(TAGS[: self.made % 3]), parent=chosen([None, *self.views], spec.number))
        return replace(
            super().new(spec), payload=b'{"args": {"number": %d, "lines": %b}}' % (self.made % 3, lines), facts=facts
        )

    def search(self, wish: dict[str, Any], pick: int, limit: int, budget: timedelta) -> None:
        which = Search(**{name: value for name, value in wish.items() if value is not None})
        views = [*self.views.values()]
        if views and pick % 3 == 0:
            which = replace(which, since=chosen(views, pick).enqueued_at, until=chosen(views, pick // 7).enqueued_at)
        if pick % 5 == 0:
            which = replace(which, node=chosen([NodeId("nobody"), *self.nodes], pick))
        if views and pick % 7 == 0:
            which = replace(which, parent=chosen(views, pick).facts.parent)
        self.pair.both(lambda side: all_pages(side, which, limit, budget))

    def limit_queue(self, queue: str, concurrency: int | None) -> None:
        self.pair.both(lambda side: on(side).limit_queue(queue, concurrency, by="me"))
        if concurrency is None:
            self.ledger.limits.pop(queue, None)
        else:
            self.ledger.limits[queue] = concurrency
        self.pair.both(lambda side: on(side).queue_rules())

    def count(self) -> None:
        """How many were enqueued is told in about: a store may count those that were deleted too."""

        async def census(side: Side) -> Census:
            return replace(await on(side).census(self.now), enqueued=0)

        found = self.pair.both(census)
        assert sum(count.running for count in found.counts) == len(self.running)

    def drain(self) -> None:
        for queue in QUEUES:
            self.limit_queue(queue, None)
        super().drain()


STEPS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = drawn.STEPS | {
    "search": (
        15,
        {"wish": wishes, "pick": numbers, "limit": st.sampled_from([1, 2, 50]), "budget": st.sampled_from(BUDGETS)},
    ),
    "limit_queue": (6, {"queue": st.sampled_from(QUEUES), "concurrency": st.sampled_from([None, 1, 2, 3])}),
    "count": (3, {}),
}
steps = drawn.drawn_from(STEPS)
