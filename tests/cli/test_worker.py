"""A worker, as a process manager sees it: a process that starts, hears signals, and ends with a code."""

import json
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.cli.conftest import Shop, until


def test_it_says_who_it_is_and_what_it_will_do(shop: Shop) -> None:
    with shop.worker("--concurrency", "7", "--queue", "default", "--queue", "mail") as worker:
        text = worker.says("jobs at a time")
        assert f"on sqlite {shop.path}; queues: default, mail; 6 tasks: add, deaf, fail, nap" in text
        assert "; upkeep; 7 jobs at a time" in text
        (node,) = shop.lines("nodes", "list")
        assert node["id"] in text
        assert (node["queues"], node["concurrency"]) == (["default", "mail"], 7)
        worker.signal()
        assert worker.ends() == 0
    assert "everything was finished" in worker.text()


def test_it_brings_upkeep_that_is_seen_like_all_other_work(shop: Shop) -> None:
    with shop.worker() as worker:
        worker.says("at a time")
        names = {schedule["name"] for schedule in shop.lines("schedules", "list")}
        assert {"mainspring:retention_sweep", "mainspring:statistics", "mainspring:compaction"} <= names


def test_an_app_that_wants_no_upkeep_has_none(shop: Shop) -> None:
    text = (shop.folder / "shop.py").read_text().replace('.db")', '.db", upkeep=False)', 1)
    (shop.folder / "bare.py").write_text(text)
    with shop.worker(target="bare:app") as worker:
        assert "upkeep" not in worker.says("at a time")
        assert shop.lines("schedules", "list") == []


@pytest.mark.slow
def test_sigterm_lets_running_jobs_finish(shop: Shop) -> None:
    with shop.worker() as worker:
        worker.says("at a time")
        job = shop.enqueue("nap", 1.0)
        until(lambda: shop.job(job)["state"] == "running")
        worker.signal()
        assert worker.ends() == 0
    assert shop.job(job)["state"] == "succeeded"


def test_a_second_signal_has_it_hurry_and_what_is_cut_short_is_given_back(shop: Shop) -> None:
    job = shop.enqueue("nap", 600)
    with shop.worker("--grace", "10m") as worker:
        worker.says("at a time")
        until(lambda: shop.job(job)["state"] == "running")
        worker.signal(signal.SIGINT)
        worker.says("once more to hurry")
        assert "INFO    mainspring.node: SIGINT: finishing what runs" in worker.text(), "an ordinary end is no warning"
        assert worker.process.poll() is None
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
    assert "1 attempt cut short and given back" in worker.text()
    assert (shop.job(job)["state"], shop.job(job)["attempt"]) == ("ready", 0)


@pytest.mark.slow
def test_what_would_not_stop_does_not_keep_the_process_and_is_told_by_its_code(shop: Shop) -> None:
    job = shop.enqueue("deaf", 600)
    with shop.worker("--grace", "0s") as worker:
        worker.says("at a time")
        until(lambda: shop.job(job)["state"] == "running")
        worker.signal()
        assert worker.ends() == 4
    assert f"1 job would not stop: {job}" in worker.text()
    assert shop.job(job)["state"] == "ready"


def test_an_operator_ends_it_too(shop: Shop) -> None:
    with shop.worker("--lease", "2s") as worker:
        worker.says("at a time")
        (node,) = shop.lines("nodes", "list")
        (order,) = shop.lines("nodes", "stop", node["id"])
        assert order["order"] == {"type": "stop"}
        assert worker.ends() == 0
    assert shop.lines("nodes", "list") == []


@pytest.mark.slow
def test_sigterm_ends_a_worker_whose_store_does_not_answer(shop: Shop) -> None:
    shop.enqueue("add", 1)
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as someone, shop.worker("--log-json") as worker:
        someone.execute("BEGIN IMMEDIATE")
        until(lambda: worker.process.poll() is not None or _listens(worker.process.pid))
        worker.signal()
        worker.says("SIGTERM")
        assert worker.ends() == 0
    assert "before it could begin" in worker.text()


def test_its_log_can_be_json_and_names_the_job(shop: Shop) -> None:
    job = shop.enqueue("nap", 0)
    with shop.worker("--log-json") as worker:
        worker.says("goes to bed")
        worker.signal()
        assert worker.ends() == 0
    lines = [json.loads(line) for line in worker.text().splitlines()]
    (bed,) = [line for line in lines if line["logger"] == "shop"]
    assert (bed["message"], bed["level"], bed["job"], bed["task"]) == ("goes to bed", "info", job, "nap")


def test_its_log_for_people_names_the_job_too(shop: Shop) -> None:
    job = shop.enqueue("nap", 0)
    with shop.worker() as worker:
        assert f"INFO    shop: goes to bed (job {job}, nap)" in worker.says("goes to bed")
        worker.signal()
        worker.ends()


def test_what_is_no_store_of_ours_is_left_alone(shop: Shop) -> None:
    shop.path.write_text("dear diary", encoding="utf-8")
    done = shop.run("worker", "shop:app")
    assert done.returncode == 3
    assert done.stderr.startswith("mainspring: SQLite store")
    assert done.stderr.count("\n") == 1
    assert shop.path.read_text(encoding="utf-8") == "dear diary"


def _listens(process: int) -> bool:
    """Whether a process has a handler for SIGTERM, by the kernel's word."""
    with open(f"/proc/{process}/status", encoding="ascii") as status:  # noqa: PTH123 - the kernel's own
        caught = next(int(line.split()[1], 16) for line in status if line.startswith("SigCgt"))
    return bool(caught & (1 << (signal.SIGTERM - 1)))
