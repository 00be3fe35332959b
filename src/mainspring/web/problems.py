"""What goes wrong, in one shape: `{"error": {"code", "message", "hint"?, "number"?}}`.

`code` is a word that programs may rely on, `message` a sentence for people, `hint` what to do, and `number` the code that
errors of plugins, hosts and the control object have. Nothing in it says how the inside looks: what nobody has thought of
is told by an id, under which the log has the whole.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import uuid4

from msgspec import UNSET, Struct, UnsetType

from mainspring import errors
from mainspring.client.plain import text
from mainspring.core.outcome import Signal

log = logging.getLogger("mainspring.web")

LONGEST: Final = 2000
"""Characters of a message."""


class Error(Struct, frozen=True, kw_only=True):
    """What is wrong."""

    code: str
    message: str
    hint: str | UnsetType = UNSET
    number: int | UnsetType = UNSET


class Answer(Struct, frozen=True):
    """The body of every answer that is no success."""

    error: Error


class Problem(Exception):
    """Ends a request with an error."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.error = Error(code=code, message=short(message), hint=hint or UNSET)


class Kind(NamedTuple):
    """How errors of a class are told."""

    raised: type[Exception]
    status: int
    code: str
    hint: str = ""


KINDS: Final = (  # the first that fits
    Kind(errors.UnknownSchedule, 404, "unknown_schedule"),
    Kind(errors.UnknownTask, 404, "unknown_task"),
    Kind(errors.UnknownQueue, 404, "unknown_queue"),
    Kind(errors.UnknownNode, 404, "unknown_node"),
    Kind(errors.UnknownOutbox, 404, "unknown_outbox"),
    Kind(errors.UnknownBreaker, 404, "unknown_breaker"),
    Kind(errors.JobGone, 404, "unknown_job"),
    Kind(errors.IllegalTransition, 409, "wrong_state"),
    Kind(errors.NodeGone, 409, "node_gone", "it has ended, or was declared dead"),
    Kind(errors.NoAnswer, 409, "no_answer", "…/nodes/show has the answer once it is there"),
    Kind(errors.NoOverview, 409, "no_overview", "SQLite, PostgreSQL and memory stores play that role"),
    Kind(errors.CapabilityError, 403, "not_granted"),
    Kind(Signal, 409, "not_now", "the program has put it off"),
    Kind(errors.HostMissing, 409, "no_host", "the program offers one with app.host.offer(…)"),
    Kind(errors.HostError, 422, "host_failed"),
    Kind(errors.NameTaken, 409, "name_taken"),
    Kind(errors.Conflict, 409, "conflict"),
    Kind(errors.PayloadError, 422, "bad_arguments"),
    Kind(errors.DeclarationError, 422, "refused"),
    Kind(errors.FlushFailed, 503, "flush_failed", "it is committed all the same"),
    Kind(errors.StoreError, 503, "store_unavailable", "the same may work later"),
)


def short(message: str) -> str:
    """Keep of a message what an answer can carry: some are made from what was sent, or of what a program said."""
    return text(message[:LONGEST])


def told(error: Exception) -> tuple[int, Error]:
    """Say an error; one that nobody has thought of is logged, and told by its id only."""
    if isinstance(error, Problem):
        return error.status, error.error
    for kind in KINDS:
        if isinstance(error, kind.raised):
            number = getattr(error, "code", None)
            return kind.status, Error(
                code=kind.code,
                message=short(_words(error)),
                hint=kind.hint or UNSET,
                number=number if isinstance(number, int) else UNSET,
            )
    id_ = uuid4().hex[:12]
    log.error("request failed, %s", id_, exc_info=error)
    return 500, Error(code="internal", message="something went wrong here", hint=f"the log has it as {id_}")


def _words(error: Exception) -> str:
    """Say an error without what it may have of arguments that are not shown: a unique key is made of them."""
    return f"its unique key is taken by job {error.job}" if isinstance(error, errors.Conflict) else str(error)
