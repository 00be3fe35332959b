"""What a decision costs: `decide` for each job that ends, and the copy of the job inside it.

The copy is measured against `dataclasses.replace` on a frozen dataclass with the same fields, in turns.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from msgspec.structs import asdict, replace

from mainspring.core.job import Job, JobId, NodeId, State
from mainspring.core.machine import claim, decide
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Raised, Succeeded
from mainspring.core.retry import Retry

ROUNDS, CALLS = 15, 5_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def main() -> None:
    job = Job(id=JobId(UUID(int=1)), task=Name("", "a"), state=State.READY, run_at=NOW, retry=Retry.exponential())
    held = claim(job, NodeId("n"))
    twin_class = dataclasses.make_dataclass("Twin", list(asdict(job)), frozen=True, slots=True, kw_only=True)
    twin = twin_class(**asdict(job))
    error = Raised(error=AttemptError(type="E", message="m"))
    report(
        {
            "decide, success": lambda: decide(held, Succeeded(), NOW, 0.5),
            "decide, retry": lambda: decide(held, error, NOW, 0.5),
            "copy of a job, msgspec": lambda: replace(job, attempt=1, lease=1, run_at=NOW),
            "copy of a job, dataclass": lambda: dataclasses.replace(twin, attempt=1, lease=1, run_at=NOW),
        }
    )


def report(subjects: dict[str, Callable[[], object]]) -> None:
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(ROUNDS):
        for name, call in subjects.items():
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - began) / CALLS * 1e6)
    least = min(statistics.median(took) for took in times.values())
    print(f"{'':<28}{'µs':>8}{'spread':>16}{'ratio':>8}")
    for name, took in times.items():
        median = statistics.median(took)
        print(f"{name:<28}{median:>8.2f}{f'{min(took):.2f}-{max(took):.2f}':>16}{median / least:>8.1f}")


if __name__ == "__main__":
    main()
