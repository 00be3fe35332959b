"""Forks of a program that has a sidecar file open: the child opens the file anew, once its parent has closed it."""

from pathlib import Path

import pytest

from tests.stores import forking

pytestmark = pytest.mark.slow

TOOLS = """
from mainspring import Every
from mainspring.stores.sidecar import SidecarStore

def plan(name):
    asyncio.run(app.schedules.add(name, Every("1h"), add.call(1)))

def names():
    async def look():
        async with app:
            return [str(look.schedule.name) for look in (await app.store.list_schedules()).looks]
    return asyncio.run(look())
"""


@pytest.fixture(params=['"sidecar:///data"', 'SidecarStore("data")'], ids=["url", "object"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_child_is_refused_until_its_parent_has_closed_the_file(tmp_path: Path, store: str) -> None:
    program = """
plan("before")
def work(step):
    try:
        plan("beside")
    except StoreError as error:
        assert "in use by process" in str(error), error
    else:
        raise AssertionError("both have it")
    step()
    plan("child")
    app.close_sync()
child = Child(work)
child.wait()
plan("parent")
app.close_sync()
child.go()
child.join()
print(*names())
"""
    assert forking.run(program, tmp_path, store, tools=TOOLS) == ["before child parent"]
