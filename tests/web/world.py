"""A shop with everything in it: jobs in all states, schedules, outboxes with dead letters, breakers, a node at work."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

import httpx

from mainspring import Breaker, Context, Cron, Every, Fail, Limit, Mainspring, Manual, Retry
from mainspring.client.nodes import NodeOptions
from mainspring.client.outbox import Outbox
from mainspring.core.job import State
from mainspring.outbox.message import Message
from mainspring.runtime.node import Node
from mainspring.stores.memory import MemoryStore
from mainspring.web import Identity, api
from tests.web.conftest import BASE, client, error_of

NAPPING = 3600
ADMIN = Identity.of("anna", "admin")


class Modest(MemoryStore):
    """A store that does not play the role `Overview`, as one that somebody else wrote may not."""

    census = None  # type: ignore[assignment]  # says to Python that there is none


@dataclass
class Shop:
    """An app, and its outboxes."""

    app: Mainspring
    orders: Outbox[Any]
    sent: Outbox[Any]


def declare(app: Mainspring) -> Shop:
    """Declare what the shop has."""

    @app.task(name="add")
    async def add(a: int, b: int = 1) -> dict[str, int]:
        return {"sum": a + b}

    @app.task(name="fail", retry=Retry.none(), breaker=Breaker(threshold=3))
    async def fail(why: str = "no reason") -> None:
        raise ValueError(why)

    @app.task(name="again", retry=Retry.fixed("1h", max_attempts=3))
    async def again() -> None:
        raise OSError("not yet")

    @app.task(name="nap")
    async def nap(ctx: Context, seconds: float = NAPPING) -> None:
        ctx.log("good night")
        ctx.progress(50, "asleep")
        await ctx.save("dream", "sheep")
        await ctx.save("password", "geheim")
        await asyncio.sleep(seconds)

    @app.task(name="parent")
    async def parent() -> None:
        await app.enqueue("add", 1)

    @app.task(name="login", limit=Limit(concurrency=1, key="iban"), unique=True, redact=["iban"], queue="closed")
    async def login(user: str, password: str = "", iban: str = "", nested: dict[str, Any] | None = None) -> None: ...

    @app.task(name="quiet", redact=True, queue="closed")
    async def quiet(words: str) -> str:
        return words

    @app.task(name="deliver")
    async def deliver(order: dict[str, Any]) -> None: ...

    app.schedule(Cron("30 2 * * *", tz="Europe/Berlin"), name="nightly", kwargs={"a": 1})(add)
    app.schedule(Every("10m"), name="often", kwargs={"user": "anna", "password": "geheim"})(login)
    app.schedule(Manual(), name="by-hand", kwargs={"a": 2})(add)
    shop = Shop(app, app.outbox("orders", partitions=2), app.outbox("sent", partitions=1))
    shop.sent.to(deliver)

    @shop.orders.handler(max_attempts=1)
    async def handle(message: Message[Any]) -> None:
        raise Fail(f"nobody wants {message.seq}")

    return shop


@dataclass
class World:
    """The shop, and what is in it."""

    shop: Shop
    node: Node
    jobs: dict[State, str] = field(default_factory=dict)
    """One of each state."""
    family: str = ""
    """A job that has enqueued another."""
    hidden: str = ""
    """A job with arguments that are not shown."""
    sent: str = ""
    """A job that was made of a message."""

    @property
    def app(self) -> Mainspring:
        return self.shop.app


@asynccontextmanager
async def filled(shop: Shop, **options: Unpack[NodeOptions]) -> AsyncIterator[World]:
    """Fill a shop, and keep a node at work in it."""
    async with shop.app.node(**options) as node:
        world = World(shop, node)
        await shop.app.store.pause("closed", by="anna", reason="for the tests")
        await _fill(world)
        yield world


async def _fill(world: World) -> None:
    app = world.app
    made = {
        State.SCHEDULED: await app.find("add").using(delay="1h", tags=["late"]).enqueue(1),
        State.READY: await app.find("add").using(queue="closed").enqueue(7, 8),
        State.RUNNING: await app.enqueue("nap"),
        State.RETRYING: await app.enqueue("again"),
        State.SUCCEEDED: await app.enqueue("add", 1, 2),
        State.FAILED: await app.enqueue("fail", "<b>no</b>"),
        State.CANCELLED: await app.find("add").using(delay="1h").enqueue(3),
    }
    await made[State.CANCELLED].cancel()
    for state, job in made.items():
        await until(partial(_is, job, state))
    world.jobs = {state: str(job.id) for state, job in made.items()}
    family = await app.enqueue("parent")
    await family.result("1m")
    world.family = str(family.id)
    nested = {"userPassword": "s3cret", "list": [{"apiKey": 1, "fine": 2}]}
    world.hidden = str((await app.enqueue("login", "anna", "s3cret", iban="DE1", nested=nested)).id)
    await app.enqueue("quiet", "nobody hears")
    for number in range(3):
        await world.shop.orders.publish(None, {"order": number, "card_number": "4111"}, key=str(number))
    await world.shop.sent.publish(None, {"order": 7})
    await until(lambda: _has_letters(world, 3))
    await until(lambda: _has_jobs(app, "deliver"))
    world.sent = str((await app.jobs(task="deliver")).jobs[0].job.id)


async def _is(job: Any, state: State) -> bool:  # noqa: ANN401 - a handle of any job
    view = await job.refresh()
    return view.job.state is state and (state is not State.RUNNING or view.progress is not None)


async def _has_letters(world: World, number: int) -> bool:
    return len((await world.shop.orders.letters()).letters) == number


async def _has_jobs(app: Mainspring, task: str) -> bool:
    return bool((await app.jobs(task=task)).jobs)


async def until(fact: Callable[[], Awaitable[bool]], within: timedelta = timedelta(seconds=30)) -> None:
    """Look until something is so."""
    async with asyncio.timeout(within.total_seconds()):
        while not await fact():
            await asyncio.sleep(0.05)


class Asks:
    """Asks the API of a world, as an admin unless somebody else is named."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def response(self, action: str, body: object = None, by: Identity = ADMIN, /, **query: str) -> httpx.Response:
        async with client(api(self.world.app, auth=lambda _: by)) as found:
            if body is None:
                return await found.get(f"{BASE}/{action}", params=query)
            return await found.post(f"{BASE}/{action}", json=body)

    async def __call__(self, action: str, body: object = None, by: Identity = ADMIN, /, **query: str) -> Any:  # noqa: ANN401 - JSON
        response = await self.response(action, body, by, **query)
        assert response.status_code == 200, response.text
        return response.json()

    async def fails(self, status: int, action: str, body: object = None, /, **query: str) -> dict[str, Any]:
        return error_of(await self.response(action, body, **query), status)

    async def state(self, job: str) -> State:
        return await self.world.app.job(job).state()


def in_world(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Have a test run in a filled shop, `world`, that it can `ask`: pytest has no async fixtures on virtual time."""
    signature = inspect.signature(test)

    @functools.wraps(test)
    async def run(shop: Shop, **given: Any) -> None:  # noqa: ANN401 - whatever the test is given
        async with filled(shop) as world:
            ours = {"world": world, "ask": Asks(world)}
            await test(**given, **{name: one for name, one in ours.items() if name in signature.parameters})

    own = [one for name, one in signature.parameters.items() if name not in {"world", "ask"}]
    shop = inspect.Parameter("shop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[shop, *own])  # type: ignore[attr-defined]  # where Python looks for it
    return run
