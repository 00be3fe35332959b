"""Why a job failed, in a sentence for each cause."""

from typing import assert_never

from mainspring.client.words import count
from mainspring.core.job import Cause, Job


def why(job: Job) -> str | None:
    """Say why a job failed; None of one that did not."""
    match job.cause:
        case None:
            return None
        case Cause.EXHAUSTED:
            return f"It raised an error or took too long in {_last(job)}."
        case Cause.REFUSED:
            return "Its error is not worth another attempt: so says its retry policy, or the handler itself."
        case Cause.LOST:
            return f"It was running when its worker died, in {_last(job)}."
        case Cause.POISON:
            row = f", {count(job.losses, 'time')} in a row" if job.losses > 1 else ""
            return f"It was running when its worker died{row}, and is not tried again by itself."
        case Cause.EXPIRED:
            return "It had not started by the time until which it was wanted."
        case Cause.UNKNOWN_TASK:
            return "No worker that runs has known its task for the whole grace time: start one that does, and retry it."
        case Cause.UNREADABLE:
            return "Its row in the store cannot be decoded: it was changed by hand, or written by a newer version."
        case cause:
            assert_never(cause)


def _last(job: Job) -> str:
    allowed = job.attempts_allowed
    return "its only attempt" if allowed == 1 else f"the last of its {allowed} attempts"
