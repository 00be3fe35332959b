"""Which store a URL means. Read when an app is made, so that a wrong one fails there; loaded when it is first opened.

sqlite:///jobs.db                 beside the program, where it was started
sqlite:////var/lib/jobs.db        anywhere
sqlite:///~/jobs.db               in the user's home
sqlite:///jobs.db?durable=false   faster, and a power cut may take back what was committed last
memory://                         within this app, for tests
sidecar:///data                   schedules alone, in data/_system/background_jobs.json, without a database; read as with
sidecar:////var/lib/shop          sqlite: beside the program with three slashes, anywhere with four, or in ~
postgresql://user@host/database   in PostgreSQL, as libpq reads it: several hosts, passwords from a file and so on; and
    ?schema=jobs                  in another schema than "mainspring"
    &connections=5                that each event loop may open, and again for ctx.transaction; one more listens
    &timeout=5s&patience=10s      for one statement, and for trying again before StoreUnavailable
    &listen=false                 without notifications: a node looks once a second
    &listen=host:port             for them past a pooler, on a server of the same database
    &notify=false                 without NOTIFY in transactions of the user's own, for two-phase commits
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from mainspring.clock import Clock
from mainspring.duration import seconds
from mainspring.errors import BadDuration, DeclarationError
from mainspring.stores.port import Store

VARIABLE: Final = "MAINSPRING_URL"
DEFAULT: Final = "sqlite:///mainspring.db"

_SUPPORTED: Final = (
    'supported are "sqlite:///jobs.db", "postgresql://user@host/database", "sidecar:///data" and "memory://"'
)
_POSTGRES: Final = frozenset({"schema", "connections", "timeout", "patience", "listen", "notify"})
"""Options of ours; all others are libpq's."""
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PORT: Final = re.compile(r":([^:\]]*)$")
_QUOTING: Final = "signs like / ? # @ [ ] in a user or password are written %2F, %3F, %23, %40, %5B, %5D"
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class Source:
    """Where an app's store comes from."""

    name: str
    make: Callable[[Clock], Store]
    """Loads the store's module, and returns a store that is not open yet."""
    again: bool = True
    """Whether to make a new one for every opening and every process; else the first one is opened again."""


def source_of(given: str | Store | None) -> Source:
    """Read what an app was given: a URL, a store, or nothing."""
    if given is not None and not isinstance(given, str):
        store = _checked(given)
        return Source(type(store).__name__, lambda _: store, again=False)
    if given is not None:
        return _read(given, "store URL")
    return _read(os.environ.get(VARIABLE) or DEFAULT, f"${VARIABLE}")


def _checked(given: Store) -> Store:
    if all(callable(getattr(given, verb, None)) for verb in ("open", "enqueue", "claim", "settle")):
        return given
    is_path = isinstance(given, os.PathLike) and _is_plain(str(given))
    advice = f'write Mainspring("sqlite:///{given}")' if is_path else f"pass a URL as text; {_SUPPORTED}"
    # Named by its type only: the repr of a URL object has the password in it.
    raise DeclarationError("store URL", f"must be a URL or a store, not a {type(given).__name__}; {advice}")


def _read(url: str, subject: str) -> Source:
    scheme, there, rest = url.partition("://")
    # What is not understood is not repeated: there may be a password in it.
    match scheme.lower():
        case "memory" if there:
            DeclarationError.unless(subject, [(not rest, "memory:// takes no name: each app has a store of its own")])
            return Source("memory", _memory, again=False)
        case "sqlite" if there:
            return _sqlite(rest, subject)
        case "sidecar" if there:
            return _sidecar(rest, subject)
        case "postgresql" | "postgres" if there:
            return _postgres(url, subject)
        case "postgresql+asyncpg" | "postgresql+psycopg" | "postgresql+psycopg2" if there:
            raise DeclarationError(subject, f'it names a driver; write "postgresql://" instead of "{scheme}://"')
        case _ if there:
            named = f"{scheme}://" if _SCHEME.fullmatch(scheme) else "this scheme"
            raise DeclarationError(subject, f"no store is known for {named}; {_SUPPORTED}")
        case _ if url.startswith("postgres") or "=" in url:
            raise DeclarationError(subject, f'it has no scheme; write "postgresql://user@host/database"; {_SUPPORTED}')
        case _:
            file = url if _is_plain(url) else "jobs.db"
            raise DeclarationError(subject, f'it has no scheme; a file is written "sqlite:///{file}"; {_SUPPORTED}')


def _is_plain(path: str) -> bool:
    """Whether a path can be repeated in an error: nothing in it separates a password."""
    return not set(path) & set(":@=?#")


def _sqlite(rest: str, subject: str) -> Source:
    location, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    DeclarationError.unless(subject, _requirements(location, options))
    path = Path(unquote(location.removeprefix("/"))).expanduser().absolute()  # a later chdir must not change the file
    durable = _WORDS[options.get("durable", "true").lower()]

    def make(clock: Clock) -> Store:
        from mainspring.stores.sqlite import SqliteStore  # noqa: PLC0415 - only programs that use it load SQLite

        return SqliteStore(path, clock=clock, durable=durable)

    return Source(f"sqlite {path}", make)


def _sidecar(rest: str, subject: str) -> Source:
    name = rest.lstrip("/") if _is_plain(rest) else "data"
    requirements = (
        (
            rest.startswith("/") or not name,
            f'two slashes begin a host, and a folder has none; write "sidecar:///{name}", or four slashes for /{name}',
        ),
        (bool(name), 'it names no folder; write "sidecar:///data"'),
        ("?" not in rest, "it takes no options"),
    )
    DeclarationError.unless(subject, requirements)
    folder = Path(unquote(rest.removeprefix("/"))).expanduser().absolute()

    def make(clock: Clock) -> Store:
        from mainspring.stores.sidecar import SidecarStore  # noqa: PLC0415 - as above

        return SidecarStore(folder, clock=clock)

    return Source(f"sidecar {folder}", make)


def _requirements(location: str, options: dict[str, str]) -> Iterator[tuple[bool, str]]:
    name = location.lstrip("/")
    file = name if _is_plain(name) else "jobs.db"
    yield (
        location.startswith("/") or not name,
        f'two slashes begin a host, and SQLite has none; write "sqlite:///{file}", or four slashes for /{file}',
    )
    yield bool(name), 'it names no file; write "sqlite:///jobs.db"'
    yield name != ":memory:", 'for a store in memory write "memory://"'
    yield not name.endswith("/"), "it names a folder; add the name of the file"
    for option, value in options.items():
        yield option == "durable", f"there is no option {option!r}; there is durable=true or durable=false"
        yield option != "durable" or value.lower() in _WORDS, f"durable is true or false, not {value!r}"


def _postgres(url: str, subject: str) -> Source:
    place, _, query = url.partition("?")
    try:
        parts = urlsplit(place)
    except ValueError:  # it quotes parts of the URL
        raise DeclarationError(subject, f"cannot be parsed; {_QUOTING}") from None
    given = parse_qsl(query, keep_blank_values=True)
    options = {name: value for name, value in given if name in _POSTGRES}
    theirs = urlencode([(name, value) for name, value in given if name not in _POSTGRES])
    where = parts.netloc.rpartition("@")[2]
    DeclarationError.unless(subject, _postgres_requirements(where, place, parts.path + query, options))
    dsn = f"{place}?{theirs}" if theirs else place
    schema = options.get("schema", "mainspring")

    def make(clock: Clock) -> Store:
        try:
            from mainspring.stores.postgres import PostgresStore  # noqa: PLC0415 - only programs that use it load asyncpg
        except ImportError as error:
            if error.name != "asyncpg":
                raise
            raise DeclarationError(
                subject, "PostgreSQL needs asyncpg: install Mainspring with the extra 'postgres'"
            ) from error
        listen = options.get("listen", "true")
        return PostgresStore(
            dsn,
            clock=clock,
            schema=schema,
            connections=int(options.get("connections", "5")),
            timeout=options.get("timeout", "5s"),
            patience=options.get("patience", "10s"),
            listen=_WORDS.get(listen.lower(), True),
            listen_dsn=None if listen.lower() in _WORDS else _elsewhere(dsn, listen),
            notify=_WORDS[options.get("notify", "true").lower()],
        )

    name = f"postgresql {where}{parts.path}"
    return Source(name if schema == "mainspring" else f"{name} schema {schema}", make)


def _elsewhere(dsn: str, host: str) -> str:
    """Return the same DSN for another host and port."""
    parts = urlsplit(dsn)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{host}"))


def _postgres_requirements(where: str, place: str, behind: str, options: dict[str, str]) -> Iterator[tuple[bool, str]]:
    # A password with such a sign ends up in the host, the database or the options, and would be printed as one.
    yield "@" not in behind and "#" not in place, _QUOTING
    ports = (_PORT.search(host) for host in where.split(","))
    yield all(port is None or port[1].isdecimal() for port in ports), "a port is a number"
    schema = options.get("schema", "mainspring")
    yield _SCHEMA.fullmatch(schema) is not None, "a schema's name is made of up to 63 letters, digits and _"
    yield schema != "public", 'the schema "public" is everybody\'s; give Mainspring one of its own'
    count = options.get("connections", "5")
    yield count.isdecimal() and int(count) > 1, f"connections are at least 2, not {count!r}"
    notify = options.get("notify", "true")
    yield notify.lower() in _WORDS, f"notify is true or false, not {notify!r}"
    for name in ("timeout", "patience"):
        if name in options:
            yield _is_duration(options[name]), f"{name} is a length of time like 5s, not {options[name]!r}"


def _is_duration(text: str) -> bool:
    try:
        return seconds(text) > 0
    except BadDuration:
        return False


def _memory(clock: Clock) -> Store:
    from mainspring.stores.memory import MemoryStore  # noqa: PLC0415 - as above

    return MemoryStore(clock=clock)
