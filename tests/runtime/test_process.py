"""Whether a process has ended, as far as can be told from here. A wrong yes costs a living node its jobs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring.runtime import process
from mainspring.runtime.process import host, is_gone, this_process
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
def test_without_proc_two_machines_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
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
