"""`mainspring queues` and `mainspring nodes`, with a node that really runs."""

import asyncio

import pytest

from mainspring import Limit
from tests.cli.conftest import Shop, cli, until


def test_queues_are_listed_with_what_waits_in_them(shop: Shop) -> None:
    shop.enqueue("once", "hello")
    assert shop.lines("queues", "list") == [{"name": "mail", "waiting": 1, "running": 0, "paused": None}]
    text = cli("queues", "list", "--url", shop.url).output
    assert text == "QUEUE  STATE  WAITING  RUNNING  LIMIT  NOTE\nmail   open         1        0\n"


def test_declared_limits_of_queues_are_shown(shop: Shop) -> None:
    app = shop.app()
    app.queue("payments", limit=Limit(rate="5/s"))
    app.queue("films", limit=Limit(concurrency=3, rate="100/5m"))

    async def declare() -> None:
        async with app, app.node():
            pass

    asyncio.run(declare())
    lines = cli("queues", "list", "--url", shop.url).output.splitlines()
    assert [line.split(maxsplit=4) for line in lines[1:]] == [
        ["films", "open", "0", "0", "3, 100/5m"],
        ["payments", "open", "0", "0", "5/s"],
    ]
    top = cli("top", "--once", "--url", shop.url).output
    assert [line for line in top.splitlines() if line.startswith("films") and "  3, 100/5m  " in line]
    assert [line for line in top.splitlines() if line.startswith("payments") and "  5/s  " in line]


def test_a_queue_is_paused_and_resumed(shop: Shop) -> None:
    cli("migrate", "--url", shop.url)
    assert cli("queues", "pause", "mail", "--reason", "no stamps", "--url", shop.url).output == "mail is paused\n"
    assert cli("queues", "pause", "mail", "--url", shop.url).output == "mail was paused already\n"
    (queue,) = shop.lines("queues", "list")
    assert queue["paused"]["reason"] == "no stamps"
    assert "@" in queue["paused"]["by"]
    text = cli("queues", "list", "--url", shop.url).output
    assert "mail   paused" in text
    assert text.endswith(": no stamps\n")
    assert shop.lines("queues", "resume", "mail") == [{"name": "mail", "paused": False, "changed": True}]
    assert cli("queues", "resume", "mail", "--url", shop.url).output == "mail was not paused\n"
    assert cli("queues", "list", "--url", shop.url).output == "No jobs wait or run, and nothing is paused or limited.\n"


@pytest.mark.slow
def test_orders_reach_a_node_that_runs(shop: Shop) -> None:
    with shop.worker("--lease", "1s", "--concurrency", "3") as worker:
        worker.says("at a time")
        (node,) = shop.lines("nodes", "list")
        name = node["id"]
        assert (node["alive"], node["concurrency"], len(node["tasks"])) == (True, 3, 9)
        table = cli("nodes", "list", "--url", shop.url).output
        assert f"{name}  alive   0/3      9  all" in table
        stacks = cli("nodes", "stacks", name, "--url", shop.url)
        assert "thread MainThread" in stacks.output
        assert "task " in stacks.output
        (quiet,) = shop.lines("nodes", "quiet", name)
        until(lambda: "Quiet()" in worker.text())
        job = shop.enqueue("add", 1)
        assert shop.job(job)["state"] == "ready"
        (resume,) = shop.lines("nodes", "resume", name)
        assert quiet["id"] < resume["id"]
        until(lambda: shop.job(job)["state"] == "succeeded")
        (order,) = shop.lines("nodes", "concurrency", name, "5")
        assert order["order"] == {"type": "concurrency", "places": 5}
        until(lambda: "SetConcurrency(places=5)" in worker.text())
        assert cli("nodes", "stop", name, "--url", shop.url).output.startswith(f"{name} is asked;")
        assert worker.ends() == 0
    assert cli("nodes", "list", "--url", shop.url).output == "No node is alive.\n"
    assert f"{name}  dead" in cli("nodes", "list", "--all", "--url", shop.url).output


@pytest.mark.parametrize("command", ["quiet", "resume", "stop", "stacks"])
def test_a_node_that_is_not_there_cannot_be_asked(shop: Shop, command: str) -> None:
    cli("migrate", "--url", shop.url)
    done = cli("nodes", command, "nobody", "--url", shop.url)
    assert done.exit_code == 1
    assert "nobody" in done.output
    assert done.output.count("\n") == 1


def test_stacks_gives_up_on_a_node_that_does_not_answer(shop: Shop) -> None:
    with shop.worker("--lease", "60s") as worker:
        worker.says("at a time")
        (node,) = shop.lines("nodes", "list")
        done = cli("nodes", "stacks", node["id"], "--timeout", "100ms", "--url", shop.url)
        assert done.exit_code == 1
        assert "has not answered within 0.1 s; the order stays open" in done.output
        worker.signal()
        worker.ends()


def test_stacks_sees_that_a_node_has_ended(shop: Shop) -> None:
    with shop.worker("--lease", "30s") as worker:
        worker.says("at a time")
        (node,) = shop.lines("nodes", "list")
        worker.signal()
        assert worker.ends() == 0
    assert cli("nodes", "stacks", node["id"], "--url", shop.url).exit_code == 1
