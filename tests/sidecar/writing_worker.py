"""Fires a schedule again and again, and says each run only once it is answered. It is killed at some point."""

import asyncio
import sys
from functools import partial

from mainspring import Every, Mainspring
from mainspring.core.names import Name
from mainspring.core.steps import run_now
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of

app = Mainspring(f"sidecar:///{sys.argv[1]}")
NAME = Name("", "work")


@app.task(name="work")
async def work() -> None: ...


async def main() -> None:
    async with app:
        store = app.store
        if not (await store.look([NAME])).looks:
            await app.schedules.add("work", Every("365d"), work.call())
        while True:
            looked = await store.look([NAME])
            decision = run_now(looked.looks[0].schedule, looked.now, partial(new_id, looked.now))
            (accepted,) = await store.move([move_of(decision)])
            if accepted:
                sys.stdout.write(f"{decision.runs[0].id}\n")
                sys.stdout.flush()


asyncio.run(main())
