"""Servers of tests that did not come to their end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.system import all_in, processes, signal_all, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import os, time
from pathlib import Path
from tests.servers.system import processes

def test_it(postgres):
    ((data, pid),) = postgres.sql("SELECT current_setting('data_directory'), pg_read_file('postmaster.pid')")
    postmaster = int(pid.split()[0])
    family = [postmaster, *(pid for pid, process in processes().items() if process.parent == postmaster)]
    {before}
    partial = Path("seen.partial")
    partial.write_text(f"{{os.getpid()}} {{Path(data).parent}} " + " ".join(map(str, family)))
    partial.rename("seen")
    time.sleep(600)
"""

FORKS = """
import os, sys
from tests.servers.postgres import new_server
with new_server() as server:
    child = os.fork()
    if child == 0:
        sys.exit(0)  # runs what was left for the end of the process
    os.waitpid(child, 0)
    print(server.runs, server.sql("SELECT 42"))
"""


@pytest.mark.parametrize(
    ("number", "options", "before"),
    [
        (signal.SIGINT, [], "pass"),
        pytest.param(signal.SIGINT, [], "postgres.freeze()", marks=pytest.mark.full),
        pytest.param(signal.SIGTERM, [], "pass", marks=pytest.mark.full),
        # 8 s: PostgreSQL waits 5 s for children that stand still
        pytest.param(signal.SIGKILL, [], "postgres.freeze()", marks=pytest.mark.full),
        (signal.SIGKILL, ["-n", "1"], "pass"),
    ],
    ids=["Ctrl-C", "Ctrl-C while frozen", "ended", "killed while frozen", "killed with xdist"],
)
def test_they_are_gone_afterwards(number: signal.Signals, options: list[str], before: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(SUITE.format(before=before), encoding="utf-8")
    variables = {name: value for name, value in os.environ.items() if name != "MAINSPRING_TEST_DSN"}
    tests = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.servers.fixtures", *options],
        cwd=tmp_path,
        env=variables | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seen = tmp_path / "seen"
    workers: list[int] = []
    try:
        wait_until(lambda: seen.exists() or tests.poll() is not None, "the server of the suite is there")
        worker, folder, *family = seen.read_text(encoding="utf-8").split()
        workers.append(int(worker))
        assert int(family[0]) in processes()

        tests.send_signal(number)
        tests.wait(60)

        wait_until(lambda: all_in("Z", map(int, family)), "all processes of the server have ended")
        wait_until(lambda: not Path(folder).exists(), "its folder is gone")
    finally:
        tests.kill()
        tests.wait()
        signal_all(workers, signal.SIGKILL)


def test_a_fork_of_the_tests_leaves_them_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert done.stdout == "True [(42,)]\n"
