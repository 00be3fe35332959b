"""Tables on a real terminal, wide and narrow, with rich and without."""

import re

import pytest

from tests.cli.conftest import WITHOUT_RICH, Shop, on_terminal

pytestmark = pytest.mark.slow

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LONG = "a_task_with_a_rather_long_name"


@pytest.fixture
def filled(shop: Shop) -> Shop:
    app = shop.app()
    for name in ("add", LONG):

        @app.task(name=name)
        async def task() -> None: ...

        task.enqueue_sync()
    app.close_sync()
    return shop


def table(shop: Shop, columns: int, code: str = "") -> list[str]:
    written, ended = on_terminal("jobs", "list", "--url", shop.url, columns=columns, code=code)
    assert ended == 0, written
    return [line.rstrip() for line in ESCAPE.sub("", written).splitlines()]


@pytest.mark.parametrize("code", ["", WITHOUT_RICH], ids=["rich", "plain"])
def test_ids_are_whole_and_rows_are_one_line_on_a_narrow_terminal(filled: Shop, code: str) -> None:
    lines = table(filled, 80, code)
    assert len(lines) == 3
    assert max(len(line) for line in lines) <= 80
    ids = [job["id"] for job in filled.lines("jobs", "list")]
    assert [line.split()[0] for line in lines[1:]] == ids
    assert "QUEUE" not in lines[0]
    assert re.search(r"a_task_\w*…", lines[1])


@pytest.mark.parametrize("code", ["", WITHOUT_RICH], ids=["rich", "plain"])
def test_a_wide_terminal_has_room_for_everything(filled: Shop, code: str) -> None:
    lines = table(filled, 120, code)
    assert "QUEUE" in lines[0]
    assert LONG in lines[1]


def test_states_are_coloured_where_rich_is_there_and_colours_are_wanted(filled: Shop) -> None:
    pytest.importorskip("rich")
    coloured, _ = on_terminal("jobs", "list", "--url", filled.url)
    assert "\x1b[1mID" in coloured
    plain, _ = on_terminal("jobs", "list", "--url", filled.url, code=WITHOUT_RICH)
    assert "\x1b" not in plain
