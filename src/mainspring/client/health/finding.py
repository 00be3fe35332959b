"""What a check has found."""

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"  # it works; whoever knows of it can decide
    FAIL = "fail"  # it does not work, or will not for long


class Finding(Struct, frozen=True):
    """One line of the report."""

    level: Level
    subject: str
    says: str
    do: str = ""
    """What to do about it."""
    code: str = ""
    """Names what was found in one word, as "no_node"; nothing for what is well."""


def ok(subject: str, says: str) -> Finding:
    return Finding(Level.OK, subject, says)


def warn(subject: str, says: str, do: str, code: str = "") -> Finding:
    return Finding(Level.WARN, subject, says, do, code)


def fail(subject: str, says: str, do: str, code: str = "") -> Finding:
    return Finding(Level.FAIL, subject, says, do, code)
