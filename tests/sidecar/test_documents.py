"""What a store finds when it is opened: nothing, something broken, something that it may not touch, somebody else."""

import asyncio
import json
import os
import random
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from errno import EACCES, EIO, EROFS
from pathlib import Path
from typing import Any

import pytest

from mainspring.errors import SchemaError, StoreError, StoreUnavailable
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.file import SystemFiles
from mainspring.testing.contract import plans
from tests.sidecar.files import FaultyFiles, UnsyncedFiles
from tests.sidecar.opened import Place, seen
from tests.sidecar.test_foreign import SWEEP, Tasks

pytestmark = pytest.mark.usefixtures("virtual_time")


async def filled(place: Place) -> bytes:
    async with place.world() as world:
        await plans.add(world)
        await plans.fire(world)
        await world.claim_one(await world.node())
        await plans.fire(world)
    return place.read()


async def refused(place: Place, content: bytes) -> str:
    """Have a document refused, and left as it is."""
    place.write(content)
    with pytest.raises(SchemaError) as caught:
        await place.open()
    assert place.read() == content
    assert str(place.path) in str(caught.value)
    assert not list(place.path.parent.glob("*.tmp"))
    return str(caught.value)


async def test_a_document_is_json_of_one_entry_a_line(place: Place) -> None:
    text = (await filled(place)).decode()
    content = json.loads(text)

    assert list(content)[:2] == ["version", "written_by"]
    assert content["version"] == 1
    assert content["written_by"].startswith("mainspring ")
    assert {name: len(entries) for name, entries in content.items() if entries and isinstance(entries, list)} == {
        "schedules": 1,
        "runs": 2,
        "jobs": 2,
    }
    assert text.count("\n") == 2 + 8 + 2 + 5 + 3


@pytest.mark.parametrize("content", [None, b""])
async def test_a_missing_or_empty_file_is_an_empty_store(place: Place, content: bytes | None) -> None:
    if content is not None:
        place.write(content)
    async with place.world() as world:
        assert (await world.store.list_schedules()).looks == ()
        assert place.read() == b""  # it is not written before there is something to write
        await plans.add(world)
    async with place.world() as world:
        assert len((await world.store.list_schedules()).looks) == 1


async def test_a_document_that_was_cut_off_anywhere_is_refused_and_left_alone(place: Place) -> None:
    whole = (await filled(place)).rstrip()
    cuts = sorted({1, 2, len(whole) - 1, *range(3, len(whole) - 1, 97)})
    for cut in cuts:
        await refused(place, whole[:cut])
    place.write(whole)
    await (await place.open()).close()


async def test_a_document_with_a_wrong_byte_is_refused_or_read_and_never_overwritten(place: Place) -> None:
    whole = await filled(place)
    for at in range(0, len(whole), 53):
        broken = whole[:at] + b"\x00" + whole[at + 1 :]
        await refused(place, broken)


async def test_a_byte_that_is_no_text_is_refused_or_makes_a_schedule_unreadable(place: Place) -> None:
    whole = await filled(place)
    refused = 0
    for at in range(0, len(whole), 53):
        broken = whole[:at] + b"\xff" + whole[at + 1 :]
        place.write(broken)
        try:
            store = await place.open()
        except SchemaError:
            refused += 1
        else:  # a schedule's record is looked at when it is needed, as on every store
            page = await store.list_schedules()
            assert len(page.looks) + len(page.unread) == 1
            await store.close()
        assert place.read() == broken
    assert refused > len(whole) // 53 * 2 // 3


async def test_an_instant_without_a_zone_is_refused(place: Place) -> None:
    whole = (await filled(place)).decode()
    for instant in sorted(set(re.findall(r'"(20[0-9T:.-]+)Z"', re.sub(r'"record":{.*}', "", whole)))):
        assert "an instant has no zone" in await refused(place, whole.replace(f'"{instant}Z"', f'"{instant}"').encode())


async def test_what_was_edited_at_random_is_read_or_refused_and_nothing_else(place: Place) -> None:
    """Whatever a person has made of the document: no error of Python's, now or later."""
    whole = json.loads(await filled(place))
    dice = random.Random(5)  # noqa: S311 -- the same again and again
    opened = 0
    for _ in range(150):
        edited = json.loads(json.dumps(whole))
        inside, key = dice.choice(list(places_in(edited)))
        inside[key] = dice.choice([None, 0, -1, 2**80, "", "x", "0001-01-01T00:00:00Z", "2030-01-01T00:00:00", [], {}])
        place.write(json.dumps(edited))
        try:
            store = await place.open()
        except SchemaError:
            continue
        opened += 1
        await store.list_schedules()
        await store.due(10)
        await store.orphans(10)
        await store.unread()
        await store.close()
    assert 5 < opened < 145


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 -- JSON
    if isinstance(value, dict | list):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key
            yield from places_in(inner)


@pytest.mark.parametrize("mode", [0o444, 0o400])
async def test_a_read_only_file_is_not_replaced(place: Place, mode: int) -> None:
    content = await filled(place)
    place.path.chmod(mode)
    with pytest.raises(StoreError, match=f"give it the right to read and write {place.path.parent} and what is in it"):
        await place.open()
    assert place.read() == content
    place.path.chmod(0o644)
    await (await place.open()).close()


async def test_a_list_of_something_else_is_no_list_of_rows_and_is_kept(place: Place) -> None:
    place.write('[1, "two", null, [3], {"qname": "sweep"}]')
    async with place.world() as world:
        store = world.store
        assert isinstance(store, SidecarStore)
        await plans.add(world)
        assert len((await store.list_schedules()).looks) == 1
        assert [one.row for one in await store.unread()] == ["1", '"two"', "null", "[3]", '{"qname": "sweep"}']
        assert "Expected `object`, got `int`" in (await store.unread())[0].problem
    assert json.loads(place.read())["kept"] == [1, "two", None, [3], {"qname": "sweep"}]


async def test_a_row_that_is_no_text_is_kept_byte_by_byte_and_holds_nobody_up(place: Place) -> None:
    place.write(b'[{"qname": "\xff\xfe"}]')
    async with place.world() as world:
        store = world.store
        assert isinstance(store, SidecarStore)
        store.adopt_for(Tasks(SWEEP))
        await plans.add(world)
        (one,) = await store.unread()
        assert (one.row, "utf-8" in one.problem) == ('{"qname": "\\xff\\xfe"}', True)
    assert b'{"qname": "\xff\xfe"}' in place.read()
    await (await place.open()).close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a letter to a friend", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"   ", "cannot be read"),
        (b"17", "cannot be read"),
        (b"null", "cannot be read"),
        (b"{}", "no document of schedules"),
        (b'{"users": []}', "no document of schedules"),
        (b'{"version": 1}', "no document of schedules"),
        (b'{"version": "one", "schedules": []}', "cannot be read"),
        (b'{"version": 0, "schedules": []}', "no document of schedules"),
        (b'{"version": 2, "schedules": []}', "version 2"),
        (b'{"version": 2}', "version 2"),
        (b'{"version": 1, "schedules": [], "wishes": []}', "unknown field `wishes`"),
        (b'{"version": 1, "schedules": [{"name": "a"}]}', "missing required field"),
        (b"[" * 5000, "cannot be read"),
    ],
)
async def test_what_is_no_document_of_ours_is_refused_and_left_alone(place: Place, content: bytes, why: str) -> None:
    assert why in await refused(place, content)


async def test_a_document_that_contradicts_itself_is_refused(place: Place) -> None:
    whole = json.loads(await filled(place))
    for change, why in (
        ({"jobs": []}, "a run is open that has no job"),
        ({"runs": []}, "a job has no open run"),
        ({"schedules": whole["schedules"] * 2}, "two schedules have the same name"),
        ({"runs": whole["runs"] * 2}, "same id"),
    ):
        assert why in await refused(place, json.dumps(whole | change).encode())


async def test_a_folder_in_place_of_the_file_cannot_be_opened(place: Place) -> None:
    place.path.mkdir(parents=True)

    with pytest.raises(StoreError, match="there is a folder where the file should be"):
        await place.open()
    assert place.path.is_dir()


@pytest.mark.parametrize(("error", "kind"), [(EACCES, StoreError), (EIO, StoreUnavailable)])
async def test_a_file_that_cannot_be_read_is_told_as_such(place: Place, error: int, kind: type[StoreError]) -> None:
    content = await filled(place)
    files = FaultyFiles()
    files.fail_at = {5: error}  # two calls for the folder, three for a file in it
    with pytest.raises(kind, match="it cannot be opened"):
        await place.open(files)
    assert files.calls[5] == "read"

    assert place.read() == content
    await (await place.open()).close()  # nothing holds the lock


async def test_a_read_only_file_system_is_told_of_when_it_is_opened(place: Place) -> None:
    content = await filled(place)
    files = FaultyFiles()
    files.fail_at = {2: EROFS}
    with pytest.raises(StoreUnavailable, match="the file system is read-only"):
        await place.open(files)
    assert files.calls[2] == "create"
    assert place.read() == content


OPEN = """
import asyncio, os, sys
from mainspring.errors import StoreError
from mainspring.stores.sidecar import SidecarStore
if len(sys.argv) > 2:
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(SidecarStore(sys.argv[1]).open())
except StoreError as error:
    print(type(error).__name__, error)
else:
    print("open")
"""


def opened_elsewhere(folder: Path, *options: str) -> str:
    command = [sys.executable, "-c", OPEN, str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
async def test_a_folder_that_the_user_may_not_write_to_is_told_of(place: Place) -> None:
    await filled(place)
    for folder in (place.path.parent, *place.path.parents[1:4]):
        folder.chmod(0o755)

    said = opened_elsewhere(place.folder, "as nobody")

    assert said.startswith("StoreError")
    assert f"this user may not; give it the right to read and write {place.path.parent}" in said


async def test_a_second_process_is_refused_and_told_who_has_it(place: Place) -> None:
    async with place.world():
        said = await asyncio.to_thread(opened_elsewhere, place.folder)

        assert said.startswith("StoreError")
        assert str(place.path) in said
        assert f"in use by process {os.getpid()}" in said
    assert await asyncio.to_thread(opened_elsewhere, place.folder) == "open"


async def test_a_second_store_of_the_same_process_is_refused_too(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world)
        before = await seen(world)
        with pytest.raises(StoreError, match=f"in use by this process \\({os.getpid()}\\) already"):
            await place.open()
        assert await seen(world) == before


async def test_a_forked_child_does_not_keep_the_lock(place: Place) -> None:
    store = await place.open()
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:  # it does nothing but wait for its end
        os.close(done)
        os.read(ready, 1)
        os._exit(0)
    await store.close()
    await (await place.open()).close()
    os.close(done)
    await asyncio.to_thread(os.waitpid, child, 0)
    os.close(ready)


async def test_a_store_whose_lock_was_taken_away_writes_nothing_more(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world)
        content = place.read()
        place.path.with_name("background_jobs.lock").unlink()
        other = SidecarStore(place.folder, clock=place.clock)
        await other.open()

        with pytest.raises(StoreUnavailable, match="replaced or deleted"):
            await plans.fire(world)
        assert place.read() == content
        await other.close()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
async def test_a_file_that_is_rewritten_keeps_its_mode(place: Place, mode: int) -> None:
    await filled(place)
    place.path.chmod(mode)
    async with place.world() as world:
        before = place.path.stat()
        await plans.fire(world)
        after = place.path.stat()

    assert stat.S_IMODE(after.st_mode) == mode
    assert after.st_ino != before.st_ino


async def test_what_is_written_beside_a_closed_file_is_closed_from_the_beginning(place: Place) -> None:
    """Also where a killed process left the same name open to everyone."""
    await filled(place)
    place.path.chmod(0o600)
    beside = place.path.with_name("background_jobs.json.tmp")
    modes: list[int] = []

    class Watched(UnsyncedFiles):
        def write(self, file: int, data: bytes | memoryview) -> int:
            modes.append(stat.S_IMODE(beside.stat().st_mode))
            return super().write(file, data)

    async with place.world(Watched()) as world:
        beside.write_text("left behind", encoding="utf-8")
        beside.chmod(0o666)
        await plans.fire(world)

    assert modes == [0o600]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_a_file_that_root_rewrites_stays_its_owner_s(place: Place) -> None:
    await filled(place)
    os.chown(place.path, 1234, 2345)
    async with place.world() as world:
        await plans.fire(world)
        there = place.path.stat()

    assert (there.st_uid, there.st_gid) == (1234, 2345)


async def test_a_link_stays_a_link_and_what_it_leads_to_is_rewritten(place: Place, tmp_path: Path) -> None:
    await filled(place)
    elsewhere = tmp_path / "elsewhere" / "schedules.json"
    elsewhere.parent.mkdir()
    place.path.rename(elsewhere)
    place.path.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    async with place.world() as world:
        await plans.fire(world)

        assert place.path.is_symlink()
        assert elsewhere.read_bytes() != before
        assert {one.name for one in elsewhere.parent.iterdir()} == {"schedules.json", "schedules.lock"}
    async with place.world() as world:
        assert len(await plans.runs(world)) == 3


async def test_two_names_of_one_document_have_one_lock(tmp_path: Path) -> None:
    place, other = Place(tmp_path / "one"), Place(tmp_path / "other")
    await filled(place)
    other.path.parent.mkdir(parents=True)
    other.path.symlink_to(place.path)
    async with place.world():
        with pytest.raises(StoreError, match="in use by this process"):
            await other.open()
    await (await other.open()).close()


async def test_a_link_that_leads_to_nothing_yet_is_filled_and_one_in_a_circle_is_told_of(place: Place) -> None:
    place.path.parent.mkdir(parents=True)
    place.path.symlink_to(place.folder / "later.json")
    async with place.world() as world:
        await plans.add(world)
    assert place.path.is_symlink()
    assert (place.folder / "later.json").is_file()

    place.path.unlink()
    place.path.symlink_to(place.path)
    with pytest.raises(StoreError, match="its links lead nowhere"):
        await place.open()


@pytest.mark.parametrize("kind", ["symbolic link", "several names", "no regular file"])
async def test_a_lock_that_leads_elsewhere_is_refused_and_overwrites_nothing(place: Place, kind: str) -> None:
    place.path.parent.mkdir(parents=True)
    lock, victim = place.path.with_suffix(".lock"), place.folder / "authorized_keys"
    victim.write_text("ssh-ed25519 AAAA", encoding="ascii")
    match kind:
        case "symbolic link":
            lock.symlink_to(victim)
        case "several names":
            lock.hardlink_to(victim)
        case _:
            os.mkfifo(lock)

    with pytest.raises(StoreError, match=rf"background_jobs\.lock is .*{kind}.*delete it"):
        await SidecarStore(place.folder).open()

    assert victim.read_text(encoding="ascii") == "ssh-ed25519 AAAA"


async def test_only_their_owner_reads_a_new_document_and_its_lock(place: Place) -> None:
    async with place.world(SystemFiles()) as world:
        await plans.add(world)

    for path in (place.path, place.path.with_suffix(".lock")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
