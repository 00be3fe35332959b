"""The judge is judged first: a log in which something went wrong must not pass."""

from pathlib import Path

from tests.chaos.ledger import Ledger, most_at_once

QUIET = """\
ready w1 - - 1
enqueued p0 a - 2
started w1 a 1 10
returned w1 a 1 11
succeeded w1 a 1 12
"""


def test_a_quiet_log_has_nothing_to_explain(tmp_path: Path) -> None:
    ledger = read(tmp_path, QUIET)
    assert ledger.enqueued == {"a"}
    assert problems(ledger) == []


def test_an_execution_after_the_kill_of_its_first_worker_is_explained(tmp_path: Path) -> None:
    log = "started w1 a 1 10\nlost w2 a 1 25\nstarted w2 a 2 30\nsucceeded w2 a 2 32\n"
    ledger = read(tmp_path, log, killed={"w1": 20})
    assert list(ledger.executed_twice) == ["a"]
    assert problems(ledger) == []


def test_an_execution_that_was_not_waited_for_is_found(tmp_path: Path) -> None:
    alive = "started w1 a 1 10\nreturned w1 a 1 11\nstarted w2 a 2 30\nsucceeded w2 a 2 32\n"
    assert problems(read(tmp_path, alive)) == ["unexplained"]
    assert problems(read(tmp_path, alive, killed={"w1": 31})) == ["unexplained"]
    assert problems(read(tmp_path, alive, killed={"w2": 20})) == ["unexplained"]


def test_a_lease_that_was_given_to_two_is_found(tmp_path: Path) -> None:
    log = "started w1 a 1 10\nstarted w2 a 1 30\nsucceeded w2 a 1 32\n"
    assert problems(read(tmp_path, log, killed={"w1": 20})) == ["leases_started_twice"]


def test_a_success_that_was_accepted_twice_is_found(tmp_path: Path) -> None:
    assert problems(read(tmp_path, QUIET + "succeeded w2 a 1 40\n")) == ["successes_told_twice", "ends_told_twice"]


def test_a_job_that_runs_again_after_its_success_is_found(tmp_path: Path) -> None:
    assert problems(read(tmp_path, QUIET + "started w2 a 2 40\n", killed={"w1": 20})) == ["started_after_success"]


def test_an_execution_after_one_that_raised_or_was_stopped_is_explained(tmp_path: Path) -> None:
    for end in ("raised", "stopped"):
        log = f"started w1 a 1 10\n{end} w1 a 1 20\nstarted w2 a 2 30\nsucceeded w2 a 2 32\n"
        assert problems(read(tmp_path, log)) == []
    late = "started w1 a 1 10\nstarted w2 a 2 30\nstopped w1 a 1 31\nreturned w2 a 2 32\nsucceeded w2 a 2 33\n"
    assert problems(read(tmp_path, late)) == ["unexplained", "running_twice"]


def test_a_lease_that_was_settled_in_two_ways_is_found(tmp_path: Path) -> None:
    assert problems(read(tmp_path, QUIET + "lost w2 a 1 40\n")) == ["ends_told_twice"]


def test_bodies_that_run_at_the_same_time_are_counted(tmp_path: Path) -> None:
    log = """\
started w1 a 1 10
key:x w1 a 1 10
started w2 b 1 20
key:x w2 b 1 21
returned w1 a 1 30
started w1 c 1 30
key:y w1 c 1 31
returned w2 b 1 40
"""
    of_x = [body for body in read(tmp_path, log).bodies() if body.key == "x"]
    assert most_at_once(of_x) == 2
    assert most_at_once(read(tmp_path, log).bodies()) == 2
    assert most_at_once(read(tmp_path, log, killed={"w2": 15}).bodies()) == 1
    assert most_at_once([]) == 0


def read(folder: Path, log: str, killed: dict[str, int] | None = None) -> Ledger:
    (folder / "log").write_text(log, encoding="ascii")
    return Ledger.read(folder, killed or {})


def problems(ledger: Ledger) -> list[str]:
    found = {
        "leases_started_twice": ledger.leases_started_twice(),
        "successes_told_twice": ledger.successes_told_twice(),
        "started_after_success": ledger.started_after_success(),
        "ends_told_twice": ledger.ends_told_twice(),
        "unexplained": ledger.unexplained(),
        "running_twice": ledger.running_twice(),
    }
    return [name for name, cases in found.items() if cases]
