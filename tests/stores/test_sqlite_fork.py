"""Forks of a program that has a SQLite file open: every enqueue that returned is stored, whichever process closes the file first.

Each test is a program of its own, with real processes; rows are counted by another process, which opens and closes the
file while the others go on.
"""

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from mainspring.stores.sqlite import fork
from tests.stores import forking

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system"),
]

URL = '"sqlite:///jobs.db"'
OBJECT = 'SqliteStore("jobs.db")'
TOOLS = """
from mainspring.stores.sqlite import SqliteStore

def rows(file="jobs.db"):
    # In another process, which is the last one to close the file wherever the locks of this one are not real.
    script = f"import sqlite3; c = sqlite3.connect({file!r}); print(*c.execute('SELECT count(*) FROM mainspring_jobs').fetchone()); c.close()"
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

def refused(name):
    began = time.monotonic()
    try:
        add.enqueue_sync(1)
    except StoreError as error:
        assert "forked while the file was open" in str(error), error
        assert "spawn" in str(error), error
        assert time.monotonic() - began < 30
        print(name, flush=True)
    else:
        raise AssertionError("it was enqueued")
"""


@pytest.fixture(params=[pytest.param(URL, id="url"), pytest.param(OBJECT, id="object", marks=pytest.mark.full)])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(program: str, folder: Path, store: str = URL) -> list[str]:
    return forking.run(program, folder, store, tools=TOOLS)


def count(folder: Path, file: str = "jobs.db") -> int:
    connection = sqlite3.connect(folder / file)
    try:
        return int(connection.execute("SELECT count(*) FROM mainspring_jobs").fetchone()[0])
    finally:
        connection.close()


# What the parent does meanwhile


def test_a_child_of_an_idle_parent_loses_nothing(tmp_path: Path, store: str) -> None:
    program = """
enqueue(1)
child = Child(in_three_parts)
child.wait()
print(rows())
child.go()
child.wait()
print(rows())
child.go()
child.join()
enqueue(1)
print(rows())
"""
    assert run(program, tmp_path, store) == ["2", "52", "103"]


def test_a_child_loses_nothing_when_the_parent_closes_the_file(tmp_path: Path, store: str) -> None:
    program = """
enqueue(1)
child = Child(in_three_parts)
child.wait()
app.close_sync()
child.go()
child.wait()
print(rows())
child.go()
child.join()
print(rows())
"""
    assert run(program, tmp_path, store) == ["52", "102"]


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit()"])
def test_a_child_loses_nothing_when_the_parent_has_ended(tmp_path: Path, store: str, end: str) -> None:
    """As with a program that makes itself a daemon, and with an operator who looks at its jobs from outside."""
    program = f"""
enqueue(1)
def work(step):
    parent = os.getppid()
    enqueue(1)
    step()
    while os.getppid() == parent:
        time.sleep(0.001)
    print(rows(), flush=True)
    enqueue(50)
    print(rows(), flush=True)
    enqueue(50)
child = Child(work)
child.wait()
child.go()
{end}
"""
    assert run(program, tmp_path, store) == ["2", "52"]
    assert count(tmp_path) == 102


def test_parent_and_children_that_write_all_the_time_lose_nothing(tmp_path: Path, store: str) -> None:
    program = """
enqueue(1)
def write():
    while not stop.is_set():
        enqueue(1)
        done.append(1)
def read():
    while not stop.is_set():
        asyncio.run(app.jobs(limit=10))
def work(step):
    enqueue(1)
    step()
    enqueue(200)
done, stop = [], threading.Event()
threads = [threading.Thread(target=target) for target in (write, write, read)]
for thread in threads:
    thread.start()
children = []
for number in range(1, 6):
    children.append(Child(work))
    children[-1].wait()
    assert rows() >= number
for child in children:
    child.go()
for child in children:
    child.join()
before = len(done)
while len(done) < before + 10:
    time.sleep(0.001)
stop.set()
for thread in threads:
    thread.join()
print(rows() - 1 - len(done))
"""
    assert run(program, tmp_path, store) == [str(5 * 201)]


def test_a_fork_in_a_thread_leaves_the_others_at_work(tmp_path: Path, store: str) -> None:
    program = """
enqueue(1)
def write():
    while not stop.is_set():
        enqueue(1)
        done.append(1)
def fork():
    child = Child(in_three_parts)
    child.wait(), child.go(), child.wait(), child.go(), child.join()
done, stop = [], threading.Event()
threads = [threading.Thread(target=write) for _ in range(3)]
forks = [threading.Thread(target=fork) for _ in range(3)]
for thread in threads + forks:
    thread.start()
for thread in forks:
    thread.join()
stop.set()
for thread in threads:
    thread.join()
print(rows() - 1 - len(done))
"""
    assert run(program, tmp_path, store) == ["303"]


def test_a_child_may_fork_again_and_end_first(tmp_path: Path, store: str) -> None:
    program = """
enqueue(1)
def middle(step):
    enqueue(1)
    grandchild = Child(in_three_parts)
    grandchild.wait()
    enqueue(1)
    grandchild.go()
    grandchild.wait()
    app.close_sync()
    print(rows(), flush=True)
    grandchild.go()
    grandchild.join()
Child(middle).join()
app.close_sync()
print(rows())
"""
    assert run(program, tmp_path, store) == ["54", "104"]


def test_a_parent_goes_on_with_its_node_and_a_child_enqueues_for_it(tmp_path: Path, store: str) -> None:
    program = """
async def main():
    async with app.node():
        assert await (await add.enqueue(1)).result() == 2
        child = Child(in_three_parts)
        child.wait(), child.go(), child.wait(), child.go()
        await asyncio.to_thread(child.join)
        assert await (await add.enqueue(2)).result() == 3
        states = set()
        while states != {"succeeded"}:
            await asyncio.sleep(0.01)
            jobs = (await app.jobs(limit=200)).jobs
            states = {view.job.state for view in jobs}
        print(len(jobs))
asyncio.run(main())
"""
    assert run(program, tmp_path, store) == ["103"]


# Where the fork is


def test_a_fork_inside_of_an_event_loop_with_enqueues_under_way(tmp_path: Path, store: str) -> None:
    program = """
async def main():
    await add.enqueue(0)
    jobs = [asyncio.create_task(add.enqueue(number)) for number in range(100)]
    await asyncio.sleep(0)
    child = Child(in_three_parts)
    await asyncio.gather(*jobs)
    child.wait(), child.go(), child.wait()
    await app.close()
    child.go(), child.join()
asyncio.run(main())
print(rows())
"""
    assert run(program, tmp_path, store) == ["202"]


def test_a_fork_in_a_signal_handler_that_interrupts_the_callers_thread(tmp_path: Path, store: str) -> None:
    program = """
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(Child(in_three_parts)))
enqueue(1)
count = 1
for number in range(1, 9):
    signal.setitimer(signal.ITIMER_REAL, 0.005)  # once
    while len(children) < number:
        enqueue(1)
        count += 1
for child in children:
    child.wait(), child.go(), child.wait(), child.go(), child.join()
print(rows() - count - 101 * len(children))
"""
    assert run(program, tmp_path, store) == ["0"]


def test_a_fork_while_the_file_is_opened_or_closed(tmp_path: Path, store: str) -> None:
    program = """
enqueue(1)
def open_and_close():
    while not stop.is_set():
        enqueue(1)
        done.append(1)
        app.close_sync()
done, stop = [], threading.Event()
thread = threading.Thread(target=open_and_close)
thread.start()
children = []
for _ in range(10):
    children.append(Child(in_three_parts))
    before = len(done)
    while len(done) <= before:
        time.sleep(0.001)
for child in children:
    child.wait(), child.go(), child.wait(), child.go(), child.join()
stop.set()
thread.join()
print(rows() - 1 - len(done))
"""
    assert run(program, tmp_path, store) == ["1010"]


def test_a_fork_pauses_all_existing_stores_of_a_program(tmp_path: Path) -> None:
    program = """
others = [Mainspring(f"sqlite:///{name}.db") for name in ("jobs", "other", "gone")]  # the first is the same file
for other in others:
    other.task(name="add")(lambda: None)
    other.enqueue_sync("add")
others.pop().close_sync()
del other
gc.collect()
enqueue(1)
def work(step):
    in_three_parts(lambda: None)
    step()
    for other in others:
        for _ in range(50):
            other.enqueue_sync("add")
child = Child(work)
child.wait()
app.close_sync()
for other in others:
    other.close_sync()
print(rows(), rows("other.db"))
child.go()
child.join()
print(rows(), rows("other.db"), rows("gone.db"))
"""
    assert run(program, tmp_path) == ["103 1", "153 51 1"]


def test_a_store_without_an_app_goes_on_in_a_child(tmp_path: Path) -> None:
    program = """
async def main():
    store = SqliteStore("jobs.db")
    await store.open()
    assert await store.acquire("first", "parent", HOUR)
    def work(step):
        async def later():
            assert await store.acquire("first", "child", HOUR) is None
            assert await store.acquire("second", "child", HOUR)
            step()
            assert await store.acquire("third", "child", HOUR)
            await store.close()
        asyncio.run(later())
    child = await asyncio.to_thread(Child, work)
    child.wait()
    await store.close()
    child.go()
    child.join()
    await store.open()
    print([await store.acquire(name, "parent", HOUR) for name in ("second", "third")])
    await store.close()
HOUR = timedelta(hours=1)
asyncio.run(main())
"""
    assert run(program, tmp_path) == ["[None, None]"]


def test_a_child_can_use_the_file_after_a_fork_while_a_transaction_waits_for_the_lock_of_another_process(
    tmp_path: Path, store: str
) -> None:
    program = """
holder = '''
import sqlite3, sys
connection = sqlite3.connect("jobs.db", isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
'''
async def main():
    async with app:
        async with app.store.transaction() as tx:
            await tx.execute("SELECT 1")
        other = subprocess.Popen([sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdout.readline()
        async def wait():
            async with app.store.transaction() as tx:
                await add.using(tx=tx).enqueue(1)
        waiting = asyncio.create_task(wait())
        while not app.store._file.transactions._turn._is_held:
            await asyncio.sleep(0.001)
        child = Child(in_three_parts)
        other.communicate(b"\\n")
        await waiting
        child.wait(), child.go(), child.wait(), child.go(), child.join()
asyncio.run(main())
print(rows())
"""
    assert run(program, tmp_path, store) == ["102"]


# What cannot be paused


def test_a_child_is_refused_if_it_was_forked_amid_a_transaction(tmp_path: Path, store: str) -> None:
    program = """
async def main():
    async with app:
        await add.enqueue(0)
        async with app.store.transaction(limit=timedelta(seconds=60)) as tx:
            await add.using(tx=tx).enqueue(1)
            def work(step):
                refused("refused")
                try:
                    asyncio.run(tx.execute("SELECT 1"))
                except StoreError as error:
                    print("transaction of another process" if "belongs to the parent process" in str(error) else error)
            child = await asyncio.to_thread(Child, work)
            await add.using(tx=tx).enqueue(2)
        child.join()
        await add.enqueue(3)
        again = Child(in_three_parts)
        again.wait(), again.go(), again.wait(), again.go(), again.join()
asyncio.run(main())
print(rows())
"""
    assert run(program, tmp_path, store) == ["refused", "transaction of another process", "105"]


@pytest.mark.parametrize("is_first", [False, True], ids=["in both", "in the child alone"])
def test_a_child_is_refused_while_the_user_had_the_file_open(tmp_path: Path, store: str, is_first: bool) -> None:
    program = f"""
enqueue(1)
mine = sqlite3.connect("jobs.db")
mine.execute("PRAGMA schema_version").fetchall()
if {is_first}:
    app.close_sync()
Child(lambda step: refused("child")).join()
Child(lambda step: Child(lambda step: refused("grandchild")).join()).join()
enqueue(1)
mine.close()
child = Child(in_three_parts)
child.wait()
app.close_sync()
child.go(), child.wait(), child.go(), child.join()
print(rows())
"""
    assert run(program, tmp_path, store) == ["child", "grandchild", "103"]


def test_a_child_is_not_refused_after_it_closed_the_file_that_it_inherited(tmp_path: Path) -> None:
    program = """
file = open("jobs.db", "w+b")
def work(step):
    refused("refused")
    file.close()
    enqueue(1)
Child(work).join()
print(rows())
"""
    assert run(program, tmp_path) == ["refused", "1"]


@pytest.mark.parametrize("when", ["before", "after_in_parent"])
def test_a_fork_hook_that_uses_the_store_fails_and_the_fork_succeeds(tmp_path: Path, when: str) -> None:
    """A hook of another library, registered so that it is called while the connections are closed."""
    tools = f"""
import os
def hook():
    try:
        add.enqueue_sync(1)
    except Exception as error:
        print("a fork of this process is under way" in str(error), flush=True)
os.register_at_fork({when}=hook)
"""
    program = """
enqueue(1)
Child(lambda step: None).join()
enqueue(1)
print(rows())
"""
    assert forking.run(program, tmp_path, URL, tools=tools + TOOLS) == ["True", "2"]


# What is no fork of the program


def test_forks_that_overlap_share_one_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else forks of several threads keep the store closed for as long as a transaction lasts."""
    guard = fork.ForkGuard()
    connection = sqlite3.connect(":memory:", factory=fork.Connection)
    guard.opening(connection)
    monkeypatch.setattr(fork, "PAUSE_LIMIT_S", 0.01)
    guard.before_fork()
    monkeypatch.setattr(fork, "PAUSE_LIMIT_S", 600)
    second = threading.Thread(target=guard.before_fork, daemon=True)
    second.start()
    second.join(30)
    assert not second.is_alive()
    connection.close()


def test_a_subprocess_does_not_close_the_file(tmp_path: Path) -> None:
    program = """
enqueue(1)
def is_open():
    for name in os.listdir("/dev/fd"):
        try:
            if os.path.samestat(os.fstat(int(name)), os.stat("jobs.db")):
                return True
        except OSError:
            pass
    return False
async def by_asyncio():
    await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()
print(is_open())
subprocess.run([sys.executable, "-c", ""], check=True)
asyncio.run(by_asyncio())
print(is_open())
os.waitpid(os.fork() or os._exit(0), 0)
print(is_open())
enqueue(1)
print(is_open())
"""
    assert run(program, tmp_path) == ["True", "True", "False", "True"]
