"""Whether a process has ended, as far as can be told from here. A wrong yes costs a living node its jobs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mainspring.runtime import process
from mainspring.runtime.process import cpu_of_neighbour, host, is_gone, this_process
from mainspring.stores.records import Process

PID = 2**22 + 1  # greater than any that Linux gives out


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a folder of ours stand in for /proc, in which everybody is hidden but who asks."""
    host()  # it is looked up once, and in the real one
    (tmp_path / "self").mkdir()
    monkeypatch.setattr(process, "PROC", tmp_path)
    return tmp_path


def enter(proc: Path, pid: int, *, started: str, state: str = "S", name: str = "python") -> Process:
    """Make the entry of a process, as the kernel writes it: its start is the twenty-second field."""
    folder = proc / str(pid)
    folder.mkdir()
    between = " ".join("0" * 18)
    (folder / "stat").write_text(f"{pid} ({name}) {state} {between} {started} 0 0\n", encoding="utf-8")
    return Process(host=host(), pid=pid, started=started)


@pytest.mark.usefixtures("proc")
def test_without_proc_two_machines_of_one_name_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for address in (1, 2):
        monkeypatch.setattr("uuid.getnode", lambda address=address: address)
        names.add(host.__wrapped__())

    assert len(names) == 2


def test_who_asks_is_there() -> None:
    assert not is_gone(this_process())


def test_a_process_that_has_ended_is_gone() -> None:
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], check=True, capture_output=True)
    assert is_gone(Process(host=host(), pid=int(child.stdout), started="then"))


def test_of_another_machine_nothing_is_known(proc: Path) -> None:
    enter(proc, PID, started="99")
    assert not is_gone(Process(host="another machine", pid=PID, started="77"))


def test_a_process_that_runs_is_there(proc: Path) -> None:
    assert not is_gone(enter(proc, PID, started="77"))


@pytest.mark.parametrize("pid", [os.getpid(), 1], ids=["ours", "of the system"])
def test_a_neighbour_whose_entry_is_hidden_is_there(proc: Path, pid: int) -> None:
    assert not (proc / str(pid)).exists()
    assert not is_gone(Process(host=host(), pid=pid, started="77"))


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_only_waits_for_its_parent_to_look_is_gone(proc: Path, state: str) -> None:
    assert is_gone(enter(proc, PID, started="77", state=state))


def test_a_process_whose_id_another_has_by_now_is_gone(proc: Path) -> None:
    enter(proc, PID, started="99")
    assert is_gone(Process(host=host(), pid=PID, started="77"))


@pytest.mark.parametrize("name", ["a) Z 1", "((", "two words", ") X"])
def test_the_name_of_a_program_does_not_decide_whether_it_runs(proc: Path, name: str) -> None:
    assert not is_gone(enter(proc, PID, started="77", name=name))


# How much of the processor a neighbour has used.


def test_the_processor_time_of_a_neighbour_grows_while_it_computes() -> None:
    program = "import sys\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout
            child.stdout.readline()
            neighbour = Process(host=host(), pid=child.pid, started=process._started(child.pid) or "")
            first = cpu_of_neighbour(neighbour)
            assert first is not None
            deadline = time.monotonic() + 60
            while (cpu_of_neighbour(neighbour) or 0.0) < first + 0.1:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            child.send_signal(signal.SIGSTOP)
            while cpu_of_neighbour(neighbour) is not None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            child.kill()
    assert cpu_of_neighbour(neighbour) is None


def test_the_processor_time_is_that_of_user_and_system_together(proc: Path) -> None:
    neighbour = enter(proc, PID, started="77")
    text = (proc / str(PID) / "stat").read_text(encoding="utf-8").split()
    text[13], text[14] = str(3 * os.sysconf("SC_CLK_TCK")), str(2 * os.sysconf("SC_CLK_TCK"))
    (proc / str(PID) / "stat").write_text(" ".join(text), encoding="utf-8")
    assert cpu_of_neighbour(neighbour) == 5.0


@pytest.mark.parametrize("state", ["T", "t", "Z"])
def test_a_neighbour_that_is_stopped_or_has_ended_uses_no_processor(proc: Path, state: str) -> None:
    assert cpu_of_neighbour(enter(proc, PID, started="77", state=state)) is None


def test_the_processor_time_of_others_than_neighbours_is_not_known(proc: Path) -> None:
    neighbour = enter(proc, PID, started="77")
    assert cpu_of_neighbour(neighbour) == 0.0
    assert cpu_of_neighbour(Process(host=host(), pid=PID, started="99")) is None, "the id was used again"
    assert cpu_of_neighbour(Process(host="another machine", pid=PID, started="77")) is None
    assert cpu_of_neighbour(Process(host=host(), pid=PID + 1, started="77")) is None
    assert cpu_of_neighbour(enter(proc, os.getpid(), started="77")) is None, "of the process that asks"
