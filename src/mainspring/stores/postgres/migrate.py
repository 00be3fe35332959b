"""Migrations: numbered, forward only, each in one transaction, safe when several processes start at once.

The tables say by themselves which code they serve: `oldest_code` is the number of the first migration that code must
know in order to work with them. It is checked when a store is opened and when a node joins, and a migration that raises it
is refused while a node of older code is alive. Programs of older code that run no node are not detected, and have to be
stopped before.

Whoever owns the schema migrates. A worker needs less: it may read and write rows (`grants`), and finds the tables made.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

from mainspring.errors import SchemaError
from mainspring.stores.postgres import partitions
from mainspring.stores.postgres.statements import Statement, quoted, statement
from mainspring.stores.postgres.verb import Ask, Verb

_FOLDER: Final = files("mainspring.stores.postgres").joinpath("migrations")
_FIND: Final = statement("schema_find")
_READ: Final = statement("schema_read")
_LOCK: Final = statement("schema_lock")
_HOLD: Final = statement("schema_hold")
_WRITE: Final = statement("schema_write")
_OLDER_NODES: Final = statement("schema_older_nodes")
_END_OLDER_NODES: Final = statement("schema_end_older_nodes")
_PATIENT: Final = Statement("schema_patient", "SELECT set_config('lock_timeout', '2min', true)")
"""Whoever migrates will be done, however slow the machine is; a crowd that starts at once waits for the first of it."""
_BRIEF: Final = Statement("schema_brief", "SELECT set_config('lock_timeout', '2s', true)")
"""Whoever waits for a table that is in use holds up all that come behind."""
_NAME: Final = re.compile(r"(\d{4})_\w+\.sql")
_OLDEST_CODE: Final = re.compile(r"^-- oldest code: (\d+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"\s*--.*")
_MADE: Final = re.compile(r"^CREATE (?:TABLE|SEQUENCE) mainspring\.(\w+)|^CREATE (?:UNIQUE )?INDEX (\w+)", re.MULTILINE)


class Migration(NamedTuple):
    """One step of the tables' way."""

    number: int
    oldest_code: int
    script: str

    @property
    def statements(self) -> Iterator[Statement]:
        """Its statements, one by one: each ends with a semicolon at the end of a line."""
        lines: list[str] = []
        for line in self.script.splitlines():
            lines.append(_COMMENT.sub("", line))
            if lines[-1].endswith(";"):
                yield Statement(f"migration {self.number}", "\n".join(filter(None, lines)))
                lines.clear()
        assert not "".join(lines), f"migration {self.number} ends within a statement"  # noqa: S101 -- ours, and tested

    @property
    def names(self) -> list[str]:
        """What it makes: tables, sequences, indexes."""
        return [table or index for table, index in _MADE.findall(self.script)]


def migrations() -> tuple[Migration, ...]:
    """Read all that this code knows, in order."""
    found = []
    for file in _FOLDER.iterdir():
        if name := _NAME.fullmatch(file.name):
            script = file.read_text(encoding="utf-8")
            oldest = _OLDEST_CODE.search(script)
            assert oldest, f"{file.name} does not say which code it serves"  # noqa: S101 -- ours, and tested
            found.append(Migration(int(name[1]), int(oldest[1]), script))
    return tuple(sorted(found))


MIGRATIONS: Final = migrations()
WANTED: Final = MIGRATIONS[-1].number
WITH_OUTBOXES: Final = 4
"""From this one on there is a log of messages, which is in days, too."""
WITH_NODE_CODE: Final = 8
"""The first migration that records the code version of each node."""


class Found(NamedTuple):
    """How a schema stands; version 0 where there are no tables of ours."""

    version: int
    oldest_code: int
    is_there: bool
    """The schema itself."""
    role: str
    """Who asked."""
    owner: str | None
    may_make: bool
    may_read: bool
    taken: tuple[str, ...]
    """Names of ours that something else has."""


def found(schema: str) -> Verb[Found]:
    """Look how a schema stands, and change nothing. Two statements."""
    names = [name for step in MIGRATIONS for name in step.names]
    ((is_there, role, owner, may_make, may_read, is_ours, taken),) = yield Ask(_FIND, (schema, names))
    version = oldest_code = 0
    if is_ours and may_read:
        rows = yield Ask(_READ)
        is_ours = len(rows) == 1
        version, oldest_code = rows[0] if is_ours else (0, 0)
    others = () if is_ours else tuple(taken)
    return Found(version, oldest_code, is_there, role, owner, may_make, may_read or not is_ours, others)


def check_code(store: str, wanted: int = WANTED) -> Verb[None]:
    """Raise if the tables no longer support this code. One statement."""
    ((version, oldest_code),) = yield Ask(_READ)
    _check_code(store, version, oldest_code, wanted)


def check(store: str, tables: Found, wanted: int = WANTED) -> None:
    """Raise if this code cannot work with what is there, whoever migrates."""
    if tables.taken:
        raise SchemaError(
            store,
            f"the schema has {', '.join(tables.taken)}, and these are not ours; name another schema. "
            "Nothing was changed",
        )
    if not tables.may_read:
        raise SchemaError(
            store,
            f"the role {tables.role} may not use its tables; run `mainspring migrate --grant {tables.role}` as "
            f"{tables.owner}",
        )
    _check_code(store, tables.version, tables.oldest_code, wanted)


def _check_code(store: str, version: int, oldest_code: int, wanted: int) -> None:
    if oldest_code > wanted:
        raise SchemaError(
            store,
            f"its tables have version {version} and serve code that knows version {oldest_code} or "
            f"later, and this one knows {wanted}; upgrade Mainspring here. Nothing was changed",
        )


def migrate(
    store: str, schema: str, steps: tuple[Migration, ...] = MIGRATIONS, *, days: int = partitions.AHEAD
) -> Verb[bool]:
    """Make the next migration; False: all were made. Then there are tables for so many days to come, if any.

    Several statements, in a transaction of their own.
    """
    wanted = steps[-1].number
    tables = yield from found(schema)
    check(store, tables, wanted)
    if tables.version < wanted:
        if not tables.may_make:
            raise _not_ours_to_make(store, tables, wanted)
        yield Ask(_PATIENT)
        yield Ask(_LOCK, (schema,))
        tables = yield from found(schema)  # another process may have been faster
        check(store, tables, wanted)
    coming = [step for step in steps if step.number > tables.version]
    if coming:
        yield from _make(store, schema, coming[0], tables)
    version = coming[0].number if coming else tables.version
    if days:
        yield from partitions.make(days)
    if days and version >= WITH_OUTBOXES:
        yield from partitions.MESSAGES.make(days)
    return bool(coming)


def _make(store: str, schema: str, step: Migration, tables: Found) -> Verb[None]:
    parts = step.oldest_code > tables.oldest_code and tables.version >= WITH_NODE_CODE
    if parts:
        yield from _expect_no_older_nodes(store, step)
    yield Ask(_BRIEF)
    if not tables.is_there:
        yield Ask(Statement("schema_make", f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}"))
    for one in step.statements:
        yield Ask(one)
    yield Ask(_HOLD)
    if parts:  # again: a node may have joined meanwhile, and from here on no node of older code can
        yield from _expect_no_older_nodes(store, step)
        yield Ask(_END_OLDER_NODES, (step.oldest_code,))
    yield Ask(_WRITE, (step.number, max(step.oldest_code, tables.oldest_code)))


def _expect_no_older_nodes(store: str, step: Migration) -> Verb[None]:
    older = [str(node) for (node,) in (yield Ask(_OLDER_NODES, (step.oldest_code,)))]
    if older:
        raise SchemaError(
            store,
            f"migration {step.number} is incompatible with older code, and nodes of older code are running: "
            f"{', '.join(older)}; stop them, then run `mainspring migrate`. Nothing was changed",
        )


def _not_ours_to_make(store: str, tables: Found, wanted: int) -> SchemaError:
    have = (
        f"its tables have version {tables.version}, this code wants {wanted}"
        if tables.version
        else "it has no tables yet"
    )
    who = tables.owner or "a role that may create schemas in this database"
    return SchemaError(
        store,
        f"{have}, and the role {tables.role} may not make them; run `mainspring migrate --grant {tables.role}` as {who}",
    )


def grants(schema: str, role: str) -> list[str]:
    """Return what gives a role all that a worker needs and nothing else, for the owner of the schema to run.

    The last two hold for tables that the same owner makes later: of coming migrations, and of coming days.
    """
    where, who = quoted(schema), quoted(role)
    rows, numbers = "SELECT, INSERT, UPDATE, DELETE", "USAGE"
    return [
        f"GRANT USAGE ON SCHEMA {where} TO {who}",
        f"GRANT {rows} ON ALL TABLES IN SCHEMA {where} TO {who}",
        f"GRANT {numbers} ON ALL SEQUENCES IN SCHEMA {where} TO {who}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {where} GRANT {rows} ON TABLES TO {who}",
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {where} GRANT {numbers} ON SEQUENCES TO {who}",
    ]
