"""Nodes over HTTP: who is at work, on what, and what they are asked to do."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec import Meta, Struct, structs

from mainspring.client.orders import answered, give, node_view
from mainspring.client.overview import ServiceLook, in_trouble, services_of
from mainspring.client.preview import PREVIEW_BYTES
from mainspring.client.searching import search
from mainspring.client.stacks import Stack, parts_of
from mainspring.client.standing import standing
from mainspring.core.job import JobId, NodeId, State
from mainspring.runtime.report import Report
from mainspring.runtime.report import read as read_report
from mainspring.stores.overview import Overview, Search
from mainspring.stores.port import Store
from mainspring.stores.records import (
    DumpStacks,
    JobView,
    NodeOrder,
    NodeView,
    Order,
    Quiet,
    Resume,
    SetConcurrency,
    StopNode,
)
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Text
from mainspring.web.routes import AnyRoute, Asked, Route

RUNNING: Final = 200
"""Jobs of a node that are shown."""


class ListNodes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes."""

    all: Annotated[bool, Meta(description="those that have ended, too")] = False


class OneNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node."""

    id: Text


class Concurrency(OneNode, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs a node runs at a time."""

    places: Annotated[int, Meta(ge=1, le=10_000)]


class Stacks(OneNode, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait for the answer."""

    seconds: Annotated[float, Meta(gt=0, le=10)] = 5
    job: Annotated[JobId | None, Meta(description="only the parts that run this job, if there are any")] = None


class Stacked(Order, frozen=True, kw_only=True):
    """Where a node stands."""

    parts: tuple[Stack, ...] = ()
    """Its answer, taken apart: those that run jobs first."""


class Said(Struct, frozen=True, kw_only=True):
    """What a node said of itself last."""

    at: datetime
    report: Report
    troubled: tuple[str, ...]
    """Services that do not do what they are there for."""


class Nodes(Struct, frozen=True, kw_only=True):
    """Nodes, by the time they joined."""

    nodes: tuple[NodeView, ...]
    standing: dict[str, str]
    """How each stands: alive, silent (it has not renewed its lease for 15 s), gone (its process has ended), dead."""
    said: dict[str, Said]
    """What each of them said of itself last, where the store keeps that."""
    ended: int
    """How many have ended and are not forgotten yet."""


class NodeDetail(Struct, frozen=True, kw_only=True):
    """A node, and what it is at."""

    node: NodeView
    standing: str
    jobs: tuple[JobView, ...]
    """Those that it runs, for those who may look at jobs."""
    orders: tuple[Order, ...]
    """What was asked of it in the last day; where it stood then is told to those who may ask for it."""
    said: Said | None
    """What it says of itself, where the store keeps that."""
    services: tuple[ServiceLook, ...]
    """The app's first, by name."""


async def list_(asked: Asked[ListNodes]) -> Nodes:
    """List the nodes that have not ended."""
    store = await asked.store()
    nodes = await store.nodes()
    found = tuple(one for one in nodes if one.alive or asked.said.all)
    said = await _said(store)
    return Nodes(
        nodes=found,
        standing={one.node.id: standing(one, store.now()) for one in found},
        said={one.node.id: said[one.node.id] for one in found if one.node.id in said},
        ended=sum(not one.alive for one in nodes),
    )


async def show(asked: Asked[OneNode]) -> NodeDetail:
    """Show a node with its running jobs, and what was asked of it."""
    store = await asked.store()
    view = await node_view(store, asked.said.id)
    said, stands = (await _said(store)).get(view.node.id), standing(view, store.now())
    shows_jobs = Permission.JOBS_LOOK in asked.who.permissions
    return NodeDetail(
        node=view,
        standing=stands,
        jobs=await _running(store, view.node.id) if shows_jobs else (),
        orders=_shown(await store.orders(view.node.id), stacks_too=Permission.NODES_STACKS in asked.who.permissions),
        said=said,
        services=services_of(view.node.id, stands, said.at, said.report) if said else (),
    )


async def quiet(asked: Asked[OneNode]) -> Order:
    """Have a node finish what runs and take nothing new."""
    return await _give(asked, Quiet())


async def resume(asked: Asked[OneNode]) -> Order:
    """Have a quiet node take jobs again."""
    return await _give(asked, Resume())


async def stop(asked: Asked[OneNode]) -> Order:
    """Have a node shut down, as on SIGTERM."""
    return await _give(asked, StopNode())


async def concurrency(asked: Asked[Concurrency]) -> Order:
    """Have a node run so many jobs at a time, until it ends."""
    return await give(await asked.store(), asked.said.id, SetConcurrency(asked.said.places))


async def stacks(asked: Asked[Stacks]) -> Stacked:
    """Ask where every thread and task of a node stands, and wait for the answer."""
    store, said = await asked.store(), asked.said
    order = await give(store, said.id, DumpStacks())
    done = await answered(store, order, timedelta(seconds=said.seconds))
    parts = parts_of(done.answer or "")
    of_job = tuple(one for one in parts if said.job and one.job == said.job)
    return Stacked(**structs.asdict(done), parts=of_job or parts)


async def _give(asked: Asked[OneNode], order: NodeOrder) -> Order:
    return await give(await asked.store(), asked.said.id, order)


def _shown(orders: Iterable[Order], *, stacks_too: bool) -> tuple[Order, ...]:
    return tuple(
        one if stacks_too or not isinstance(one.order, DumpStacks) else structs.replace(one, answer=None)
        for one in orders
    )


async def _said(store: Store) -> dict[NodeId, Said]:
    if not isinstance(store, Overview):
        return {}
    return {
        node: Said(
            at=one.at, report=report, troubled=tuple(sorted(one.name for one in report.services if in_trouble(one)))
        )
        for node, one in (await store.reports()).items()
        if (report := read_report(one.body))
    }


async def _running(store: Store, node: NodeId) -> tuple[JobView, ...]:
    if isinstance(store, Overview):
        return (
            await search(store, Search(states=(State.RUNNING,), node=node), limit=RUNNING, preview=PREVIEW_BYTES)
        ).jobs
    found = await search(store, Search(states=(State.RUNNING,)), limit=RUNNING, preview=PREVIEW_BYTES)
    return tuple(view for view in found.jobs if view.node == node)


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/nodes/list", Permission.NODES_LOOK, ListNodes, Nodes, list_),
    Route("GET", "/nodes/show", Permission.NODES_LOOK, OneNode, NodeDetail, show),
    Route("POST", "/nodes/quiet", Permission.NODES_ORDER, OneNode, Order, quiet),
    Route("POST", "/nodes/resume", Permission.NODES_ORDER, OneNode, Order, resume),
    Route("POST", "/nodes/stop", Permission.NODES_ORDER, OneNode, Order, stop),
    Route("POST", "/nodes/concurrency", Permission.NODES_ORDER, Concurrency, Order, concurrency),
    Route("POST", "/nodes/stacks", Permission.NODES_STACKS, Stacks, Stacked, stacks),
)
