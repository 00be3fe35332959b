"""A sidecar store and the memory store, one story: the same answers and the same view of everything.

Also while documents cannot be written now and then: each verb is then refused first, and done when it is asked again.
So nothing of a refused one may have happened, in memory or in the file.
"""

import random
from collections.abc import Callable
from errno import EIO, ENOSPC
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

from mainspring.errors import StoreUnavailable
from mainspring.stores.memory.store import MemoryStore
from mainspring.stores.sidecar.commit import Kind
from mainspring.testing.contract import SettableClock
from tests.sidecar.files import FaultyFiles, UnsyncedFiles
from tests.sidecar.from_moves import WithJobsOfNobodys
from tests.stores.pair import Pair
from tests.stores.test_comparison import Stores
from tests.tier import FULL

pytestmark = pytest.mark.slow

T = TypeVar("T")


class Refusing(WithJobsOfNobodys):
    """Refuses every second verb that has something to write, at one system call or another."""

    def __init__(self, folder: Path, clock: SettableClock) -> None:
        self._faults = FaultyFiles()
        self._dice = random.Random(7)  # noqa: S311 -- the same again and again
        self.refused = 0
        super().__init__(folder, clock=clock, files=self._faults)

    async def _do(self, verb: Callable[[MemoryStore], T], kind: Kind) -> T:
        if kind is Kind.LASTING and self._dice.random() < 0.5:
            before = self.path.read_bytes() if self.path.exists() else b""
            step = len(self._faults.calls) + self._dice.randrange(7)
            self._faults.fail_at = {step: self._dice.choice([EIO, ENOSPC])}
            try:
                return await super()._do(verb, kind)
            except StoreUnavailable:
                self.refused += 1
                assert (self.path.read_bytes() if self.path.exists() else b"") == before
            finally:
                self._faults.fail_at = {}
        return await super()._do(verb, kind)


class Sidecar(Stores):
    """Tells the story of a sidecar store that has no trouble."""

    def pair(self) -> Pair:
        return Pair(lambda path, clock: WithJobsOfNobodys(path.parent, clock=clock, files=UnsyncedFiles()))


class SidecarInTrouble(Stores):
    """And of one that has."""

    def pair(self) -> Pair:
        return Pair(lambda path, clock: Refusing(path.parent, clock))


TestStories = pytest.mark.timeout(600)(Sidecar.TestCase)
TestStories.settings = settings(max_examples=20 if FULL else 6, stateful_step_count=25, report_multiple_bugs=False)
TestStoriesInTrouble = pytest.mark.timeout(900)(SidecarInTrouble.TestCase)
TestStoriesInTrouble.settings = settings(
    max_examples=60 if FULL else 15, stateful_step_count=50, report_multiple_bugs=False
)
