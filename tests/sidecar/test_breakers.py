"""Breakers in the document: where they stand outlives the process, and a write that fails has not moved them."""

from errno import ENOSPC
from pathlib import Path

import pytest

from mainspring.core.breaker import Breaker, Phase
from mainspring.core.names import Name
from mainspring.errors import StoreUnavailable
from tests.sidecar.files import FaultyFiles
from tests.sidecar.opened import Place

MAIL = Name("post", "mail")


@pytest.mark.usefixtures("virtual_time")
async def test_a_breaker_is_as_open_after_a_restart_as_before(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.world() as world:
        await world.store.declare_breakers({MAIL: Breaker(threshold=3, cooldown="1m")})
        await world.store.force_breaker(MAIL, Phase.OPEN, by="someone", reason="they are down")
        before = await world.store.breakers([MAIL]), await world.store.breaker_changes(MAIL)
    async with place.world() as world:
        assert (await world.store.breakers([MAIL]), await world.store.breaker_changes(MAIL)) == before
        assert before[0][0].circuit.phase is Phase.OPEN
        await world.store.declare_breakers({MAIL: None})
    async with place.world() as world:
        assert await world.store.breakers([MAIL]) == ()
        await world.store.declare_breakers({MAIL: Breaker()})
        (again,) = await world.store.breakers([MAIL])
    assert again.circuit.term > before[0][0].circuit.term, "a term never falls"


@pytest.mark.usefixtures("virtual_time")
async def test_a_change_that_could_not_be_written_has_not_been(tmp_path: Path) -> None:
    place, files = Place(tmp_path), FaultyFiles()
    async with place.world(files) as world:
        await world.store.declare_breakers({MAIL: Breaker()})
        before = await world.store.breakers([MAIL]), await world.store.breaker_changes(MAIL), place.read()
        files.always = ENOSPC
        with pytest.raises(StoreUnavailable):
            await world.store.force_breaker(MAIL, Phase.OPEN)
        files.always = None
        assert (await world.store.breakers([MAIL]), await world.store.breaker_changes(MAIL), place.read()) == before
