# ruff: noqa: S608 -- the names in these statements are the test's own
"""`mainspring migrate` on PostgreSQL: tables, roles, and scripts for those who run the database."""

from pathlib import Path

import psycopg
import pytest

from mainspring.stores.postgres.migrate import WANTED
from tests.cli.conftest import cli
from tests.cli.postgres_shop import ServerShop, shop_on
from tests.servers.postgres import Row, Server

THINGS = """
SELECT relname, relkind::text, pg_get_userbyid(relowner),
    ARRAY(SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = pg_class.oid AND attnum > 0 ORDER BY attnum)
FROM pg_class WHERE relnamespace = %s::regnamespace ORDER BY 1
"""


@pytest.fixture
def shop(postgres: Server, new_schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerShop:
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    monkeypatch.setenv("SHOP_URL", "")
    monkeypatch.chdir(tmp_path)
    return shop_on(postgres, new_schema, tmp_path)


def test_tables_are_made_once_and_the_versions_are_told(shop: ServerShop) -> None:
    check = cli("migrate", "--check", "--url", shop.url)
    assert (check.exit_code, f"it has no tables yet, version {WANTED} is wanted" in check.output) == (1, True)
    assert shop.server.sql("SELECT FROM pg_namespace WHERE nspname = %s", [shop.schema]) == []
    made = cli("migrate", "--url", shop.url)
    assert (made.exit_code, made.output.endswith(f": made, version {WANTED}\n")) == (0, True)
    again = cli("migrate", "--url", shop.url)
    assert (again.exit_code, again.output.endswith(f": up to date, version {WANTED}\n")) == (0, True)
    (line,) = shop.lines("migrate")
    assert (line["found"], line["now"], line["wanted"], line["granted"]) == (WANTED, WANTED, WANTED, [])


def test_looking_makes_no_tables(shop: ServerShop) -> None:
    done = cli("jobs", "list", "--url", shop.url)
    assert done.exit_code == 3
    assert "there are no tables of ours in it; run a worker, or `mainspring migrate` to make them" in done.output
    assert shop.server.sql("SELECT FROM pg_namespace WHERE nspname = %s", [shop.schema]) == []


def test_a_role_is_granted_what_it_takes_to_work(shop: ServerShop) -> None:
    with shop.role(grant=False) as role:
        refused = cli("jobs", "list", "--url", shop.as_role(role))
        assert refused.exit_code == 3
        done = cli("migrate", "--grant", role, "--url", shop.url)
        assert (done.exit_code, done.output.endswith(f"the role {role} may work with it\n")) == (0, True)
        assert shop.lines("migrate", "--grant", role)[0]["granted"] == [role]
        assert cli("jobs", "list", "--url", shop.as_role(role)).output == "No such jobs.\n"
        assert cli("queues", "pause", "mail", "--url", shop.as_role(role)).exit_code == 0
        with psycopg.connect(shop.server.dsn(user=role)) as worker:
            drop = f"DROP TABLE {shop.schema}.jobs".encode()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(drop)


def test_a_role_that_is_not_there_is_to_be_made_first(shop: ServerShop) -> None:
    done = cli("migrate", "--grant", "nobody's", "--url", shop.url)
    assert done.exit_code == 3
    assert done.output.count("\n") == 1
    assert """there is no role nobody's; make it first: CREATE ROLE "nobody's" LOGIN PASSWORD '…'""" in done.output


def test_only_the_owner_gives_rights(shop: ServerShop) -> None:
    with shop.role() as worker, shop.role(grant=False) as other:
        done = cli("migrate", "--grant", other, "--url", shop.as_role(worker))
        assert done.exit_code == 3
        assert f"the role {worker} cannot give rights on its tables; run this as " in done.output
        assert cli("jobs", "list", "--url", shop.as_role(other)).exit_code == 3


def test_a_role_that_may_not_make_tables_is_told_who_may(shop: ServerShop) -> None:
    with shop.role(grant=False) as role:
        done = cli("migrate", "--url", shop.as_role(role))
        assert done.exit_code == 3
        assert f"it has no tables yet, and the role {role} may not make them" in done.output


def things(shop: ServerShop, schema: str) -> list[Row]:
    return shop.server.sql(THINGS, [schema])


def test_the_script_makes_the_same_tables_and_rights_as_the_command(shop: ServerShop) -> None:
    with shop.role(grant=False) as role, shop.server.schema() as other:
        # Whoever asks for the script need not be allowed to run it.
        url = shop.as_role(role)
        printed = cli("migrate", "--sql", "--grant", role, "--url", url)
        assert printed.exit_code == 0, printed.output
        assert shop.server.sql("SELECT FROM pg_namespace WHERE nspname = %s", [shop.schema]) == []
        shop.server.sql(printed.stdout)

        by_command = ServerShop(shop.folder, shop.server, other)
        by_command.migrate("--grant", role)
        assert things(shop, shop.schema) == things(shop, other)
        assert cli("migrate", "--check", "--url", shop.url).exit_code == 0
        assert cli("jobs", "list", "--url", url).exit_code == 0
        again = cli("migrate", "--sql", "--url", shop.url)
        assert again.output == f"-- up to date, version {WANTED}: there is nothing to run\n"


def test_the_script_has_the_days_that_are_missing(shop: ServerShop) -> None:
    shop.migrate()
    shop.server.sql(f"DROP TABLE {last_day(shop)}")
    printed = cli("migrate", "--sql", "--url", shop.url).stdout
    assert printed.count("ATTACH PARTITION") == 1
    shop.server.sql(printed)
    assert "nothing to run" in cli("migrate", "--sql", "--url", shop.url).stdout


def test_days_that_are_past_their_time_are_dropped_by_the_owner_only(shop: ServerShop) -> None:
    shop.migrate()
    old = f"{shop.schema}.history_20200101"
    shop.server.sql(
        f"CREATE TABLE {old} PARTITION OF {shop.schema}.history FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')"
    )
    assert shop.lines("migrate")[0]["dropped"] == 0, "something of it may still be seen"
    shop.server.sql(f"UPDATE {shop.schema}.rules SET pruned_until = '2020-01-02 00:00+00'")
    with shop.role(grant=False) as role:
        for grant in ("USAGE ON SCHEMA {}", "ALL ON ALL TABLES IN SCHEMA {}", "ALL ON ALL SEQUENCES IN SCHEMA {}"):
            shop.server.sql(f"GRANT {grant.format(shop.schema)} TO {role}")
        worker = cli("migrate", "--url", shop.as_role(role))
        assert (worker.exit_code, worker.output.count("\n")) == (0, 1), worker.output
    done = cli("migrate", "--url", shop.url)
    assert done.output.endswith(": 1 day of history dropped\n")
    assert shop.server.sql("SELECT to_regclass(%s)", [old]) == [(None,)]


def last_day(shop: ServerShop) -> str:
    look = "SELECT max(tablename) FROM pg_tables WHERE schemaname = %s AND tablename ~ '^history_[0-9]'"
    ((name,),) = shop.server.sql(look, [shop.schema])
    return f"{shop.schema}.{name}"


@pytest.mark.parametrize("option", ["--sql", "--grant=worker"])
def test_a_file_has_no_roles_and_no_script(option: str, tmp_path: Path) -> None:
    done = cli("migrate", option, "--url", f"sqlite:///{tmp_path / 'jobs.db'}")
    assert done.exit_code == 2
    assert "is for stores in PostgreSQL" in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [("--check", "--sql"), ("--check", "--grant=worker"), ("--sql", "--json")])
def test_what_does_not_go_together_is_refused(options: tuple[str, ...]) -> None:
    assert cli("migrate", *options, "--url", "postgresql://nobody@localhost/nothing").exit_code == 2
