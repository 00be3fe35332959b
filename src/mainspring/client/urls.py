"""Which store a URL means. Read when an app is made, so that a wrong one fails there; loaded when it is first opened.

sqlite:///jobs.db                 beside the program, where it was started
sqlite:////var/lib/jobs.db        anywhere
sqlite:///~/jobs.db               in the user's home
sqlite:///jobs.db?durable=false   faster, and a power cut may take back what was committed last
memory://                         within this app, for tests
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from mainspring.clock import Clock
from mainspring.errors import DeclarationError
from mainspring.stores.port import Store

VARIABLE: Final = "MAINSPRING_URL"
DEFAULT: Final = "sqlite:///mainspring.db"

_SUPPORTED: Final = 'supported are "sqlite:///jobs.db", "sqlite:////absolute/jobs.db" and "memory://"'
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
    advice = f'write Mainspring("sqlite:///{given}")' if isinstance(given, os.PathLike) else _SUPPORTED
    raise DeclarationError("store URL", f"neither a URL nor a store: {given!r}; {advice}")


def _read(url: str, subject: str) -> Source:
    scheme, there, rest = url.partition("://")
    # What is not understood is not repeated: there may be a password in it.
    match scheme.lower():
        case "memory" if there:
            DeclarationError.unless(subject, [(not rest, "memory:// takes no name: each app has a store of its own")])
            return Source("memory", _memory, again=False)
        case "sqlite" if there:
            return _sqlite(rest, subject)
        case "postgresql" | "postgres" if there:
            raise DeclarationError(subject, f"PostgreSQL is not in this version; {_SUPPORTED}")
        case _ if there:
            raise DeclarationError(subject, f"no store is known for {scheme}://; {_SUPPORTED}")
        case _:
            raise DeclarationError(subject, f'it has no scheme; a file is written "sqlite:///{url}"; {_SUPPORTED}')


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


def _requirements(location: str, options: dict[str, str]) -> Iterator[tuple[bool, str]]:
    name = location.lstrip("/")
    yield (
        location.startswith("/") or not name,
        f'two slashes begin a host, and SQLite has none; write "sqlite:///{name}", or four slashes for /{name}',
    )
    yield bool(name), 'it names no file; write "sqlite:///jobs.db"'
    yield name != ":memory:", 'for a store in memory write "memory://"'
    yield not name.endswith("/"), "it names a folder; add the name of the file"
    for option, value in options.items():
        yield option == "durable", f"there is no option {option!r}; there is durable=true or durable=false"
        yield option != "durable" or value.lower() in _WORDS, f"durable is true or false, not {value!r}"


def _memory(clock: Clock) -> Store:
    from mainspring.stores.memory import MemoryStore  # noqa: PLC0415 - as above

    return MemoryStore(clock=clock)
