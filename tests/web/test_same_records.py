"""What `--json` prints and what the JSON API answers with are the same records."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from mainspring import Mainspring
from mainspring.cli import main
from mainspring.stores.records import Quiet
from mainspring.web import api
from tests.web.conftest import BASE, client
from tests.web.world import ADMIN, World, declare, filled

LISTS = {
    "jobs list -n 200".replace("-n", "--limit"): ("jobs/list?limit=200", "jobs"),
    "queues list": ("queues/list", "queues"),
    "schedules list": ("schedules/list", "schedules"),
    "nodes list": ("nodes/list", "nodes"),
    "outbox list": ("outboxes/list", "outboxes"),
    "breakers list": ("breakers/list", "breakers"),
    "outbox deadletters": ("outboxes/letters", "letters"),
}
MOVING = ("renewed_at", "counter", "term")
"""Of a node that goes on while it is looked at."""


def printed(command: str, url: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, [*command.split(), "--json", "--url", url])
    assert done.exit_code == 0, done.output
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


def hidden(record: Any, told: Any) -> Any:  # noqa: ANN401 - JSON
    """Put what the API does not show where it does not, in what the command line shows."""
    match record, told:
        case _, "\N{BULLET}\N{BULLET}\N{BULLET}":
            return told
        case dict(), dict():
            return {key: hidden(one, told.get(key)) for key, one in record.items()}
        case list(), list() if len(record) == len(told):
            return [hidden(one, other) for one, other in zip(record, told, strict=True)]
        case _:
            return record


async def standing_still(world: World) -> None:
    """Have nothing change any more: the job that runs goes on, and nothing else is taken."""
    await world.app.store.order(world.node.id, Quiet())
    await asyncio.sleep(3)


@pytest.mark.slow
def test_the_command_line_and_the_api_tell_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def compare() -> None:
        async with filled(declare(Mainspring(url)), grace="100ms", stop_grace="100ms") as world:
            await standing_still(world)
            async with client(api(world.app, auth=lambda _: ADMIN)) as found:
                for command, (action, name) in LISTS.items():
                    ours = await asyncio.to_thread(printed, command, url)
                    theirs = (await found.get(f"{BASE}/{action}")).json()[name]
                    assert ours, command
                    for one in (*ours, *theirs):
                        for field in MOVING if name == "nodes" else ():
                            one.pop(field)
                    for one, other in zip(ours, theirs, strict=True):
                        if name == "jobs" and other["cut"]:  # over HTTP a list is one of previews
                            one |= {"saved": None, "result": None, "cut": other["cut"]}
                        if name == "jobs" and one["unique"]:
                            one["unique"]["key"] = other["unique"]["key"]  # JSON within JSON
                        if name == "schedules" and one["plan"]["template"].get("unique"):
                            one["plan"]["template"]["unique"]["key"] = other["plan"]["template"]["unique"]["key"]
                        assert hidden(one, other) == other, command

    asyncio.run(compare())
