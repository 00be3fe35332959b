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
from mainspring.client.error_words import UNFORESEEN, word_of
from mainspring.client.plain import text

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
    """How errors of a code are told."""

    status: int
    hint: str = ""


KINDS: Final = {
    "unknown_schedule": Kind(404),
    "unknown_task": Kind(404),
    "unknown_queue": Kind(404),
    "unknown_node": Kind(404),
    "unknown_outbox": Kind(404),
    "unknown_breaker": Kind(404),
    "unknown_job": Kind(404),
    "wrong_state": Kind(409),
    "node_gone": Kind(409, "it has ended, or was declared dead"),
    "no_answer": Kind(409, "…/nodes/show has the answer once it is there"),
    "no_overview": Kind(409, "SQLite, PostgreSQL and memory stores play that role"),
    "not_granted": Kind(403),
    "not_now": Kind(409, "the program has put it off"),
    "no_host": Kind(409, "the program offers one with app.host.offer(…)"),
    "host_failed": Kind(422),
    "name_taken": Kind(409),
    "conflict": Kind(409),
    "bad_arguments": Kind(422),
    "refused": Kind(422),
    "flush_failed": Kind(503, "it is committed all the same"),
    "store_unavailable": Kind(503, "the same may work later"),
}
"""Every code that `client.error_words` has for an error."""


def short(message: str) -> str:
    """Keep of a message what an answer can carry: some are made from what was sent, or of what a program said."""
    return text(message[:LONGEST])


def told(error: Exception) -> tuple[int, Error]:
    """Say an error; one that nobody has thought of is logged, and told by its id only."""
    if isinstance(error, Problem):
        return error.status, error.error
    code = word_of(error)
    if kind := KINDS.get(code):
        number = getattr(error, "code", None)
        return kind.status, Error(
            code=code,
            message=short(_words(error)),
            hint=kind.hint or UNSET,
            number=number if isinstance(number, int) else UNSET,
        )
    id_ = uuid4().hex[:12]
    log.error("request failed, %s", id_, exc_info=error)
    return 500, Error(code=UNFORESEEN, message="something went wrong here", hint=f"the log has it as {id_}")


def _words(error: Exception) -> str:
    """Say an error without what it may have of arguments that are not shown: a unique key is made of them."""
    return f"its unique key is taken by job {error.job}" if isinstance(error, errors.Conflict) else str(error)
