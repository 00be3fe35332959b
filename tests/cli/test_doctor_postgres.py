# ruff: noqa: S608 -- the names in these statements are the test's own
"""`mainspring doctor` on PostgreSQL: each check is shown what it is there to find."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from subprocess import run

import asyncpg
import psycopg
import pytest

from mainspring.cli.doctor import postgres as doctor
from mainspring.cli.doctor.asked import Held, Part, Role
from mainspring.cli.doctor.asked import Server as Set
from mainspring.cli.doctor.finding import Level
from mainspring.cli.doctor.reached import Tried, advice, createdb, reached
from mainspring.cli.doctor.server import clocks, durability, pooler, room, vacuum, version
from mainspring.cli.doctor.tables import days, rights
from mainspring.clock import SystemClock
from mainspring.stores.postgres.hosts import hosts
from mainspring.stores.postgres.settings import Settings
from tests.cli.conftest import cli, environment
from tests.cli.postgres_shop import ServerShop, shop_on, url_of
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server, new_server

SECRET = "hunter2"  # noqa: S105 -- what must not be printed
SETTINGS = Settings(dsn="postgresql://shop@db1,db2/shop", clock=SystemClock())
WELL = Set(number=180001, version="18.1", off=[], waits_for_standbys=False, autovacuum=True, connections=97, in_use=10)
TODAY = date(2026, 1, 31)
OWNER = Role("shop", is_superuser=False, owns=True, owner="shop", missing=[])


@pytest.fixture
def shop(postgres: Server, new_schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerShop:
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    monkeypatch.setenv("SHOP_URL", "")
    monkeypatch.chdir(tmp_path)
    return shop_on(postgres, new_schema, tmp_path)


@pytest.fixture
def healthy(shop: ServerShop) -> ServerShop:
    shop.migrate()
    return shop


def examined(url: str, *, code: int = 0) -> dict[str, str]:
    """Run the doctor; returns "level: what it says → what to do" by subject, the worst of each."""
    done = cli("doctor", "--url", url)
    assert done.exit_code == code, done.output
    assert SECRET not in done.output
    found: dict[str, str] = {}
    subject = ""
    for line in done.output.splitlines():
        if not line[:4].strip():
            found[subject] += f" {line.strip()}"
        elif line[:4].strip() != "ok" or line[6:17].strip() not in found:
            subject = line[6:17].strip()
            found[subject] = f"{line[:4].strip()}: {line[19:]}"
    return found


def test_a_store_in_good_order_is_found_to_be(healthy: ServerShop) -> None:
    found = examined(healthy.url)
    assert set(found) == {
        *("python", "packages", "clock", "url", "asyncpg", "server", "postgresql", "pooler", "durability", "db clock"),
        *("room", "vacuum", "schema", "role", "history", "doorbell", "nodes", "jobs", "schedules", "queues"),
    }
    assert [
        (subject, says) for subject, says in found.items() if not says.startswith("ok") and subject != "durability"
    ] == []
    assert found["schema"].startswith(f"ok: {healthy.schema}, version ")
    assert found["doorbell"].startswith("ok: a commit is heard within ")


def test_as_json_each_finding_is_a_line(healthy: ServerShop) -> None:
    assert all(set(line) == {"level", "subject", "says", "do"} for line in healthy.lines("doctor"))


def test_a_reader_that_has_seen_enough_is_no_trouble(healthy: ServerShop) -> None:
    command = f"{sys.executable} -m mainspring doctor --url '{healthy.url}' | head -n 1"
    done = run(["bash", "-c", command], env=environment({}), capture_output=True, text=True, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_jobs_that_wait_while_nobody_works(healthy: ServerShop) -> None:
    healthy.enqueue("add", 1)
    assert examined(healthy.url, code=1)["jobs"].startswith("fail: no node is at work, and 1 job waits")


# The way there.


def test_a_server_that_is_not_there() -> None:
    found = examined(f"postgresql://postgres:{SECRET}@127.0.0.1:1/shop", code=1)
    assert found["server"].startswith("fail: 127.0.0.1:1: the server cannot be reached")
    assert "→ start the server, or correct host and port in the URL" in found["server"]
    assert "schema" not in found


def test_a_database_that_does_not_exist(shop: ServerShop) -> None:
    found = examined(url_of(shop.server.dsn(database="no shop")), code=1)["server"]
    assert 'database "no shop" does not exist' in found
    command = f"createdb --host={shop.server.host} --port={shop.server.port} "
    assert f"→ make it, `{command}" in found
    assert "'no shop'`, or correct the URL" in found


def test_a_role_that_does_not_exist(shop: ServerShop) -> None:
    found = examined(shop.server.dsn(user="no_such_role"), code=1)["server"]
    assert "no_such_role" in found
    assert "pg_hba.conf" in found


@pytest.mark.slow
def test_a_password_that_is_wrong() -> None:
    with new_server() as server:
        server.sql("CREATE ROLE shop LOGIN PASSWORD 'the right one'")
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all shop 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server.sql("SELECT pg_reload_conf()")
        url = server.dsn(user="shop").replace("shop@", f"shop:{SECRET}@")
        found = examined(url, code=1)["server"]
        assert 'password authentication failed for user "shop" → correct them in the URL, $PGPASSWORD or' in found
        assert "server" in examined(url.replace(SECRET, "the%20right%20one"), code=1)  # it goes on, to the tables


WITHOUT_ASYNCPG = """
import sys
from contextlib import redirect_stderr
sys.modules["asyncpg"] = None
from mainspring.cli import main

for words in sys.argv[1:]:
    try:
        with redirect_stderr(sys.stdout):
            main(words.split())
    except SystemExit as ended:
        print(f"exit {ended.code:d}\\n----")
"""
"""A program that runs one command after another, and says how each ended."""


def test_a_driver_that_is_not_installed(tmp_path: Path) -> None:
    url = f"postgresql://postgres:{SECRET}@127.0.0.1:1/shop"
    done = run(
        [sys.executable, "-c", WITHOUT_ASYNCPG, "doctor", "jobs list", "migrate"],
        cwd=tmp_path, env=environment({"MAINSPRING_URL": url}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert SECRET not in done.stdout
    *outputs, rest = done.stdout.split("----\n")
    assert ([output.splitlines()[-1] for output in outputs], rest) == (["exit 1", "exit 2", "exit 2"], "")
    for output in outputs:
        said = " ".join(output.split()).replace(" → ", ": ")
        assert "PostgreSQL needs asyncpg: install Mainspring with the extra 'postgres'" in said


def test_one_of_several_hosts_that_is_not_there(own_postgres: Server) -> None:
    with own_postgres.schema() as schema:
        url = url_of(own_postgres.dsn(), schema=schema)
        assert cli("migrate", "--url", url).exit_code == 0
        found = examined(url.replace(f":{own_postgres.port}/", f":{own_postgres.port},127.0.0.1:1/"))
    assert found["server"].startswith("warn: 127.0.0.1:1: the server cannot be reached")


@pytest.mark.slow
def test_a_standby_takes_no_writes() -> None:
    with new_server() as primary, primary.standby(synchronous=False) as standby:
        found = examined(standby.dsn(), code=1)
        assert found["server"].startswith(f"fail: it takes no writes, it is a standby: {standby.host}:{standby.port}")
        assert cli("migrate", "--url", primary.dsn()).exit_code == 0
        both = primary.dsn().replace(f":{primary.port}/", f":{standby.port},127.0.0.1:{primary.port}/")
        assert examined(both)["server"] == (
            f"ok: 127.0.0.1:{primary.port} takes writes; 1 standby: 127.0.0.1:{standby.port}"
        )


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (TimeoutError("no answer within 5.0 s"), "something on the way drops what is sent"),
        (OSError(113, "no route to host"), "see whether host and port in the URL are right"),
        (asyncpg.TooManyConnectionsError("too many clients"), "raise its max_connections"),
        (asyncpg.CannotConnectNowError("starting up"), "wait; it is starting up"),
        (asyncpg.InternalServerError("broken"), "see the server's log"),
        (ValueError("no URL"), "correct the URL"),
    ],
)
def test_each_way_not_to_reach_it_has_its_advice(error: Exception, says: str) -> None:
    assert says in advice(hosts("postgresql://db/shop")[0], error)


def test_whether_one_is_enough_decides_how_bad_a_host_is() -> None:
    first, second = hosts(SETTINGS.dsn)
    lost = Tried(second, error=ConnectionRefusedError("refused"))
    assert [one.level for one in reached(SETTINGS, [Tried(first), lost])] == [Level.OK, Level.WARN]
    assert [one.level for one in reached(SETTINGS, [Tried(first, error=OSError("gone")), lost])] == [Level.FAIL] * 2


@pytest.mark.parametrize(
    ("dsn", "command"),
    [
        ("postgresql://shop:secret@db:6432/my%20shop", "createdb --host=db --port=6432 --username=shop 'my shop'"),
        ("postgresql:///shop", "createdb shop"),
        ("postgresql:///shop?host=/run/postgresql&user=me", "createdb --host=/run/postgresql --username=me shop"),
        ("postgresql://a;b@db/x", "createdb --host=db '--username=a;b' x"),
    ],
)
def test_the_command_that_makes_a_database_has_no_password_in_it(dsn: str, command: str) -> None:
    assert createdb(hosts(dsn)[0]) == command


# The server.


def test_a_version_that_nobody_has_tried() -> None:
    assert version(WELL).says == "18.1"
    assert version(WELL._replace(number=140012, version="14.12")).level is Level.WARN
    assert "newer than 18" in version(WELL._replace(number=190000, version="19.0")).says


def test_a_server_that_does_not_wait_for_the_disk(own_postgres: Server) -> None:
    says = examined(own_postgres.dsn(), code=1)["durability"]
    assert says.startswith(
        "warn: fsync=off and synchronous_commit=off and full_page_writes=off: a crash of its machine"
    )


def test_what_a_crash_may_take() -> None:
    assert durability(WELL, 1).says == "every commit is on the disk before it counts"
    assert "takes back the last commits" in durability(WELL._replace(off=["synchronous_commit"]), 1).says
    assert "a failover to a standby that is behind" in durability(WELL, 2).says
    assert durability(WELL._replace(waits_for_standbys=True), 2).level is Level.OK


def test_clocks_that_differ() -> None:
    moment, second = timedelta(milliseconds=4), timedelta(seconds=1)
    assert clocks(moment, moment).says == "within 4 ms of this machine's"
    assert clocks(2 * second, moment).says == "this machine's clock is 2.0 s behind the database's"
    assert clocks(-2 * second, moment).says == "this machine's clock is 2.0 s ahead of the database's"
    assert clocks(2 * second, 3 * second).level is Level.OK, "an answer that took so long proves nothing"


def test_a_server_without_room_for_another_worker() -> None:
    assert room(WELL, SETTINGS).says == "10 of 97 connections in use"
    assert room(WELL._replace(in_use=92), SETTINGS).level is Level.WARN


@pytest.mark.needs("pgbouncer")
def test_a_pooler_in_between(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Pooler(own_postgres) as between:
        url = url_of(between.dsn(), schema=schema)
        assert cli("migrate", "--url", url).exit_code == 0
        found = examined(url)
        assert found["pooler"].startswith("warn: one is in between, which lets no notifications pass")
        assert found["doorbell"].startswith("warn: a commit was not heard within 2 s")
        past = examined(f"{url}&listen={own_postgres.host}:{own_postgres.port}")
        assert past["pooler"].startswith("ok: one is in between")
        assert past["doorbell"].startswith("ok: a commit is heard")
        without = examined(f"{url}&listen=false")
        assert without["pooler"].startswith("ok: ")
        assert without["doorbell"] == "ok: listen=false: nodes look by themselves, once a second"


def test_no_pooler_in_between() -> None:
    assert pooler(SETTINGS, pooled=False).says == "none is in between"


@contextmanager
def forgotten(server: Server) -> Iterator[int]:
    """Leave a transaction open that has written something."""
    with psycopg.connect(server.dsn(), application_name="forgetful") as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield connection.info.backend_pid
        connection.rollback()


def test_a_transaction_that_was_left_open(healthy: ServerShop, monkeypatch: pytest.MonkeyPatch) -> None:
    with forgotten(healthy.server) as pid:
        assert examined(healthy.url)["vacuum"] == "ok: no transaction has been open for 5 min"
        monkeypatch.setattr(doctor, "LONG", 0.0)
        says = examined(healthy.url)["vacuum"]
    assert says.startswith(f"warn: process {pid} (")
    assert "forgetful, idle in transaction) has been open for 0." in says
    assert f"pg_terminate_backend({pid})" in says


def test_who_sees_its_own_sessions_only_says_so(healthy: ServerShop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LONG", 0.0)
    with healthy.role() as role, forgotten(healthy.server):
        assert "as far as this role can see" in examined(healthy.as_role(role))["vacuum"]
        healthy.server.sql(f"GRANT pg_read_all_stats TO {role}")
        assert examined(healthy.as_role(role))["vacuum"].startswith("warn: process ")


def test_what_else_keeps_dead_rows_alive() -> None:
    prepared = Held("prepared transaction 'x'", "me", "", "prepared", 4000.0, None)
    slot = Held("replication slot old", "", "", "without its standby", None, None)
    first, second = vacuum(WELL, [prepared, slot], all_seen=True)
    assert first.says.startswith("prepared transaction 'x' (me, prepared) has been open for 1 h 6 min")
    assert "ROLLBACK PREPARED" in first.do
    assert "pg_drop_replication_slot" in second.do
    many = vacuum(WELL, [prepared] * 9, all_seen=True)
    assert (len(many), many[-1].says) == (6, "and 4 more")
    assert vacuum(WELL._replace(autovacuum=False), [], all_seen=True)[0].says == "autovacuum is off"


# The tables.


def test_a_schema_without_tables(shop: ServerShop) -> None:
    found = examined(shop.url, code=1)
    assert found["schema"] == f"fail: there are no tables yet in the schema {shop.schema} → run `mainspring migrate`"
    assert "doorbell" not in found
    with shop.role(grant=False) as role:
        says = examined(shop.as_role(role), code=1)["schema"]
        assert f"→ run `mainspring migrate --grant {role}` as a role that may create schemas" in says


def test_tables_of_a_newer_version(healthy: ServerShop) -> None:
    healthy.server.sql(f"UPDATE {healthy.schema}.versions SET version = 99")
    assert "version 99, of a newer Mainspring" in examined(healthy.url)["schema"]
    healthy.server.sql(f"UPDATE {healthy.schema}.versions SET oldest_code = 99")
    assert "upgrade Mainspring here" in examined(healthy.url, code=1)["schema"]


def test_a_role_without_rights_and_one_that_lacks_some(healthy: ServerShop) -> None:
    with healthy.role(grant=False) as role:
        assert f"the role {role} may not use its tables" in examined(healthy.as_role(role), code=1)["schema"]
        healthy.migrate("--grant", role)
        assert f"ok: {role} works with the tables and changes none" in examined(healthy.as_role(role))["role"]
        healthy.server.sql(f"REVOKE INSERT, DELETE ON {healthy.schema}.jobs FROM {role}")
        healthy.server.sql(f"REVOKE USAGE ON {healthy.schema}.lock_terms FROM {role}")
        says = examined(healthy.as_role(role), code=1)["role"]
        assert "needs: DELETE on jobs, INSERT on jobs, USAGE on lock_terms" in says
        assert f"→ run `mainspring migrate --grant {role}` as " in says


def test_days_of_history_that_nobody_makes_or_drops(healthy: ServerShop) -> None:
    schema = healthy.schema
    for (name,) in healthy.server.sql(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename ~ '_2'", [schema]
    ):
        healthy.server.sql(f"DROP TABLE {schema}.{name}")
    healthy.server.sql(
        f"CREATE TABLE {schema}.history_20200101 PARTITION OF {schema}.history "
        "FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')"
    )
    with healthy.role(grant=False) as role:
        for grant in ("USAGE ON SCHEMA {}", "ALL ON ALL TABLES IN SCHEMA {}", "ALL ON ALL SEQUENCES IN SCHEMA {}"):
            healthy.server.sql(f"GRANT {grant.format(schema)} TO {role}")
        done = cli("doctor", "--url", healthy.as_role(role)).output
    assert "warn  history      8 of the next 8 days have no table, from 20" in done
    assert "warn  history      still there, though past their time: 1 day, from 2020-01-01 on" in done
    assert "→ start a worker as " in done


def test_how_history_stands() -> None:
    week = [Part(TODAY + timedelta(days=ahead), 1000, 10, TODAY) for ahead in range(15)]
    rest = Part(None, 500, 0, TODAY)
    assert [one.says for one in days([*week, rest], OWNER)] == ["16 kB, about 150 jobs; days are made until 2026-02-14"]
    (late,) = days([Part(TODAY - timedelta(days=3), 0, 0, TODAY), *week, rest], OWNER)
    assert (late.level, late.do) == (
        Level.WARN,
        "start a worker, or run `mainspring migrate` once a day: either drops them",
    )


def test_what_a_role_may() -> None:
    assert rights(OWNER).says.startswith("shop owns the tables")
    assert "superuser" in rights(OWNER._replace(is_superuser=True)).says
    assert rights(OWNER._replace(owns=False, owner="boss")).says.endswith("they are boss's")
