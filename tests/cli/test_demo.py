"""The demo, as a person starts it: a process of its own, real files, real sockets, real seconds."""

import signal
import subprocess
import sys

import pytest

MAINSPRING = [sys.executable, "-W", "error", "-m", "mainspring"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAINSPRING, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_demo_ends_by_itself_with_every_letter_accounted_for() -> None:
    done = run("demo", "--seconds", "4")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Connection refused" in done.stdout
    assert "letter 01 is delivered" in done.stdout
    assert "None is lost." in done.stdout
    assert "96 times in 16 hours" in done.stdout


@pytest.mark.slow
def test_ctrl_c_closes_the_demo_early_and_in_order() -> None:
    with subprocess.Popen([*MAINSPRING, "demo", "--seconds", "60"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        while "in the ledger" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 0
    assert "None is lost." in rest


@pytest.mark.slow
def test_a_reader_who_has_seen_enough_ends_it_quietly() -> None:
    with subprocess.Popen(
        [*MAINSPRING, "demo", "--seconds", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 0


def test_wrong_usage_gets_one_clear_line_and_no_traceback() -> None:
    done = run("demo", "--seconds", "0")
    assert done.returncode == 2
    assert "0.0 is not in the range" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_says_what_it_is() -> None:
    assert run("--version").stdout.startswith("mainspring, version ")
    assert "demo" in run("--help").stdout
