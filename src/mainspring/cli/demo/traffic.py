"""What goes on in the shop: customers order, and an operator does what operators do, through the JSON API.

It goes on for as long as it is let, at about four jobs a second.
"""

import asyncio
import itertools
import json
import random
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from mainspring.cli.demo.shop import OrderPlaced, charge, export, make_thumbnail, orders, publish_album, send_mail

STEP: Final = 0.5
CUSTOMERS: Final = ("anna", "bao", "chidi", "dora", "emil", "farah")
ALBUMS: Final = ("harbour", "mountains", "market")
OUTAGE: Final = 160
"""In the first steps out of so many the provider of payments is down."""
LONGEST_OUTAGE: Final = 16
MONTHS: Final = ("2026-08", "2026-09", "2026-10")
TOKEN: Final = "not-shown-anywhere"  # noqa: S105 - that is the point


async def customers() -> None:
    """Keep the shop busy until cancelled."""
    chance = random.Random(7)  # noqa: S311 - two runs look alike
    for month in MONTHS:
        await export.using(tags=["ledger"]).enqueue(month)
    for step in itertools.count():
        await _one_step(step, chance)
        await asyncio.sleep(STEP)


async def _one_step(step: int, chance: random.Random) -> None:
    customer = chance.choice(CUSTOMERS)
    address = customer if step % 14 == 5 else f"{customer}@example.com"
    subject = "Your order" if step % 3 else "Welcome"
    await send_mail.using(tags=["welcome"] if step % 3 == 0 else None).enqueue(address, subject, api_token=TOKEN)
    if step % 2 == 0:
        is_out = step % OUTAGE < LONGEST_OUTAGE
        fails = chance.choice([1, 1, 2, 3]) if is_out else 0
        await charge.enqueue(customer, chance.randrange(500, 20_000), card_number="4111 1111 1111 1111", fails=fails)
    if step % 3 == 0:
        quantity = 0 if step % 54 == 9 else chance.choice([1, 2, 5, 95])
        await orders.publish(None, OrderPlaced(1000 + step, customer, quantity), key=customer)
    if step % 10 == 0:
        album = ALBUMS[step // 10 % len(ALBUMS)]
        await publish_album.using(priority="high").enqueue(album)
        await make_thumbnail.enqueue(f"{album}.jpg")
    if step % 12 == 6:
        await send_mail.using(delay="10m", tags=["reminder"]).enqueue(f"{customer}@example.com", "Is all well?", TOKEN)


async def operator(address: str) -> None:
    """Do what leaves its line in the audit log."""
    await _ask(address, "queues/pause", name="exports", reason="the books are being closed")
    await _ask(address, "queues/limit", name="media", concurrency=2)
    await _found(address, "schedules/show?name=newsletter", "schedule")
    await _ask(address, "schedules/pause", name="newsletter", reason="the text is not ready")
    await _ask(address, "schedules/run", name="morning-report")
    letters = await _found(address, "outboxes/letters?outbox=orders", "letters")
    await _ask(address, "outboxes/replay", ids=[letters[0]["id"]])
    failed = await _found(address, "jobs/list?task=mail.send&state=failed", "jobs")
    await _ask(address, "jobs/retry", id=failed[0]["id"])


async def _found(address: str, what: str, name: str) -> Any:  # noqa: ANN401 - as JSON has it
    """Look until there is something: a worker has to come up first, and a job to fail."""
    while not (found := (await asyncio.to_thread(_answer, f"{address}api/v1/{what}")).get(name)):  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(STEP)
    return found


async def _ask(address: str, what: str, **said: object) -> None:
    await asyncio.to_thread(_answer, f"{address}api/v1/{what}", json.dumps(said).encode())


def _answer(url: str, said: bytes | None = None) -> dict[str, Any]:
    """Return what is answered; nothing, if that is a refusal, or the server is about to end."""
    request = Request(url, said, {"content-type": "application/json"})  # noqa: S310 - our own address
    try:
        with urlopen(request, timeout=10) as answer:  # noqa: S310 - as above
            found: dict[str, Any] = json.load(answer)
            return found
    except (HTTPError, URLError, ConnectionError, TimeoutError):
        return {}
