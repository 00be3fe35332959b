"""What the demo has shown, told from what the store keeps of it. No number here is made up."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mainspring.cli.demo.fates import FATES
from mainspring.client.words import count, length
from mainspring.core.job import FINISHED, Cause, JobId, State
from mainspring.core.machine import Event
from mainspring.stores.port import Inspector
from mainspring.stores.records import AttemptView, JobFilter, JobView


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that the sentences are made from."""

    enqueued: frozenset[JobId]
    """What the demo was told to be committed."""
    jobs: Sequence[JobView]
    """What the store has in the end."""
    attempts: Mapping[JobId, Sequence[AttemptView]]

    @property
    def nothing_lost(self) -> bool:
        return self.enqueued == {one.job.id for one in self.jobs}

    def sentences(self) -> Iterator[str]:
        """Tell it, one thought each."""
        yield self._balance()
        yield from self._poison()
        yield from self._neighbours()
        yield from self._flaky()
        yield from self._later()
        yield from self._parcel()
        yield from self._march()

    def _balance(self) -> str:
        states = Counter(one.job.state for one in self.jobs)
        ended = sum(states[state] for state in FINISHED)
        parts = [f"{states[state]} {state}" for state in FINISHED if states[state]]
        text = f"{count(len(self.enqueued), 'job')} enqueued, {ended} ended"
        text += f": {', '.join(parts)}." if parts else "."
        if left := len(self.jobs) - ended:
            text += f" {left} had not ended yet."
        return text + (" None is lost." if self.nothing_lost else " The books do not balance!")

    def _poison(self) -> Iterator[str]:
        for view in self._of("poison"):
            kills = self._count([view], Event.LOST, Event.FAILED)
            if view.job.cause is Cause.POISON:
                yield f"One job killed its worker {count(kills, 'time')} with SIGKILL and was stopped: failed, poison."
            elif kills:
                yield f"One job has killed its worker {count(kills, 'time')} with SIGKILL so far."

    def _neighbours(self) -> Iterator[str]:
        hit = [view for view in self.jobs if str(view.job.task) != "poison" and self._count([view], Event.LOST)]
        if not hit:
            return
        well = sum(view.job.state in {State.SUCCEEDED, State.CANCELLED} for view in hit)
        fate = "ended well" if well == len(hit) else f"{well} of them {_have(well)} ended well"
        yield f"{count(len(hit), 'job')} that ran beside it went to another worker and {fate}."

    def _flaky(self) -> Iterator[str]:
        jobs = self._of("flaky")
        if failures := self._count(jobs, Event.WILL_RETRY):
            good = sum(view.job.state is State.SUCCEEDED for view in jobs)
            so_far = "all succeeded in the end" if good == len(jobs) else f"{good} {_have(good)} succeeded so far"
            yield f"{count(len(jobs), 'job')} failed {count(failures, 'time')} between them; {so_far}."

    def _later(self) -> Iterator[str]:
        late = [(one.started_at - one.job.run_at).total_seconds() for one in self._of("later") if one.started_at]
        if late:
            yield f"{count(len(late), 'delayed job')} started at most {1000 * max(late):.0f} ms after their time."

    def _parcel(self) -> Iterator[str]:
        jobs = self._of("parcel")
        if snoozes := self._count(jobs, Event.SNOOZED):
            yield f"One snoozed {count(snoozes, 'time')}, which used up none of its attempts."

    def _march(self) -> Iterator[str]:
        for view in self._of("march"):
            asked, ended = view.job.cancel_requested_at, view.job.finished_at
            if asked and ended:
                yield f"One was cancelled while it ran and stopped {length(ended - asked)} later."

    def _of(self, task: str) -> list[JobView]:
        return [view for view in self.jobs if str(view.job.task) == task]

    def _count(self, jobs: Sequence[JobView], *events: Event) -> int:
        return sum(attempt.event in events for view in jobs for attempt in self.attempts[view.job.id])


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


async def read_story(store: Inspector, enqueued: frozenset[JobId]) -> Story:
    """Read everything that is in the store and belongs to the story."""
    jobs: list[JobView] = []
    after: JobId | None = None
    while True:
        page = await store.list_jobs(JobFilter(), after=after)
        jobs += [view for view in page.jobs if str(view.job.task) in FATES]
        after = page.after
        if after is None:
            break
    attempts = {view.job.id: await store.attempts(view.job.id) for view in jobs}
    return Story(enqueued=enqueued, jobs=jobs, attempts=attempts)
