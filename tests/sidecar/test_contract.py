"""The contract suite, on all roles of a sidecar store.

Once with jobs that come from moves, as all do here; and, for what the suite asks about enqueueing, once more with jobs
that nobody keeps, which goes the same way through memory, journal and thread.
"""

from errno import ENOSPC
from pathlib import Path
from typing import ClassVar

import pytest

from mainspring.stores.port import Store
from mainspring.stores.sidecar import SidecarStore
from mainspring.testing.contract import Harness, LastingContract, LastingHarness, SettableClock, StoreContract
from tests.sidecar.files import FaultyFiles, UnsyncedFiles
from tests.sidecar.from_moves import FromMoves, WithJobsOfNobodys


class SidecarHarness:
    """One handle, which is all that there can be; one that was closed or has crashed is opened anew."""

    def __init__(self, store: SidecarStore) -> None:
        self._store = store

    async def open(self) -> Store:
        await self._store.open()
        return self._store

    async def crash(self, store: Store) -> None:
        """Let go of it: whatever it has answered is on the disk. The lock would go with the process."""
        await store.close()


class SidecarLastingHarness(SidecarHarness):
    """The same, for a file in any condition."""

    def __init__(self, folder: Path, clock: SettableClock) -> None:
        self._folder = folder
        self._clock = clock
        self._files = FaultyFiles()
        super().__init__(self._made())

    def _made(self) -> SidecarStore:
        return FromMoves(self._folder, clock=self._clock, files=self._files)

    def unopened(self) -> Store:
        return self._made()

    async def occupy(self) -> None:
        self._store.path.parent.mkdir()
        self._store.path.write_bytes(b"a letter to a friend\n" * 500)

    async def outgrow(self) -> None:
        self._store.path.write_bytes(b'{"version": 2, "schedules": []}')

    async def content(self) -> object:
        return self._store.path.read_bytes()

    async def obstruct(self) -> None:
        self._files.always = ENOSPC

    async def clear(self) -> None:
        self._files.always = None


PARTS = {part.__name__: part for part in StoreContract.__bases__}


class Excused:
    """Leaves out what the suite asks that has no meaning here: tests or whole parts by their names, with the reason."""

    excused: ClassVar[dict[str, str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.excused:
            tests = [one for one in dir(PARTS[name]) if one.startswith("test_")] if name in PARTS else [name]
            for test in tests:
                getattr(cls, test)  # what is left out has to be there
                setattr(cls, test, None)  # which pytest does not collect


class TestWithJobsFromMoves(Excused, StoreContract):
    excused: ClassVar = dict.fromkeys(
        (
            # These enqueue with unique keys, and a move has no answer that says which job has one.
            "test_a_store_that_has_raised_can_be_used_again",
            "test_a_job_whose_key_is_taken_is_not_made",
            "test_a_key_that_is_free_is_taken_by_the_job_of_a_slot",
            "test_unique_keys_that_are_taken_are_kept",
            # These compare with a job that no schedule has made.
            "test_a_job_comes_out_as_it_went_in",
            "test_what_is_left_out_stays_left_out",
            "test_a_delivery_brings_all_that_an_attempt_needs",
            "test_a_batch_ends_the_runs_of_those_jobs_that_have_one",
            "test_a_job_knows_whether_a_schedule_made_it",
        ),
        "done with jobs of nobody's, below",
    ) | dict.fromkeys(("EnqueueContract", "UniqueContract"), "it is about enqueue, which this store refuses")

    @pytest.fixture
    def harness(self, tmp_path: Path, clock: SettableClock) -> Harness:
        return SidecarHarness(FromMoves(tmp_path, clock=clock, files=UnsyncedFiles()))


@pytest.mark.full
class TestWithJobsOfNobodys(Excused, StoreContract):
    excused: ClassVar = {"test_a_committed_job_outlives_a_crash": "jobs of nobody's do not"}

    @pytest.fixture
    def harness(self, tmp_path: Path, clock: SettableClock) -> Harness:
        return SidecarHarness(WithJobsOfNobodys(tmp_path, clock=clock, files=UnsyncedFiles()))


class TestSidecarLasts(Excused, LastingContract):
    excused: ClassVar = {
        "test_many_may_open_a_new_store_at_once": "one process at a time",
        "test_what_was_committed_is_there_after_all_were_closed": "no node outlives its process here",
    }

    @pytest.fixture
    def harness(self, tmp_path: Path, clock: SettableClock) -> LastingHarness:
        return SidecarLastingHarness(tmp_path, clock)
