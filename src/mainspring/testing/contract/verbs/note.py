# ruff: noqa: S101 -- a suite of tests is built on assert
"""What running attempts have kept."""

from datetime import timedelta

from mainspring.core.job import Claim
from mainspring.core.outcome import Snoozed, Succeeded
from mainspring.stores.records import LogLine, Note, Progress
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import SECOND, World


class NoteContract(Contract):
    """`note`, but for its fences. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("note", 1)
    async def test_a_running_job_takes_notes_from_its_holder(self, world: World) -> None:
        claim = await world.running(await world.node())
        line = LogLine(at=world.now, level="INFO", message="hello")
        full = note(claim, saved=b'{"a":1}', progress=Progress(12.5, "reading"), lines=(line,))

        assert await world.store.note([full]) == (True,)
        view = await world.view(claim.job.id)
        assert (view.saved, view.progress) == (b'{"a":1}', Progress(12.5, "reading"))
        assert await world.store.log_lines(claim.job.id) == (line,)

    @obligation("note", 1)
    async def test_each_note_is_judged_for_itself(self, world: World) -> None:
        node = await world.node()
        ended, running = await world.running(node), await world.running(node)
        await world.end(ended, Succeeded())
        notes = [note(ended, saved=b"1"), note(running, saved=b"2"), Note(job=world.id(), lease=1, node=node.id)]

        assert await world.store.note(notes) == (False, True, False)
        assert (await world.view(ended.job.id)).saved is None
        assert (await world.view(running.job.id)).saved == b"2"

    @obligation("note", 1)
    async def test_a_job_that_waits_takes_no_notes(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.end(claim, Snoozed(delay=SECOND))

        assert await world.store.note([note(claim, saved=b"1")]) == (False,)
        assert (await world.view(claim.job.id)).saved is None

    @obligation("note")
    async def test_nothing_noted_has_no_answers(self, world: World) -> None:
        assert await world.store.note([]) == ()

    @obligation("note")
    async def test_what_is_left_out_of_a_note_stays(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.store.note([note(claim, saved=b"1", progress=Progress(5.0))])
        await world.store.note([note(claim, progress=Progress(6.0, "on"))])
        await world.store.note([note(claim, saved=b"2")])
        await world.store.note([note(claim)])

        view = await world.view(claim.job.id)
        assert (view.saved, view.progress) == (b"2", Progress(6.0, "on"))

    @obligation("note")
    async def test_notes_outlive_the_attempt(self, world: World) -> None:
        claim = await world.running(await world.node())
        line = LogLine(at=world.now, level="INFO", message="hello")
        await world.store.note([note(claim, saved=b"1", progress=Progress(5.0), lines=(line,))])
        await world.end(claim, Succeeded())

        view = await world.view(claim.job.id)
        assert (view.saved, view.progress) == (b"1", Progress(5.0))
        assert await world.store.log_lines(claim.job.id) == (line,)

    @obligation("note", 2)
    async def test_a_note_leaves_state_lease_and_revision_alone(self, world: World) -> None:
        claim = await world.running(await world.node())
        world.clock.advance("1s")
        await world.store.note([note(claim, saved=b"1", progress=Progress(5.0))])

        assert await world.job(claim.job.id) == claim.job
        await world.end(claim, Succeeded())

    @obligation("note", 3)
    async def test_the_last_thousand_lines_of_each_job_are_kept_in_order(self, world: World) -> None:
        node = await world.node()
        quiet, chatty = await world.running(node), await world.running(node)
        lines = tuple(
            LogLine(at=world.now + timedelta(seconds=number % 7), level="INFO", message=str(number))
            for number in range(1505)
        )
        for begin, end in ((0, 400), (400, 401), (401, 1000), (1000, 1505)):
            await world.store.note([note(chatty, lines=lines[begin:end])])
        await world.store.note([note(quiet, lines=lines[:3])])

        # In the order in which they were noted: the clock of a handler may jump.
        assert await world.store.log_lines(chatty.job.id) == lines[505:]
        assert await world.store.log_lines(quiet.job.id) == lines[:3]

    @obligation("note", 3)
    async def test_one_note_of_more_than_a_thousand_lines_leaves_the_last(self, world: World) -> None:
        claim = await world.running(await world.node())
        lines = tuple(LogLine(at=world.now, level="INFO", message=str(number)) for number in range(1200))
        await world.store.note([note(claim, lines=lines)])

        assert await world.store.log_lines(claim.job.id) == lines[200:]


def note(
    claim: Claim, *, saved: bytes | None = None, progress: Progress | None = None, lines: tuple[LogLine, ...] = ()
) -> Note:
    job = claim.job
    return Note(job=job.id, lease=job.lease, node=claim.node, saved=saved, progress=progress, lines=lines)
