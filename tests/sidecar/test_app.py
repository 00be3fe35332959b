"""An app on a sidecar store, from the URL to a restart."""

import asyncio
import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mainspring import Context, Every, Mainspring, Manual
from mainspring.client.urls import source_of
from mainspring.clock import SystemClock
from mainspring.errors import DeclarationError, StoreError
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime


def path_of(url: str) -> str:
    store = source_of(url).make(SystemClock())
    assert isinstance(store, SidecarStore)
    return str(store.path)


def test_a_url_names_a_folder() -> None:
    name = "_system/background_jobs.json"

    assert path_of("sidecar:///data") == path_of("sidecar:///./data/") == str(Path.cwd() / "data" / name)
    assert path_of("sidecar:///.") == str(Path.cwd() / name)
    assert path_of("sidecar:////data") == path_of("sidecar:////data/") == f"/data/{name}"
    assert path_of("sidecar:////my%20data") == f"/my data/{name}"
    assert path_of("sidecar:///~/data") == os.path.expanduser(f"~/data/{name}")  # noqa: PTH111 -- as a shell does it


@pytest.mark.parametrize("place", ["/data", "//srv/data", "/./data", "/~/data", "/my%20data"])
def test_a_folder_is_read_as_the_file_of_a_sqlite_url(place: str) -> None:
    store = source_of(f"sqlite://{place}").make(SystemClock())
    assert isinstance(store, SqliteStore)

    assert path_of(f"sidecar://{place}") == str(store.path / "_system/background_jobs.json")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sidecar://", "it names no folder"),
        ("sidecar:///", "it names no folder"),
        ("sidecar://data", 'write "sidecar:///data"'),
        ("sidecar:///data?durable=false", "it takes no options"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        Mainspring(url)


class Shop:
    """A program that is started, works for a while and is stopped, again and again."""

    def __init__(self, folder: Path, time: VirtualTime) -> None:
        self.folder = folder
        self.time = time
        self.ran: list[datetime] = []
        self.by_hand = 0

    def app(self) -> Mainspring:
        app = Mainspring(f"sidecar:///{self.folder}", clock=self.time.clock)

        @app.schedule(Every("10m"))
        @app.task(name="sweep")
        async def sweep(ctx: Context) -> None:
            assert ctx.slot
            self.ran.append(ctx.slot)

        @app.schedule(Manual())
        @app.task(name="report")
        async def report() -> None:
            self.by_hand += 1

        return app


@pytest.mark.slow
async def test_a_declared_schedule_goes_on_over_restarts(tmp_path: Path, virtual_time: VirtualTime) -> None:
    shop = Shop(tmp_path, virtual_time)
    for _ in range(4):
        app = shop.app()
        async with app.node():
            await asyncio.sleep(25 * 60)
        await asyncio.sleep(5 * 60)  # nobody is there

    assert shop.ran == [shop.ran[0] + number * timedelta(minutes=10) for number in range(len(shop.ran))]
    assert len(shop.ran) >= 11  # the slot of the very end may have come too late
    content = json.loads((tmp_path / "_system" / "background_jobs.json").read_bytes())
    assert sorted(entry["name"] for entry in content["schedules"]) == ["report", "sweep"]
    assert content["jobs"] == []


async def test_jobs_are_made_by_schedules_and_nothing_is_enqueued(tmp_path: Path, virtual_time: VirtualTime) -> None:
    shop = Shop(tmp_path, virtual_time)
    app = shop.app()
    async with app.node():
        with pytest.raises(StoreError, match="keeps no jobs but those of schedules"):
            await app.enqueue("report")
        await asyncio.sleep(1)
        job = await app.schedules.run("report")
        await job.result(timeout="1m")

    assert shop.by_hand == 1
