"""What the rules cost each job: deciding what becomes of it, copying it, writing and reading its arguments.

Each is measured in turns with what it stands against: the copy with `dataclasses.replace` on a frozen dataclass of the
same fields, the arguments with msgspec alone, which checks only when it reads.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import msgspec
from msgspec.structs import asdict, replace

from mainspring.core.backoff import Backoff
from mainspring.core.codec import Arguments
from mainspring.core.job import Job, JobId, NodeId, State
from mainspring.core.machine import claim, decide
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Raised, Succeeded

ROUNDS, CALLS = 15, 5_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Nine(msgspec.Struct):
    count: int
    name: str
    price: float
    paid: bool
    due: datetime
    customer: UUID
    total: Decimal
    note: str | None
    lines: list[int]


def task(  # noqa: PLR0917 - nine are measured
    count: int,
    name: str,
    price: float,
    paid: bool,
    due: datetime,
    customer: UUID,
    total: Decimal,
    note: str | None,
    lines: list[int],
) -> None: ...


def main() -> None:
    print(f"{'':<32}{'µs':>8}{'spread':>16}{'ratio':>8}")
    decisions()
    copies()
    arguments()


def decisions() -> None:
    held = claim(a_job(), NodeId("n"), 0)
    error = Raised(error=AttemptError(type="E", message="m"))
    report(
        {
            "decide, success": lambda: decide(held, Succeeded(), NOW, 0.5),
            "decide, retry": lambda: decide(held, error, NOW, 0.5),
        }
    )


def copies() -> None:
    job = a_job()
    twin = dataclasses.make_dataclass("Twin", list(asdict(job)), frozen=True, slots=True, kw_only=True)(**asdict(job))
    report(
        {
            "copy of a job": lambda: replace(job, attempt=1, lease=1, run_at=NOW),
            "copy of a job, dataclass": lambda: dataclasses.replace(twin, attempt=1, lease=1, run_at=NOW),
        }
    )


def arguments() -> None:
    args = (7, "tea", 2.5, True, NOW, UUID(int=7), Decimal("1.50"), None, [1, 2, 3])
    codec, bare = Arguments.of(task, subject="task"), Nine(*args)
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Nine)
    payload, raw = codec.encode(args, {}), encoder.encode(bare)
    report(
        {
            "write 9 arguments, msgspec alone": lambda: encoder.encode(bare),
            "write 9 arguments": lambda: codec.encode(args, {}),
        }
    )
    report(
        {
            "read 9 arguments, msgspec alone": lambda: decoder.decode(raw),
            "read 9 arguments": lambda: codec.decode(payload),
        }
    )


def a_job() -> Job:
    return Job(
        id=JobId(UUID(int=1)),
        task=Name("", "a"),
        state=State.READY,
        run_at=NOW,
        backoff=Backoff.exponential(),
        max_attempts=6,
    )


def report(subjects: dict[str, Callable[[], object]]) -> None:
    """Measure in turns; the ratio is to the first."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(ROUNDS):
        for name, call in subjects.items():
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - began) / CALLS * 1e6)
    medians = {name: statistics.median(took) for name, took in times.items()}
    base = next(iter(medians.values()))
    for name, took in times.items():
        spread = f"{min(took):.2f}-{max(took):.2f}"
        print(f"{name:<32}{medians[name]:>8.2f}{spread:>16}{medians[name] / base:>8.1f}")


if __name__ == "__main__":
    main()
