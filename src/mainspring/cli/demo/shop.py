"""A little shop around the story, so that every page of the dashboard has something to show.

It adds to the app of `tasks`: more queues, schedules, an outbox, a breaker, services and a plugin. Workers import this
module in place of `tasks` where there is a dashboard. What goes wrong here goes wrong on purpose, by arguments and by
count, and not by chance: two runs look alike.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from mainspring.cli.demo.tasks import app
from mainspring.client.plugin import Plugin
from mainspring.core.breaker import Breaker
from mainspring.core.limits import Limit
from mainspring.core.outcome import Fail
from mainspring.core.retry import Retry
from mainspring.core.rules import Cron, Every, Manual
from mainspring.outbox.message import Message
from mainspring.plugins import BackgroundJobs, Schedules, Services
from mainspring.runtime.context import Context
from mainspring.runtime.service import ServiceContext
from mainspring.supervise.directive import Idle

__all__ = ["app"]

STEPS: Final = 20
SIZES: Final = (320, 800, 1600)
NOW_AND_THEN: Final = 4
"""Of so many steps, one fails."""

app.queue("media", limit=Limit(concurrency=3))


# Tasks.


@app.task(name="mail.send", queue="mail", retry=Retry.fixed("2s", max_attempts=3))
async def send_mail(ctx: Context, to: str, subject: str, api_token: str) -> str:  # noqa: ARG001 - it is there to be hidden
    """Send a mail; not every address is one."""
    ctx.log(f"{subject!r} to {to}")
    await asyncio.sleep(0.1)
    if "@" not in to:
        raise Fail(f"no such address: {to}")
    return f"sent to {to}"


@app.task(name="album.publish", queue="media")
async def publish_album(ctx: Context, album: str) -> int:
    """Have pictures made, by jobs of its own."""
    for width in SIZES:
        await resize.using(tags=["album", album]).enqueue(f"{album}.jpg", width)
    ctx.log(f"{len(SIZES)} pictures of {album}")
    return len(SIZES)


@app.task(name="photo.resize", queue="media")
async def resize(ctx: Context, photo: str, width: int) -> str:
    """Take a while, the larger the longer, and say how far it is."""
    done: int = ctx.load("rows", 0)
    for row in range(done + 1, STEPS + 1):
        await asyncio.sleep(width / 320 / STEPS)
        ctx.progress(100 * row / STEPS, f"row {row} of {STEPS}")
        if row % 5 == 0:
            await ctx.save("rows", row)
    return f"{photo}-{width}.webp"


@app.task(
    name="payment.charge",
    queue="payments",
    retry=Retry.fixed("6s", max_attempts=3, jitter=0.3),  # later than it takes to open the breaker
    breaker=Breaker(threshold=4, cooldown="6s"),
    limit=Limit(concurrency=1, key="customer"),
)
async def charge(ctx: Context, customer: str, cents: int, card_number: str, fails: int = 0) -> str:  # noqa: ARG001 - as above
    """Ask a provider that does not always answer."""
    ctx.log(f"charging {customer} {cents / 100:.2f}, attempt {ctx.attempt}")
    await asyncio.sleep(0.2)
    if ctx.attempt <= fails:
        raise TimeoutError("the provider did not answer within 200 ms")
    return f"charged {cents / 100:.2f}"


@app.task(name="ledger.export", queue="exports")
async def export(month: str) -> str:
    """Wait, for its queue is paused."""
    return f"ledger-{month}.csv"


# Schedules.


@app.schedule(Every("5s"), name="exchange-rates", description="Prices are shown in the customer's own money.")
@app.task(name="rates.fetch", queue="reports", retry=Retry.fixed("1s", max_attempts=2))
async def fetch_rates(ctx: Context) -> int:
    """Fail at first, at one slot of three."""
    await asyncio.sleep(0.3)
    if ctx.slot and ctx.slot.second // 5 % 3 == 0 and ctx.attempt == 1:
        raise ConnectionError("rates.example hung up")
    return 31


@app.schedule(
    Every("3s"), name="stock-count", overlap="skip", description="Takes longer than its interval now and then."
)
@app.task(name="stock.count", queue="reports")
async def count_stock(ctx: Context) -> None:
    """Run into the next slot every so often."""
    await asyncio.sleep(4 if ctx.slot and ctx.slot.second % 4 == 0 else 0.5)


@app.schedule(
    Cron("0 9 * * MON-FRI", tz="Europe/Berlin"), name="morning-report", description="For the people at the desk."
)
@app.schedule(Cron("30 2 * * *", tz="America/New_York"), name="nightly-backup")
@app.schedule(Every("15m"), name="newsletter")
@app.schedule(Manual(), name="year-end", description="When the books are closed.")
@app.task(name="report.build", queue="reports")
async def build_report(ctx: Context, pages: int = 12) -> str:
    """Build a report, page by page."""
    for page in range(1, pages + 1):
        await asyncio.sleep(0.1)
        ctx.progress(100 * page / pages, f"page {page}")
    return f"{pages} pages"


# Messages.


@dataclass
class OrderPlaced:
    """An order."""

    order: int
    customer: str
    quantity: int


orders: Final = app.outbox("orders", payload=OrderPlaced, partitions=4)


@orders.handler(order="key", max_attempts=3, retry_base="1s")
async def tell_warehouse(message: Message[OrderPlaced]) -> None:
    """Hand an order on; one of nothing cannot be."""
    if message.payload.quantity < 1:
        raise Fail(f"order {message.payload.order} is for nothing")
    if message.payload.quantity > 90 and message.attempt < 3:
        raise ConnectionError("the warehouse did not answer")
    await asyncio.sleep(0.05)


# Services.

_looks = {"mailbox": 0}


@app.service(every="1s", name="mailbox")
async def look_into_mailbox() -> Idle:
    """Fail now and then, and be tried again after a backoff."""
    _looks["mailbox"] += 1
    if _looks["mailbox"] % NOW_AND_THEN == 0:
        raise ConnectionError("imap.example refused the connection")
    return Idle()


@app.service(every="2s", singleton=True, ttl="5s", name="price-feed")
async def follow_prices(ctx: ServiceContext) -> Idle:
    """Run on one node at a time."""
    assert ctx.term  # noqa: S101 - a singleton always has one
    return Idle()


# A plugin.

thumbnails: Final = Plugin(
    "thumbnails",
    "1.2",
    requires=[BackgroundJobs(max_concurrent=2), Schedules(), Services()],
    docs="Makes small pictures of large ones.",
)


@thumbnails.task(name="make")
async def make_thumbnail(photo: str) -> str:
    """Make a small picture."""
    await asyncio.sleep(0.2)
    return f"{photo}-small.webp"


@thumbnails.job(schedule=Every("10s"), docs="Throws away what nobody has looked at for a month.", name="sweep")
async def sweep() -> None:
    """Have nothing to throw away."""


@thumbnails.service(every="5s", name="watch")
async def watch() -> Idle:
    """Watch a folder."""
    return Idle()


app.install(thumbnails, grant="all")
