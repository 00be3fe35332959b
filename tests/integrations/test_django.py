"""Django's ORM in tasks: connections that the server has closed do not fail every later job.

Each story is a program of its own, because Django is configured once for a whole process.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.servers.postgres import Server

PROGRAM = """
import asyncio
import json
import os
import sys
import django
import psycopg
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.db import close_old_connections, connection
from mainspring import Context, Mainspring, Retry
from mainspring.runtime.middleware import Next
from mainspring.stores.memory import MemoryStore

DSN, CONN_MAX_AGE, EXECUTOR = {dsn!r}, {max_age!r}, {executor!r}
NAME = f"django tasks {{os.getppid() if EXECUTOR == 'process' and __name__ != '__main__' else os.getpid()}}"

settings.configure(
    DATABASES={{
        "default": {{
            "ENGINE": "django.db.backends.postgresql",
            "NAME": {database!r},
            "CONN_MAX_AGE": CONN_MAX_AGE,
            "OPTIONS": {{**{options!r}, "application_name": NAME}},
        }}
    }}
)
django.setup()
app = Mainspring(MemoryStore())


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


async def async_backend() -> int:
    return await sync_to_async(backend)()


if EXECUTOR == "coroutine":

    @app.middleware
    async def django_connections(ctx: Context, call_next: Next) -> object:
        async with ThreadSensitiveContext():
            try:
                return await call_next()
            finally:
                await sync_to_async(close_old_connections)()


async def main() -> None:
    function = async_backend if EXECUTOR == "coroutine" else backend
    task = app.task(name="backend", executor=EXECUTOR, retry=Retry.fixed("10ms", max_attempts=3))(function)
    async with app.node(concurrency=1, processes=1):
        first = await (await task.enqueue()).result("1m")
        open_after_first = terminate()
        job = await task.enqueue()
        second = await job.result("1m")
        attempts = (await job.refresh()).job.attempt
    print(json.dumps({{"same": first == second, "attempts": attempts, "open after first": open_after_first}}))


def terminate() -> int:
    "Terminate the connections that Django has opened, and wait until they are gone; return how many there were."
    with psycopg.connect(DSN, autocommit=True) as other:
        terminated = other.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s", [NAME]
        ).fetchall()
        return len(terminated)


if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "max_age", "attempts"),
    [
        ("thread", None, 2),  # the first finds the connection closed, and has it replaced
        ("thread", 0, 1),  # Django's default: a connection is closed after each attempt
        ("process", None, 2),
        ("process", 0, 1),
        ("coroutine", 0, 1),  # by the middleware that the documentation shows
    ],
)
def test_a_connection_that_the_server_has_closed_is_replaced(
    postgres: Server, tmp_path: Path, executor: str, max_age: int | None, attempts: int
) -> None:
    options = conninfo_to_dict(postgres.dsn())
    database = options.pop("dbname")
    program = PROGRAM.format(dsn=postgres.dsn(), max_age=max_age, executor=executor, database=database, options=options)
    (tmp_path / "django_tasks.py").write_text(program, encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-m", "django_tasks"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "same": False,
        "attempts": attempts,
        "open after first": 1 if max_age is None else 0,
    }


WITHOUT_DJANGO = """
import asyncio
import sys
from mainspring import Mainspring
from mainspring.stores.memory import MemoryStore

app = Mainspring(MemoryStore())

def modules() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "django"]

async def main() -> None:
    async with app.node(processes=1):
        for executor in ("thread", "process"):
            print(await (await app.task(name=executor, executor=executor)(modules).enqueue()).result("1m"))

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.slow
def test_a_program_without_django_does_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "plain_tasks.py").write_text(WITHOUT_DJANGO, encoding="utf-8")

    ended = subprocess.run(
        [sys.executable, "-m", "plain_tasks"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert (ended.returncode, ended.stdout) == (0, "[]\n[]\n"), ended.stderr


UNCONFIGURED = """
import asyncio
import django.db
from mainspring import Mainspring
from mainspring.stores.memory import MemoryStore

app = Mainspring(MemoryStore())

@app.task
def work() -> int:
    return 7

async def main() -> None:
    async with app.node():
        print(await (await work.enqueue()).result("1m"))

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_program_that_has_loaded_django_and_not_configured_it_is_left_alone() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNCONFIGURED], capture_output=True, text=True, timeout=120, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7\n", "")


IN_A_TRANSACTION = """
import asyncio
import json
import django
from django.conf import settings
from django.db import connection, transaction
from mainspring import Mainspring

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}})
django.setup()
app = Mainspring("sqlite:///shop.db")

@app.task
def ship(order: int) -> None: ...

async def count() -> int:
    async with app:
        return len((await app.jobs()).jobs)

def place(order: int, *, fails: bool) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [order])
        ship.using(tx=connection.connection).enqueue_sync(order)
        if fails:
            raise RuntimeError

counts = [asyncio.run(count())]
with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE orders (id INTEGER)")
place(1, fails=False)
counts.append(asyncio.run(count()))
try:
    place(2, fails=True)
except RuntimeError:
    counts.append(asyncio.run(count()))
print(json.dumps(counts))
"""


@pytest.mark.slow
def test_a_job_is_enqueued_in_a_transaction_of_django(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_TRANSACTION],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "[0, 1, 1]\n"), ended.stderr
