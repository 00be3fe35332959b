"""Checks of our own tables on PostgreSQL: their version, who may do what with them, and the days of history."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from mainspring.cli.doctor.asked import Part, Role
from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.client.words import count, size
from mainspring.errors import SchemaError
from mainspring.stores.postgres.migrate import WANTED, Found, check
from mainspring.stores.postgres.settings import Settings

SOON: Final = 8
"""Days for which there should be tables: failed jobs are kept for seven."""
LATE: Final = timedelta(days=2)
"""After which a day that is past its time should be gone."""


def schema(settings: Settings, found: Found) -> Finding:
    """Say whether the tables are those that this version needs."""
    do = "run `mainspring migrate`"
    if found.version < WANTED and not found.may_make:
        owner = found.owner or "a role that may create schemas in this database"
        do = f"run `mainspring migrate --grant {found.role}` as {owner}; the role {found.role} may not"
    try:
        check(settings.store, found)
    except SchemaError as error:
        return fail("schema", error.problem, "correct the URL, the role's rights, or the version of Mainspring")
    if found.version == 0:
        return fail("schema", f"there are no tables yet in the schema {settings.schema}", do)
    if found.version < WANTED:
        return fail("schema", f"version {found.version}, and this Mainspring wants {WANTED}", do)
    newer = f", of a newer Mainspring than this, which wants {WANTED}" if found.version > WANTED else ""
    return ok("schema", f"{settings.schema}, version {found.version}{newer}")


def rights(role: Role) -> Finding:
    """Say what this role may do: all with the tables, or only work with their rows."""
    if role.missing:
        some = ", ".join(role.missing[:3]) + (", …" if len(role.missing) > 3 else "")
        do = f"run `mainspring migrate --grant {role.name}` as {role.owner}"
        return fail("role", f"{role.name} has not all rights that a worker needs: {some}", do)
    if role.is_superuser:
        return ok("role", f"{role.name} is a superuser; a worker needs much less")
    if role.owns:
        return ok("role", f"{role.name} owns the tables: migrates, works, makes and drops the days of history")
    return ok("role", f"{role.name} works with the tables and changes none of them; they are {role.owner}'s")


def days(parts: Sequence[Part], role: Role) -> list[Finding]:
    """Say how large history is, and whether its days are made and dropped."""
    today = parts[0].today
    made = {part.day for part in parts if part.day is not None}
    rows, taken = sum(part.rows for part in parts), sum(part.size for part in parts)
    missing = [day for day in (today + timedelta(days=ahead) for ahead in range(SOON)) if day not in made]
    late = sorted(part.day for part in parts if part.day is not None and part.day < today - LATE)
    found = []
    owner = "" if role.owns else f" as {role.owner}"
    do = f"start a worker{owner}, or run `mainspring migrate`{owner} once a day"
    if missing:
        says = f"{len(missing)} of the next {count(SOON, 'day')} have no table, from {missing[0]} on"
        found.append(warn("history", says, f"{do}; what has no day is deleted row by row"))
    if late:
        says = f"still there, though past their time: {count(len(late), 'day')}, from {late[0]} on"
        found.append(warn("history", says, f"{do}: either drops them"))
    if not found:
        found.append(ok("history", f"{size(taken)}, about {count(rows, 'job')}; days are made until {max(made)}"))
    return found
