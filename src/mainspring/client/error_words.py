"""An error in one word that programs may rely on: the code of the JSON API, and the outcome in the audit log."""

from typing import Final

from mainspring import errors
from mainspring.core.outcome import Signal

WORDS: Final[tuple[tuple[type[Exception], str], ...]] = (  # the first that fits
    (errors.UnknownSchedule, "unknown_schedule"),
    (errors.UnknownTask, "unknown_task"),
    (errors.UnknownQueue, "unknown_queue"),
    (errors.UnknownNode, "unknown_node"),
    (errors.UnknownOutbox, "unknown_outbox"),
    (errors.UnknownBreaker, "unknown_breaker"),
    (errors.JobGone, "unknown_job"),
    (errors.IllegalTransition, "wrong_state"),
    (errors.NodeGone, "node_gone"),
    (errors.NoAnswer, "no_answer"),
    (errors.NoOverview, "no_overview"),
    (errors.CapabilityError, "not_granted"),
    (Signal, "not_now"),
    (errors.HostMissing, "no_host"),
    (errors.HostError, "host_failed"),
    (errors.NameTaken, "name_taken"),
    (errors.Conflict, "conflict"),
    (errors.PayloadError, "bad_arguments"),
    (errors.DeclarationError, "refused"),
    (errors.FlushFailed, "flush_failed"),
    (errors.StoreError, "store_unavailable"),
)
UNFORESEEN: Final = "internal"
"""What nobody has thought of."""
CUT_OFF: Final = "cut_off"
"""It was ended before it was known what came of it."""


def word_of(error: BaseException) -> str:
    """Say an error in a word."""
    return next((word for kind, word in WORDS if isinstance(error, kind)), UNFORESEEN)
