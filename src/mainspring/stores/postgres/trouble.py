"""What errors of PostgreSQL's, of its driver and of the network mean for whoever called, and what to do about them."""

from enum import Enum, auto
from typing import Final

import asyncpg

from mainspring.errors import MainspringError, StoreError, StoreUnavailable
from mainspring.stores.postgres.settings import Settings


class Kind(Enum):
    """What can be done about it."""

    AGAIN = auto()
    """Nothing was written, and the same may work at once: others were in the way."""
    LOST = auto()
    """The connection is of no use any more, or there was none; another may be."""
    FINAL = auto()
    """Trying again changes nothing."""


# https://www.postgresql.org/docs/current/errcodes-appendix.html
_AGAIN: Final = {
    "40001",  # serialization failure
    "40P01",  # deadlock
}
_LOST_CLASSES: Final = {"08"}  # connection exceptions; PgBouncer says 08P01 to nearly everything
_LOST: Final = {
    "25006",  # read-only: it was the primary, before a failover
    "25P03",  # idle in a transaction for too long, and thrown out
    "25P04",  # in a transaction for too long, and thrown out
    "26000",  # a prepared statement that is not there: see `is_shared`
    "42P05",  # a prepared statement that somebody else has made: the same
    "53300",  # too many connections
    "57P01",  # thrown out by an administrator, or a shutdown
    "57P02",  # another backend has crashed
    "57P03",  # starting up or shutting down
    "57P04",  # the database was dropped, or renamed
    "57P05",  # idle for too long, and thrown out
}
_PASSING: Final = {
    "25006": "the server takes no writes now",
    "53100": "the server's disk is full; free some space there",
    "53200": "the server is out of memory",
    "53300": "the server takes no more connections; raise its max_connections, or lower what others and this store use",
    "55P03": "somebody holds a lock for too long; look for a transaction that was left open (pg_stat_activity)",
    "57014": "the statement was cancelled, by somebody or by a timeout of the server's",
}
_PASSING_CLASSES: Final = {
    "40": "too many others write the same at the same time",
    "53": "the server is short of something; look at its log",
    "57": "the server was told to stop this; look at its log",
    "58": "the server's system does not answer as it should; look at its log",
}
_MIGRATE: Final = "the tables are not as this code expects them; run `mainspring migrate`"
_LASTING: Final = {
    "3D000": "there is no such database; create it, or correct the URL",
    "3F000": _MIGRATE,
    "42501": "the database's role may not do that; grant it what the documentation on roles says",
    "42703": _MIGRATE,
    "42883": _MIGRATE,
    "42P01": _MIGRATE,
}
_LASTING_CLASSES: Final = {
    "22": "a value cannot be kept",
    "23": "a value is not allowed there",
    "28": "the database's role or its password was refused; correct the URL, or the server's pg_hba.conf",
}


def kind(error: BaseException) -> Kind:
    """Say what can be done about an error."""
    match error:
        case asyncpg.InvalidCachedStatementError():  # the tables were changed meanwhile, the driver knows that now
            return Kind.AGAIN
        case asyncpg.PostgresError():
            state = error.sqlstate or ""
            if state in _AGAIN:
                return Kind.AGAIN
            return Kind.LOST if state in _LOST or state[:2] in _LOST_CLASSES else Kind.FINAL
        case asyncpg.ClientConfigurationError() | asyncpg.DataError() | asyncpg.UnsupportedClientFeatureError():
            return Kind.FINAL
        case asyncpg.InterfaceError() | asyncpg.InternalClientError() | OSError():
            return Kind.LOST
        case _:
            return Kind.FINAL


def is_shared(error: BaseException) -> bool:
    """Say whether the error shows that several of us got the same server connection, as behind a pooler."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in {"26000", "42P05"}


def met_a_lock(error: BaseException) -> bool:
    """Say whether an error of ours comes from a lock that somebody else held for too long."""
    cause = error.__cause__
    return isinstance(cause, asyncpg.PostgresError) and cause.sqlstate == "55P03"


def was_cut_off(error: BaseException) -> bool:
    """Say whether an error of ours comes from a statement that took longer than the server was told to let it."""
    cause = error.__cause__
    return isinstance(cause, asyncpg.PostgresError) and cause.sqlstate == "57014"


def refuses_settings(error: BaseException) -> bool:
    """Say whether a connection was refused for what it wanted set; so does PgBouncer, with what it does not know."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate == "42704" or "startup parameter" in str(error))


def translated(settings: Settings, error: Exception) -> Exception:
    """Return what to raise instead of an error of the driver's; errors of ours and of anybody else are their own."""
    match error:
        case MainspringError():
            return error
        case asyncpg.PostgresError():
            ours = _translated(settings, error)
        case asyncpg.ClientConfigurationError() | asyncpg.UnsupportedClientFeatureError():
            ours = StoreError(settings.store, f"the URL asks for what cannot be ({said(error)})")
        case asyncpg.DataError():
            ours = StoreError(settings.store, f"a value cannot be kept ({said(error)})")
        case TimeoutError():
            ours = StoreUnavailable(settings.store, f"the server does not answer ({said(error)})")
        case asyncpg.TargetServerAttributeNotMatched():
            ours = StoreUnavailable(settings.store, "no host takes writes now; the store needs the primary")
        case OSError() | asyncpg.InterfaceError() | asyncpg.InternalClientError():
            ours = StoreUnavailable(settings.store, f"the server cannot be reached ({said(error)})")
        case _:
            return error
    ours.__cause__ = error
    return ours


def said(error: BaseException) -> str:
    """Return the first line of what an error says; what comes below it may hold the user's data."""
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "it is a standby, and takes no writes"
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _translated(settings: Settings, error: asyncpg.PostgresError) -> StoreError:
    state = error.sqlstate or ""
    if advice := _LASTING.get(state) or _LASTING_CLASSES.get(state[:2]):
        return StoreError(settings.store, f"{advice} ({said(error)})")
    if advice := _PASSING.get(state) or _PASSING_CLASSES.get(state[:2]):
        return StoreUnavailable(settings.store, f"{advice} ({said(error)})")
    if kind(error) is Kind.LOST:
        return StoreUnavailable(settings.store, f"the connection was lost ({said(error)})")
    return StoreError(settings.store, said(error))
