"""The claimer's step: when what it has claimed begins."""

import asyncio

from tests.runtime.conftest import Bench


async def test_what_was_claimed_has_begun_when_the_claimer_goes_to_sleep(bench: Bench) -> None:
    began = []

    @bench.app.task(name="work")
    async def work(number: int) -> None:
        began.append(number)
        await asyncio.sleep(1)

    async with bench.app.node() as node:
        node.quiet()
        for number in range(3):
            await work.enqueue(number)
        await asyncio.sleep(0.1)  # until the service has heard of them, and rests
        claimer = node._parts.claimer
        claimer.quiet = False

        await claimer.step()

        assert began == [0, 1, 2]
