"""What all parts of the suite have in common: the fixtures."""

from collections.abc import Iterator

import pytest

from mainspring.testing.contract.harness import Harness, SettableClock
from mainspring.testing.contract.world import World
from mainspring.testing.virtual import VirtualTime


@pytest.mark.usefixtures("virtual_time")  # this is what makes pytest run async tests, without any other plugin
class Contract:
    """The common part. A class that inherits from it defines a fixture `harness`."""

    @pytest.fixture
    def clock(self) -> SettableClock:
        """For the handles that the harness makes. The event loop's time is another, and moves nothing in a store."""
        return SettableClock()

    @pytest.fixture
    def world(self, harness: Harness, clock: SettableClock, virtual_time: VirtualTime) -> Iterator[World]:
        world = World(harness, clock)
        world.store = virtual_time.run(world.open())
        yield world
        virtual_time.run(world.close())
