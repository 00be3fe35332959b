"""Enqueuing in a transaction of the user's own: the job is there when that commits, or never."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import DeclarationError
from mainspring.testing import VirtualTime


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app(file: Path, virtual_time: VirtualTime) -> Iterator[Mainspring]:
    app = Mainspring(f"sqlite:///{file}", clock=virtual_time.clock)
    app.task(name="resize")(resize)
    yield app
    app.close_sync()


def resize(photo: int) -> int:
    return photo


async def photos(app: Mainspring) -> list[bytes]:
    return [view.payload for view in reversed((await app.jobs()).jobs)]


async def test_a_job_commits_with_the_users_own_writes_or_not_at_all(app: Mainspring, file: Path) -> None:
    task = app.find("resize")
    async with app:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE photos (id INTEGER)")
            connection.execute("INSERT INTO photos VALUES (1)")
            first = await task.using(tx=connection).enqueue(1)
            assert first.fresh
            assert await photos(app) == []
            connection.rollback()
            assert await photos(app) == []

            connection.execute("INSERT INTO photos VALUES (2)")
            await task.using(tx=connection, delay="1m").enqueue(2)
            await task.using(tx=connection).enqueue_many([task.call(3), task.call(4)])
            await app.enqueue_many([task.call(5)], tx=connection)
            connection.commit()

        assert await photos(app) == [b'{"v":1,"args":{"photo":%d}}' % photo for photo in (2, 3, 4, 5)]


async def test_code_without_a_loop_writes_in_its_own_thread(app: Mainspring, file: Path) -> None:
    task = app.find("resize")
    made: list[bool] = []

    def work() -> None:
        with closing(sqlite3.connect(file)) as connection:  # of this thread, and no other may touch it
            connection.execute("BEGIN IMMEDIATE")
            made.append(task.using(tx=connection).enqueue_sync(1).fresh)
            task.using(tx=connection).enqueue_many_sync([task.call(2)])
            app.enqueue_many_sync([task.call(3)], tx=connection)
            connection.commit()

    async with app:
        await asyncio.to_thread(work)
        assert made == [True]
        assert len(await photos(app)) == 3


async def test_a_committed_job_wakes_those_who_wait_for_jobs(app: Mainspring, file: Path) -> None:
    task = app.find("resize")
    async with app.node():
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            job = await task.using(tx=connection).enqueue(7)
            connection.commit()
        assert await job.result(timeout="1m") == 7


async def test_a_connection_to_elsewhere_is_refused(app: Mainspring, tmp_path: Path) -> None:
    task = app.find("resize")
    async with app:
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            for tx in (connection, threading.Lock()):
                with pytest.raises(DeclarationError):
                    await task.using(tx=tx).enqueue(7)
                with pytest.raises(DeclarationError):
                    task.using(tx=tx).enqueue_sync(7)
        assert await photos(app) == []
