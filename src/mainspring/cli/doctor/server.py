"""Checks of a PostgreSQL server: its version and settings, its clock, and what goes on there beside our jobs."""

from datetime import timedelta
from typing import Final

from mainspring.cli.doctor.asked import Held, Server
from mainspring.cli.doctor.finding import Finding, ok, warn
from mainspring.client.health.held import LONG, holders
from mainspring.client.words import count, length
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import LARGE

OLDEST: Final = 15
NEWEST: Final = 18

_RISK: Final = {
    "fsync": "a crash of its machine may damage the whole database",
    "full_page_writes": "a crash of its machine may damage the whole database",
    "synchronous_commit": "a crash takes back the last commits: jobs that were enqueued are gone, jobs that ended run again",
}


def version(server: Server) -> Finding:
    """Say whether this PostgreSQL will do."""
    major = server.number // 10_000
    if major < OLDEST:
        do = f"upgrade it; nothing here was ever run on a version before {OLDEST}"
        return warn("postgresql", f"{server.version} is older than {OLDEST}", do)
    newer = f", which is newer than {NEWEST}, the last that was tried" if major > NEWEST else ""
    return ok("postgresql", f"{server.version}{newer}")


def durability(server: Server, hosts: int) -> Finding:
    """Say what a crash may take, of the first promise: a committed job is never lost."""
    if server.off:
        worst = next(name for name in _RISK if name in server.off)
        names = " and ".join(f"{name}=off" for name in server.off)
        do = "switch it on, unless all that is kept here can be made again"
        return warn("durability", f"{names}: {_RISK[worst]}", do)
    if hosts > 1 and not server.waits_for_standbys:
        says = "commits are on one disk only: a failover to a standby that is behind takes back the last ones"
        return warn("durability", says, "set synchronous_standby_names, if a failover must lose no job")
    also = " and on a standby" if server.waits_for_standbys else ""
    return ok("durability", f"every commit is on the disk{also} before it counts")


def clocks(offset: timedelta, took: timedelta) -> Finding:
    """Hold the database's clock against this machine's: what differs by less than the answer took is the same."""
    apart = abs(offset)
    if apart - took / 2 > LARGE:
        where = "behind" if offset > timedelta(0) else "ahead of"
        do = "due times follow the database's clock; set both by NTP, so that what people read fits together"
        return warn("db clock", f"this machine's clock is {length(apart)} {where} the database's", do)
    within = max(apart, took / 2).total_seconds()
    said = f"{max(1, 1000 * within):.0f} ms" if within < 1 else length(within)
    return ok("db clock", f"within {said} of this machine's")


def pooler(settings: Settings, *, pooled: bool) -> Finding:
    """Say whether something stands between this program and the server."""
    if not pooled:
        return ok("pooler", "none is in between")
    if settings.listen and settings.listen_dsn is None:
        do = "add listen=HOST:PORT of the server itself to the URL, or listen=false if a second is soon enough"
        says = "one is in between, which lets no notifications pass: jobs of other processes may start a second late"
        return warn("pooler", says, do)
    return ok("pooler", "one is in between, such as PgBouncer; statements run without being kept prepared")


def room(server: Server, settings: Settings) -> Finding:
    """Say whether another worker would find connections."""
    wanted = settings.connections + 2
    says = f"{server.in_use} of {count(server.connections, 'connection')} in use"
    if server.connections - server.in_use < wanted:
        do = "raise max_connections, put a pooler in between, or lower connections= in the URL"
        return warn("room", f"{says}; one worker wants up to {wanted}", do)
    return ok("room", says)


def vacuum(server: Server, held: list[Held], *, all_seen: bool) -> list[Finding]:
    """Say what keeps dead rows from being cleared away."""
    found = []
    if not server.autovacuum:
        do = "switch it on: what has ended leaves dead rows behind, and tables grow without end"
        found.append(warn("vacuum", "autovacuum is off", do))
    found += holders(held)
    if found:
        return found
    seen = "" if all_seen else ", as far as this role can see (GRANT pg_read_all_stats shows it all)"
    return [ok("vacuum", f"no transaction has been open for {length(LONG)}{seen}")]
