"""What requests and answers of several groups are made of."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from mainspring.core.job import JobId
from mainspring.core.names import Name

_KEPT: Final = "^[^\\x00]*$"
"""PostgreSQL keeps no zero bytes in texts."""

QName = Annotated[str, Meta(min_length=1, max_length=511, pattern=_KEPT, description="namespace:local, or local")]
Text = Annotated[str, Meta(min_length=1, max_length=1000, pattern=_KEPT)]
Reason = Annotated[str, Meta(max_length=1000, pattern=_KEPT, description="why, for whoever wonders later")]
Page = Annotated[int, Meta(ge=1, le=200, description="at most so many")]


class Made(Struct, frozen=True, kw_only=True):
    """A job that was made."""

    id: JobId
    task: Name | None
    fresh: bool | None
    """False: it was there before, and has the same unique key."""


class Changed(Struct, frozen=True, kw_only=True):
    """What became of it."""

    name: str
    changed: bool
    problem: str | None = None


class Named(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing, by its name."""

    name: QName


class NamedWithReason(Named, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing, and why it is changed."""

    reason: Reason = ""
