"""What is asked of one store in a comparison, answered without what the port leaves to the store."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace

from mainspring.core.breaker import PhaseChange
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.names import Name
from mainspring.stores.records import (
    BreakerView,
    Delivery,
    JobFilter,
    JobPage,
    Lock,
    NodeView,
    Order,
    QueueView,
    Quiet,
    SetConcurrency,
)
from tests.stores.drawn import TASKS, Wish
from tests.stores.pair import Side

T = TypeVar("T")
ALL = 10_000


def chosen(some: Sequence[T], pick: int) -> T:
    return some[pick % len(some)]


async def claim(side: Side, *, node: NodeId, wish: Wish) -> tuple[Delivery, ...]:
    answer = await side.store.claim(wish.of(node, side.terms[node], side.store.now()))
    side.next_due = answer.next_due
    return answer.deliveries


async def everything(side: Side) -> tuple[JobPage, tuple[QueueView, ...], list[NodeView]]:
    jobs = await side.store.list_jobs(JobFilter(), limit=ALL)
    return jobs, await side.store.queues(), await plain_nodes(side)


async def breakers(side: Side) -> tuple[list[BreakerView], list[tuple[PhaseChange, ...]]]:
    page = await side.store.list_breakers(limit=2)
    views = [*page.breakers]
    while page.after:
        page = await side.store.list_breakers(limit=2, after=page.after)
        views += page.breakers
    assert set(await side.store.breakers(TASKS)) == set(views)
    return views, [await side.store.breaker_changes(task) for task in TASKS]


async def plain_nodes(side: Side) -> list[NodeView]:
    views = [side.plain(view) for view in await side.store.nodes()]
    joined = [view.joined_at for view in views]
    assert joined == sorted(joined)
    return sorted(views, key=lambda view: view.node.id)


async def plain_pulse(side: Side, *, node: NodeId) -> object:
    pulse = await side.store.renew(node, side.terms[node])
    nodes = sorted((replace(side.plain(view), running=0) for view in pulse.nodes), key=lambda view: view.node.id)
    return sorted(pulse.held, key=lambda one: one.job), [order.order for order in pulse.orders], nodes


async def histories(side: Side, *, job: JobId) -> object:
    return await side.store.attempts(job), await side.store.log_lines(job)


async def sorted_orphans(side: Side) -> list[Claim]:
    claims = await side.store.orphans(ALL)
    losses = [claim.job.losses for claim in claims]
    assert losses == sorted(losses)
    return sorted(claims, key=lambda claim: claim.job.id)


async def unknown_tasks(side: Side, *, grace: timedelta) -> set[Name]:
    return set(await side.store.unknown_tasks(grace))


async def give_order(side: Side, *, node: NodeId, places: int) -> Order:
    given = await side.store.order(node, SetConcurrency(places) if places else Quiet())
    side.orders.append(given)
    return replace(given, id=0)


async def answer_order(side: Side, *, pick: int) -> None:
    if side.orders:
        order = chosen(side.orders, pick)
        await side.store.answer(order.node, side.terms[order.node], order.id, "done")


async def plain_orders(side: Side, *, node: NodeId) -> list[Order]:
    return [replace(order, id=0) for order in await side.store.orders(node)]


async def use_lock(side: Side, *, name: str, holder: str, does: str, pick: int) -> object:
    ttl = timedelta(seconds=10)
    known = chosen(side.locks, pick) if side.locks else None
    match does, known:
        case "extend", Lock():
            got = await side.store.extend(known, ttl)
        case "resign", Lock():
            return await side.store.resign(known)
        case _:
            got = await side.store.acquire(name, holder, ttl)
    if got is None:
        return None
    terms = [one.term for one in side.locks if one.name == got.name]
    side.locks.append(got)
    # A term is a number of the store's own; whether it grew is not.
    return replace(got, term=0), all(term < got.term for term in terms), all(term <= got.term for term in terms)


async def resume(side: Side, *, queue: str) -> bool:
    return await side.store.resume(queue)


async def declare_dead(side: Side, *, node: NodeId) -> bool:
    return await side.store.declare_dead(node, side.terms[node])
