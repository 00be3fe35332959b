"""Several workers under one parent: what happens when one of them, or the parent, is killed or told to stop."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Running, Shop, running_children, until

pytestmark = pytest.mark.slow

TWO = ("--processes", "2", "--lease", "2s")


def started(worker: Running, times: int = 2) -> list[int]:
    """Wait until so many nodes have begun; returns the processes that run now."""
    worker.says("jobs at a time", times)
    return running_children(worker.process.pid)


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_each_worker_is_a_node_of_its_own_and_sigterm_ends_them_all(shop: Shop) -> None:
    with shop.worker(*TWO) as worker:
        children = started(worker)
        assert len(children) == 2
        nodes = shop.lines("nodes", "list")
        assert {node["process"]["pid"] for node in nodes} == set(children)
        job = shop.enqueue("nap", 0.5)
        until(lambda: shop.job(job)["state"] == "running")
        worker.signal()
        assert worker.ends() == 0
    assert shop.job(job)["state"] == "succeeded"
    assert not any(is_there(child) for child in children)
    assert shop.lines("nodes", "list") == []


def test_one_that_is_killed_is_replaced_and_its_job_runs_elsewhere(shop: Shop) -> None:
    with shop.worker(*TWO) as worker:
        children = started(worker)
        job = shop.enqueue("nap", 2)
        until(lambda: shop.job(job)["state"] == "running")
        holder = next(n["process"]["pid"] for n in shop.lines("nodes", "list") if n["id"] == shop.job(job)["node"])
        os.kill(holder, signal.SIGKILL)
        worker.says("was killed by SIGKILL; the next one starts in")
        fresh = started(worker, times=3)
        assert len(fresh) == 2
        assert holder not in fresh
        assert set(fresh) & set(children)
        until(lambda: shop.job(job)["state"] == "succeeded", lambda: shop.job(job))
        assert [attempt["event"] for attempt in shop.job(job)["attempts"]] == ["lost"]
        worker.signal()
        assert worker.ends() == 0


def test_a_second_signal_has_them_all_hurry(shop: Shop) -> None:
    job = shop.enqueue("nap", 600)
    with shop.worker(*TWO, "--grace", "10m") as worker:
        started(worker)
        until(lambda: shop.job(job)["state"] == "running")
        worker.signal()
        worker.says("once more to hurry", times=3)  # the parent's line, and one of each worker
        worker.signal()
        assert worker.ends() == 0
    assert (shop.job(job)["state"], shop.job(job)["attempt"]) == ("ready", 0)


def test_ctrl_c_in_a_terminal_reaches_each_worker_once(shop: Shop) -> None:
    job = shop.enqueue("nap", 1.5)
    with shop.worker(*TWO) as worker:
        started(worker)
        until(lambda: shop.job(job)["state"] == "running")
        os.killpg(worker.process.pid, signal.SIGINT)  # what a terminal does: all processes of the group
        assert worker.ends() == 0
    assert shop.job(job)["state"] == "succeeded", "twice would have cut it short"


def test_the_code_is_that_of_the_worst(shop: Shop) -> None:
    job = shop.enqueue("deaf", 600)
    with shop.worker(*TWO, "--grace", "0s") as worker:
        started(worker)
        until(lambda: shop.job(job)["state"] == "running")
        worker.signal()
        assert worker.ends() == 4
    assert worker.text().count("everything was finished") == 1


def test_workers_do_not_outlive_a_parent_that_is_killed(shop: Shop) -> None:
    job = shop.enqueue("nap", 1)
    with shop.worker(*TWO) as worker:
        children = started(worker)
        until(lambda: shop.job(job)["state"] == "running")
        worker.process.kill()
        try:
            until(lambda: not any(is_there(child) for child in children))
        finally:
            for child in filter(is_there, children):
                os.kill(child, signal.SIGKILL)
    assert worker.text().count("whoever started this is gone") == 2
    assert shop.job(job)["state"] == "succeeded"


def test_one_that_an_operator_stops_is_not_replaced_and_after_the_last_it_ends(shop: Shop) -> None:
    with shop.worker(*TWO) as worker:
        started(worker)
        first, second = (node["id"] for node in shop.lines("nodes", "list"))
        shop.lines("nodes", "stop", first)
        until(lambda: [node["id"] for node in shop.lines("nodes", "list")] == [second])
        until(lambda: len(running_children(worker.process.pid)) == 1)
        shop.lines("nodes", "stop", second)
        assert worker.ends() == 0
    assert "the next one starts" not in worker.text()


def test_an_app_that_cannot_be_loaded_is_told_once_and_not_tried_for_ever(shop: Shop) -> None:
    (shop.folder / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    done = shop.run("worker", "broken:app", "--processes", "3")
    assert done.returncode == 2
    assert "broken cannot be imported: ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback" not in done.stderr
    assert "the next one starts" not in done.stderr


def test_processes_cannot_share_a_store_in_memory(shop: Shop) -> None:
    (shop.folder / "memory.py").write_text(
        "from mainspring import Mainspring\napp = Mainspring('memory://')\n", encoding="utf-8"
    )
    done = shop.run("worker", "memory:app", "--processes", "2")
    assert done.returncode == 2
    assert "processes cannot share it" in done.stderr


def test_a_worker_that_keeps_dying_is_started_again_more_and_more_slowly(shop: Shop) -> None:
    (shop.folder / "fragile.py").write_text("import os\nos._exit(7)\n", encoding="utf-8")
    with shop.worker("--processes", "2", target="fragile:app") as worker:
        worker.says("ended with 7; the next one starts in", times=6)
        worker.signal()
        assert worker.ends() == 0
    waits = [
        float(line.rpartition("starts in ")[2].split()[0]) for line in worker.text().splitlines() if "worker 1" in line
    ]
    assert waits[:3] == sorted(waits[:3])
    assert 0.3 <= waits[0] <= 0.7
    assert 1.3 <= waits[2] <= 2.7
