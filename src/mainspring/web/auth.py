"""Who asks, and what they may do.

A way to tell is a function of the connection that returns an `Identity`, or None for somebody unknown: the program's own,
or one of the two here. Secrets are compared by their digests, in a time that does not depend on where they differ.
"""

import base64
import hmac
import logging
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from starlette.requests import HTTPConnection

from mainspring.errors import DeclarationError
from mainspring.web.guesses import Guesses

log = logging.getLogger("mainspring.web")

SHORTEST_PASSWORD: Final = 8
SHORTEST_TOKEN: Final = 20
"""Characters. Tokens are drawn and not thought of: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`."""


class Permission(StrEnum):
    """What somebody may do. Those that look come first; what belongs together is one."""

    OVERVIEW_LOOK = "overview.look"
    JOBS_LOOK = "jobs.look"
    JOBS_RETRY = "jobs.retry"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_RUN_NOW = "jobs.run_now"
    JOBS_DELETE = "jobs.delete"
    JOBS_ENQUEUE = "jobs.enqueue"  # also clone
    QUEUES_LOOK = "queues.look"
    QUEUES_PAUSE = "queues.pause"  # and resume
    QUEUES_LIMIT = "queues.limit"
    SCHEDULES_LOOK = "schedules.look"
    SCHEDULES_RUN = "schedules.run"
    SCHEDULES_PAUSE = "schedules.pause"  # and resume
    SCHEDULES_BACKFILL = "schedules.backfill"
    NODES_LOOK = "nodes.look"
    NODES_ORDER = "nodes.order"  # quiet, resume, stop, concurrency
    NODES_STACKS = "nodes.stacks"
    SERVICES_LOOK = "services.look"
    OUTBOXES_LOOK = "outboxes.look"
    OUTBOXES_REPLAY = "outboxes.replay"
    OUTBOXES_DISCARD = "outboxes.discard"
    BREAKERS_LOOK = "breakers.look"
    BREAKERS_FORCE = "breakers.force"  # open, close, reset
    PLUGINS_LOOK = "plugins.look"
    AUDIT_LOOK = "audit.look"
    CONTROL_LIST = "control.list"
    CONTROL_ADD = "control.add"
    CONTROL_CANCEL = "control.cancel"
    CONTROL_RUN = "control.run"
    CONTROL_SUBMIT = "control.submit"
    CONTROL_ITERATE = "control.iterate"
    CONTROL_FLUSH = "control.flush"


_ADMIN: Final = frozenset(
    {
        Permission.JOBS_DELETE,
        Permission.JOBS_ENQUEUE,
        Permission.OUTBOXES_DISCARD,
        Permission.CONTROL_ADD,
        Permission.CONTROL_CANCEL,
        Permission.CONTROL_SUBMIT,
        Permission.CONTROL_ITERATE,
    }
)
_LOOK: Final = frozenset(
    one for one in Permission if one.endswith((".look", ".list")) and one is not Permission.AUDIT_LOOK
)

ROLES: Final[Mapping[str, frozenset[Permission]]] = {
    "metrics": frozenset({Permission.OVERVIEW_LOOK}),
    "viewer": _LOOK,
    "operator": frozenset(Permission) - _ADMIN,
    "admin": frozenset(Permission),
}
"""Metrics is for scrapers: numbers, and names of queues and tasks. Viewers read; operators use predefined actions, such as retry, pause and limit; admins also enqueue and delete."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who is known, and what they may do."""

    name: str
    permissions: frozenset[Permission]

    @classmethod
    def of(cls, name: str, *roles: str) -> "Identity":
        """Give somebody roles: `Identity.of("anna", "operator")`."""
        unknown = [role for role in roles if role not in ROLES]
        DeclarationError.unless(
            f"identity {name!r}",
            [
                (bool(name.strip()), "a name is needed, for the log"),
                (bool(roles), "a role is needed"),
                (not unknown, f"a role is one of {', '.join(ROLES)}, not {', '.join(unknown)}"),
            ],
        )
        return cls(name, frozenset().union(*(ROLES[role] for role in roles)))


Auth: TypeAlias = Callable[[HTTPConnection], Awaitable[Identity | None] | Identity | None]
"""Tells who asks; None: nobody that is known."""


class Password:
    """One name and one password, by HTTP Basic: `Password(os.environ["ADMIN_PASSWORD"])`.

    Ten wrong ones in a minute are looked at from one address, and no more.
    """

    challenge: Final = 'Basic realm="mainspring", charset="UTF-8"'

    def __init__(self, password: str, *, name: str = "admin", role: str = "admin") -> None:
        DeclarationError.unless(
            "Password",
            [
                (len(password) >= SHORTEST_PASSWORD, f"too short; use {SHORTEST_PASSWORD} characters or more"),
                (":" not in name, "HTTP Basic has no names with a colon"),
            ],
        )
        self._identity: Final = Identity.of(name, role)
        self._digest: Final = _digest(f"{name}:{password}")
        self.guesses = Guesses()

    def __call__(self, connection: HTTPConnection) -> Identity | None:
        said = _credentials(connection, "basic")
        if not said:
            return None
        given = _digest(_basic(said))
        self.guesses.check(connection, given)
        if hmac.compare_digest(given, self._digest):
            return self._identity
        self.guesses.was_wrong(connection, given)
        return None


class TokenFile:
    """Tokens in a file, by `Authorization: Bearer`: a line is `NAME ROLE TOKEN`, or `NAME ROLE sha256:DIGEST`.

    Read again when it has changed, so that a line that is taken out no longer counts. If it cannot be read then, nobody
    is let in until it can.
    """

    challenge: Final = "Bearer"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path: Final = Path(path)
        self._mark, self._keys = self._read()
        self._mode = -1
        self._warn_of_readers()
        self.guesses = Guesses()

    def __call__(self, connection: HTTPConnection) -> Identity | None:
        self._look()
        token = _credentials(connection, "bearer")
        if not token:  # whatever the file says: the digest of nothing is one, too
            return None
        given = _digest(token)
        self.guesses.check(connection, given)
        found: Identity | None = None
        for key in self._keys:  # all of them: how long it takes does not tell which
            if hmac.compare_digest(key.digest, given):
                found = key.identity
        if found is None:
            self.guesses.was_wrong(connection, given)
        return found

    def _warn_of_readers(self) -> None:
        """Tell that others can read tokens. No more than that: what containers are handed is often open to all in them."""
        mode = stat.S_IMODE(self._path.stat().st_mode)
        if mode == self._mode:
            return
        self._mode = mode
        if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH) and any(key.is_plain for key in self._keys):
            others = "everyone on this machine" if mode & stat.S_IROTH else "its group"
            advice = "chmod 600 it, or write sha256: and the digest in place of each token"
            log.warning("%s can read the tokens in %s, mode %o: %s", others, self._path, mode, advice)

    def _look(self) -> None:
        try:
            if _mark(self._path) != self._mark:
                self._mark, self._keys = self._read()
                self._warn_of_readers()
        except (DeclarationError, OSError) as error:
            if self._keys or self._mark:
                log.error("nobody is let in by tokens: %s", error)  # noqa: TRY400 - a line says it all
            self._mark, self._keys = (), ()

    def _read(self) -> tuple["Mark", tuple["Key", ...]]:
        try:
            mark = _mark(self._path)
            lines = self._path.read_text(encoding="utf-8").splitlines()
            mode = self._path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise DeclarationError(f"TokenFile {self._path}", str(error)) from error
        keys, problems = _keys(lines)
        if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
            problems.append("writable by other accounts, which could add tokens; run chmod go-w")
        DeclarationError.unless(f"TokenFile {self._path}", ((False, problem) for problem in problems))
        return mark, keys


class StartupToken:
    """A random token, generated at startup and printed with the address, for a server without other auth.

    A loopback address does not identify a client: all accounts of the machine have it, and so have all clients behind a
    proxy that adds no header, as nginx does by default.
    """

    challenge: Final = "Bearer"

    def __init__(self, *, name: str = "local", role: str = "admin") -> None:
        self.token: Final = secrets.token_urlsafe(32)
        self._identity: Final = Identity.of(name, role)

    def __call__(self, connection: HTTPConnection) -> Identity | None:
        given = _digest(_credentials(connection, "bearer"))
        return self._identity if hmac.compare_digest(given, _digest(self.token)) else None


TOKENS: Final = (TokenFile, StartupToken)
"""Authentication by token, which a browser keeps in a cookie after the sign-in."""


class Key(NamedTuple):
    """A line of the file."""

    digest: bytes
    identity: Identity
    is_plain: bool = False
    """Whether the token itself stands there."""


Mark: TypeAlias = tuple[int, ...]
"""What is another once a file was written."""


def _mark(path: Path) -> Mark:
    found = path.stat()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)


def _keys(lines: Iterable[str]) -> tuple[tuple[Key, ...], list[str]]:
    """Read all lines, and say what is wrong with any, without a word of the secrets in them."""
    keys: list[Key] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.lstrip().startswith("#"):
            continue
        try:
            keys.append(_key(words))
        except ValueError as error:  # also what `Identity` says
            problems.append(f"line {number}: {error}")
    if not keys and not problems:
        problems.append("there is no token in it")
    return tuple(keys), problems


def _key(words: list[str]) -> Key:
    if len(words) != 3:
        raise ValueError("it takes three words, NAME ROLE TOKEN")
    name, roles, secret = words
    identity = Identity.of(name, *roles.split(","))
    if secret.startswith("sha256:"):
        digest = bytes.fromhex(_hex(secret.removeprefix("sha256:")))
        if digest == _digest(""):
            raise ValueError("it is the digest of nothing at all; was the token empty?")
        return Key(digest, identity)
    if not secret.isascii():
        raise ValueError("a token has no letters but those of ASCII: a header cannot carry them")
    if len(secret) < SHORTEST_TOKEN:
        raise ValueError(f"a token has {SHORTEST_TOKEN} characters or more")
    return Key(_digest(secret), identity, is_plain=True)


def _hex(text: str) -> str:
    if len(text) != 64 or not set(text.lower()) <= set("0123456789abcdef"):
        raise ValueError("after sha256: there are 64 hexadecimal digits")
    return text


def _credentials(connection: HTTPConnection, scheme: str) -> str:
    """Return what was given in this way; nothing, if nothing was."""
    kind, _, given = connection.headers.get("authorization", "").partition(" ")
    return given.strip() if kind.lower() == scheme else ""


def _basic(given: str) -> str:
    try:
        return base64.b64decode(given, validate=True).decode()
    except ValueError:
        return ""


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
