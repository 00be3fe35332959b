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
    for kind in KINDS:
        if isinstance(error, kind.raised):
            number = getattr(error, "code", None)
            return kind.status, Error(
                code=kind.code,
                message=short(str(error)),
                hint=kind.hint or UNSET,
                number=number if isinstance(number, int) else UNSET,
            )
    id_ = uuid4().hex[:12]
    log.error("request failed, %s", id_, exc_info=error)
    return 500, Error(code="internal", message="something went wrong here", hint=f"the log has it as {id_}")
