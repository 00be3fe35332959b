"""A document is written whole or not at all: ended or refused at every system call, and with the power cut."""

import random
from collections.abc import Awaitable, Callable
from errno import EIO, ENOSPC, EROFS
from pathlib import Path
from typing import ClassVar

import pytest

from mainspring.core.outcome import Succeeded
from mainspring.core.steps import run_now
from mainspring.errors import StoreUnavailable
from mainspring.stores.records import ClaimRequest
from mainspring.stores.sidecar.file import SystemFiles
from mainspring.testing import VirtualTime
from mainspring.testing.contract import plans
from mainspring.testing.contract.world import FATAL, TASKS, World
from tests.sidecar.files import Disk, FaultyFiles
from tests.sidecar.opened import Place, seen

pytestmark = [pytest.mark.usefixtures("virtual_time"), pytest.mark.slow]

CALLS = ["create", "write", "sync", "close", "rename", "sync_folder"]


Act = Callable[[], Awaitable[object]]


async def fires(world: World) -> None:
    await (await a_move(world))()


async def a_move(world: World) -> Act:
    move = plans.move_of(world, run_now(await plans.schedule(world), world.now, world.id))
    return lambda: world.store.move([move])


async def a_claim(world: World) -> Act:
    node = await world.node()
    request = ClaimRequest(node=node.id, term=node.term, tasks=TASKS, number=1)  # the same when it is repeated
    return lambda: world.store.claim(request)


async def a_success(world: World) -> Act:
    claim = await world.claim_one(await world.node())
    return lambda: world.settle(claim, Succeeded())


async def a_failure(world: World) -> Act:
    claim = await world.claim_one(await world.node())
    return lambda: world.settle(claim, FATAL)


VERBS = {"move": a_move, "claim": a_claim, "success": a_success, "failure": a_failure}


async def prepared(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world, planned=plans.after_the_end())
        await fires(world)


async def told(place: Place, name: str) -> tuple[list[str], object, object]:
    """Return the system calls of a verb, and what a document shows before and after it."""
    await prepared(place)
    files = FaultyFiles()
    async with place.world(files) as world:
        act = await VERBS[name](world)
        before, calls = await seen(world), len(files.calls)
        await act()
        return files.calls[calls:], before, await seen(world)


async def test_a_write_is_made_of_these_system_calls_and_of_no_others(place: Place) -> None:
    calls, before, after = await told(place, "move")

    assert list(dict.fromkeys(calls)) == CALLS
    assert before != after


@pytest.mark.parametrize("name", VERBS)
async def test_ended_at_any_system_call_it_leaves_the_old_or_the_new_document(tmp_path: Path, name: str) -> None:
    calls, before, after = await told(Place(tmp_path / "trial"), name)
    for step in range(len(calls)):
        place, files = Place(tmp_path / str(step)), FaultyFiles()
        await prepared(place)
        async with place.world(files) as world:
            act = await VERBS[name](world)
            files.kill_at = len(files.calls) + step
            with pytest.raises(StoreUnavailable):
                await act()

        async with place.world() as world:
            assert await seen(world) == (before if step <= calls.index("rename") else after)


@pytest.mark.parametrize("error", [ENOSPC, EIO, EROFS])
@pytest.mark.parametrize("name", VERBS)
async def test_refused_at_any_system_call_nothing_has_happened(tmp_path: Path, name: str, error: int) -> None:
    calls, before, after = await told(Place(tmp_path / "trial"), name)
    for step in range(len(calls)):
        place, files = Place(tmp_path / str(step)), FaultyFiles()
        await prepared(place)
        async with place.world(files) as world:
            act = await VERBS[name](world)
            file = place.read()
            files.fail_at = {len(files.calls) + step: error}
            with pytest.raises(StoreUnavailable):
                await act()

            assert (await seen(world), place.read()) == (before, file)
            await act()  # the store goes on to be usable
            assert await seen(world) == after
            assert place.read() != file
        async with place.world() as world:
            assert await seen(world) == after


async def test_trouble_that_lasts_is_told_each_time_and_the_file_stays(place: Place) -> None:
    await prepared(place)
    files = FaultyFiles()
    async with place.world(files) as world:
        file, memory = place.read(), await seen(world)
        files.always = ENOSPC
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match=r"disk is full.*nothing was changed"):
                await fires(world)
            assert await seen(world) == memory
        files.always = None
        assert place.read() == file
        assert not place.path.with_name("background_jobs.json.tmp").exists()


async def test_a_folder_that_is_made_is_on_the_disk_by_its_name_before_anything_is_in_it(tmp_path: Path) -> None:
    class Watched(SystemFiles):
        synced: ClassVar[list[tuple[Path, bool]]] = []

        def sync_folder(self, path: Path) -> None:
            self.synced.append((path, place.path.exists()))
            super().sync_folder(path)

    place = Place(tmp_path / "some" / "where")
    for _ in range(2):  # found there, it may still be on its way to the disk
        async with place.world(Watched()):
            pass
    above = place.path.parent.parent
    assert Watched.synced == [(one, False) for one in (tmp_path, above.parent, above, above)]


def test_whatever_the_power_takes_what_was_answered_is_there(tmp_path: Path, virtual_time: VirtualTime) -> None:
    """A disk that loses what was not synced: after each cut, all that was answered is there, and one more at most."""

    async def story(seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311 -- the same again and again
        disk, place = Disk(), Place(tmp_path / str(seed))
        answered = 0
        async with place.world(disk) as world:
            await plans.add(world)
        for _ in range(8):
            async with place.world(disk) as world:
                disk.cut_after(dice.randrange(40))
                try:
                    while True:
                        await fires(world)
                        answered += 1
                except StoreUnavailable:
                    pass
            disk.power_up(dice)
            async with place.world(disk) as world:
                found = len(await plans.runs(world))
                assert answered <= found <= answered + 1
                assert len((await world.store.list_schedules()).looks) == 1
                answered = found

    for seed in range(12):
        virtual_time.run(story(seed))
