"""Workers, jobs, queues and nodes on PostgreSQL, from the command line, as on a file."""

import asyncio
import json
import re
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from mainspring import Fail, Mainspring, Message
from mainspring.client.measuring import Measured
from mainspring.core.job import claim_count
from tests.cli.audited import check_that_each_leaves_its_line, world_of
from tests.cli.conftest import cli, until
from tests.cli.postgres_shop import ServerShop, shop_on
from tests.servers.postgres import Server, new_server


@pytest.fixture
def shop(postgres: Server, postgres_schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerShop:
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    monkeypatch.setenv("SHOP_URL", "")
    monkeypatch.chdir(tmp_path)
    return shop_on(postgres, postgres_schema, tmp_path)


def said(shop: ServerShop, *arguments: str, code: int = 0) -> list[str]:
    done = cli(*arguments, "--url", shop.url)
    assert done.exit_code == code, done.output
    return done.output.splitlines()


def test_a_worker_makes_the_tables_runs_jobs_and_ends_in_good_order(shop: ServerShop) -> None:
    with shop.worker("--concurrency", "3") as worker:
        assert "6 tasks: add, deaf, fail, nap, once, where; upkeep; 3 jobs at a time" in worker.says("at a time")
        done = cli("jobs", "enqueue", "shop:app", "add", "2", "--args", '{"b": 5}', "--wait", "--timeout", "20s")
        assert (done.exit_code, done.stdout) == (0, "7\n"), done.stderr
        worker.signal()
        assert worker.ends() == 0
    *_, told, ended = worker.text().splitlines()
    assert "SIGTERM: finishing what runs" in told
    assert "everything was finished" in ended


def test_jobs_are_listed_shown_retried_cancelled_and_deleted(shop: ServerShop) -> None:
    failing = shop.enqueue("fail", "out of paper")
    napping = shop.enqueue("nap", 60)
    with shop.worker() as worker:
        until(lambda: [job["state"] for job in shop.lines("jobs", "list")] == ["running", "failed"])
        heading, first, second = said(shop, "jobs", "list")
        assert heading.split() == ["ID", "STATE", "TASK", "QUEUE", "TRIES", "WHEN", "NOTE"]
        assert first.split()[:5] == [napping, "running", "nap", "default", "1/6"]
        assert second.endswith("exhausted: ValueError: out of paper")
        assert said(shop, "jobs", "list", "--state", "failed", "--cause", "exhausted")[1].startswith(failing)
        page = "\n".join(said(shop, "jobs", "show", napping))
        assert "50 % asleep" in page
        assert "info    good night" in page
        assert 'arguments  {"why": "out of paper"}' in said(shop, "jobs", "show", failing)
        assert said(shop, "queues", "list")[1].split() == ["default", "open", "0", "1"]

        assert said(shop, "jobs", "cancel", napping) == [f"{napping} is asked to stop"]
        until(lambda: shop.job(napping)["state"] == "cancelled")
        assert said(shop, "jobs", "retry", failing) == [f"{failing} will run again"]
        until(lambda: shop.job(failing)["attempt"] == 2 and shop.job(failing)["state"] == "failed")
        assert said(shop, "jobs", "delete", failing, napping) == [f"{failing} is gone", f"{napping} is gone"]
        assert said(shop, "jobs", "list") == ["No such jobs."]
        worker.signal()
        assert worker.ends() == 0


def test_it_is_watched_by_top_by_kubelets_and_by_prometheus(shop: ServerShop) -> None:
    napping = shop.enqueue("nap", 60)
    with shop.worker("--health", "0", "--grace", "0s") as worker:
        (address,) = re.findall(r"are at (http://\S+)", worker.says("are at http"))
        until(lambda: shop.job(napping)["state"] == "running")
        with urlopen(f"{address}/readyz") as answer:  # noqa: S310 - our own
            assert [check["name"] for check in json.load(answer)["checks"]] == ["store", "node"]
        (frame,) = shop.lines("top")
        assert [node["running"] for node in frame["nodes"]] == [1]
        assert [job["id"] for job in frame["running"]] == [napping]
        measured = asyncio.run(measure(shop))
        assert (measured.alive, measured.running, measured.places, measured.late) == (1, 1, 20, 0)
        worker.signal()
        assert worker.ends() == 0


async def measure(shop: ServerShop) -> Measured:
    async with Mainspring(shop.url) as app:
        return await app.measure()


def test_queues_are_paused_by_a_name_and_for_a_reason(shop: ServerShop) -> None:
    shop.migrate()
    assert said(shop, "queues", "pause", "mail", "--reason", "no stamps") == ["mail is paused"]
    assert said(shop, "queues", "pause", "mail") == ["mail was paused already"]
    job = shop.enqueue("once", "hello")
    assert said(shop, "queues", "list")[1].split()[:4] == ["mail", "paused", "1", "0"]
    assert "no stamps" in said(shop, "queues", "list")[1]
    with shop.worker() as worker:
        worker.says("at a time")
        cli("jobs", "enqueue", "shop:app", "add", "1", "--wait")
        assert shop.job(job)["state"] == "ready"
        assert said(shop, "queues", "resume", "mail") == ["mail goes on"]
        until(lambda: shop.job(job)["state"] == "succeeded")
        worker.signal()
        worker.ends()


def test_nodes_are_listed_and_obey(shop: ServerShop) -> None:
    shop.migrate()
    assert said(shop, "nodes", "list") == ["No node is alive."]
    with shop.worker("--lease", "2s", "--queue", "mail") as worker:
        worker.says("at a time")
        (node,) = shop.lines("nodes", "list")
        assert said(shop, "nodes", "list")[1].split()[:5] == [node["id"], "alive", "0/20", "9", "mail"]
        assert "thread MainThread" in "\n".join(said(shop, "nodes", "stacks", node["id"]))
        said(shop, "nodes", "concurrency", node["id"], "7")
        until(lambda: shop.lines("nodes", "list")[0]["concurrency"] == 7)
        assert said(shop, "nodes", "stop", node["id"]) == [
            f"{node['id']} is asked; it learns of it with its next renewal"
        ]
        assert worker.ends() == 0
    assert said(shop, "nodes", "list", "--all")[1].split()[:2] == [node["id"], "dead"]


@pytest.mark.slow
def test_what_a_killed_worker_held_is_run_by_the_next(shop: ServerShop) -> None:
    job = shop.enqueue("nap", 1)
    with shop.worker() as first:
        until(lambda: shop.job(job)["state"] == "running")
        first.signal(signal.SIGKILL)
        first.ends()
    with shop.worker("--processes", "2") as second:
        until(lambda: shop.job(job)["state"] == "succeeded")
        assert len(shop.lines("nodes", "list")) == 2
        second.signal()
        assert second.ends() == 0
    found = shop.job(job)
    assert (found["attempt"], [one["event"] for one in found["attempts"]]) == (2, ["lost"])
    assert claim_count(found["lease"]) == 2


def test_a_worker_works_as_a_role_that_may_do_nothing_else(shop: ServerShop, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.role() as role:
        monkeypatch.setenv("SHOP_URL", shop.as_role(role))
        with shop.worker("--log-json") as worker:
            worker.says("at a time")
            done = cli("jobs", "enqueue", "shop:app", "add", "2", "--wait", "--timeout", "20s")
            assert (done.exit_code, done.stdout) == (0, "3\n"), done.stderr
            worker.signal()
            assert worker.ends() == 0
        lines = [json.loads(line) for line in worker.text().splitlines()]
        assert [line["message"] for line in lines if line["level"] in {"warning", "error"}] == []
        assert "SIGTERM: finishing what runs; once more to hurry" in [line["message"] for line in lines]


@pytest.mark.usefixtures("shop")
def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    url = "postgresql://postgres:hunter2@127.0.0.1:1/shop?patience=200ms"
    done = cli("jobs", "list", "--url", url)
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1].startswith(
        "mainspring: PostgreSQL store 127.0.0.1:1/shop (schema mainspring): the server cannot"
    )
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr
    assert cli("worker", "shop:app", SHOP_URL=url).exit_code == 3


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_worker_lives_through_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", "")
    monkeypatch.chdir(tmp_path)
    with new_server(durable=True) as server:
        shop = shop_on(server, "mainspring", tmp_path)
        with shop.worker() as worker:
            worker.says("at a time")
            server.restart()
            done = cli("jobs", "enqueue", "shop:app", "add", "2", "--wait", "--timeout", "30s")
            assert (done.exit_code, done.stdout) == (0, "3\n"), done.stderr
            worker.signal()
            assert worker.ends() == 0
        # A restart that falls between two statements is not noticed; one that is, is told, and its end too.
        assert ("the database is out of reach" in worker.text()) == ("the database is back after" in worker.text())


def test_dead_letters_of_an_outbox_are_seen_and_replayed(shop: ServerShop) -> None:
    assert cli("migrate", "--url", shop.url).exit_code == 0
    app = Mainspring(shop.url)
    orders = app.outbox("orders", partitions=2, payload=int)

    @orders.handler
    async def refuse(_: Message[int]) -> None:
        raise Fail("not today")

    async def work() -> None:
        async with app.node():
            await orders.publish(None, 7, key="ann")
            async with asyncio.timeout(30):
                while not (await orders.letters()).letters:
                    await asyncio.sleep(0.02)

    asyncio.run(work())
    (listed,) = said(shop, "outbox", "list")[1:]
    assert listed.split()[:3] == ["orders", "2", "1"]
    (letter,) = shop.lines("outbox", "deadletters", "--outbox", "orders", "--key", "ann")
    assert (letter["error"], letter["attempts"], letter["state"]) == ("not today", 1, "pending")
    assert said(shop, "outbox", "lag") == ["Nothing waits."]
    assert said(shop, "outbox", "replay", str(letter["id"]), "--yes") == ["1 dead letter put back"]
    (lag,) = shop.lines("outbox", "lag", "orders")
    assert (lag["backlog"], lag["holder"]) == (1, None)
    assert said(shop, "outbox", "lag", "ordres", code=1)[0].endswith("did you mean 'orders'?")


def test_what_every_command_does_is_one_line_of_the_audit_log(
    shop: ServerShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.migrate()
    with world_of(shop, monkeypatch) as world:
        assert world.told() == []
        check_that_each_leaves_its_line(world)


def test_a_role_that_may_write_no_lines_does_its_work_and_says_so(shop: ServerShop) -> None:
    with shop.role() as role:
        shop.server.sql(f"REVOKE INSERT ON {shop.schema}.audit FROM {role}")
        done = cli("queues", "pause", "mail", "--url", shop.as_role(role))
        assert (done.exit_code, done.stdout) == (0, "mail is paused\n")
        assert done.stderr.startswith("not in the audit log: cli:")
        assert done.stderr.count("\n") == 1
        assert [queue["name"] for queue in shop.lines("queues", "list")] == ["mail"]
