"""Tables on a real terminal, wide and narrow, with rich and without."""

import re
from dataclasses import dataclass
from itertools import product

import pytest

from tests.cli.conftest import WITHOUT_RICH, Shop, on_terminal

pytestmark = pytest.mark.slow

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LONG = "a_task_with_a_rather_long_name"


WITH_RICH, PLAIN = "", WITHOUT_RICH


@dataclass(frozen=True, slots=True)
class Screens:
    """What a list of two jobs looks like on terminals, by columns and by the program that shows it."""

    ids: list[str]
    written: dict[tuple[int, str], str]

    def table(self, columns: int, code: str) -> list[str]:
        return [line.rstrip() for line in ESCAPE.sub("", self.written[columns, code]).splitlines()]


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Screens:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    app = shop.app()
    for name in ("add", LONG):

        @app.task(name=name)
        async def task() -> None: ...

        task.enqueue_sync()
    app.close_sync()
    written = {}
    for columns, code in product((80, 120), (WITH_RICH, PLAIN)):
        written[columns, code], ended = on_terminal("jobs", "list", "--url", shop.url, columns=columns, code=code)
        assert ended == 0, written
    return Screens([job["id"] for job in shop.lines("jobs", "list")], written)


@pytest.mark.parametrize("code", [WITH_RICH, PLAIN], ids=["rich", "plain"])
def test_ids_are_whole_and_rows_are_one_line_on_a_narrow_terminal(screens: Screens, code: str) -> None:
    lines = screens.table(80, code)
    assert len(lines) == 3
    assert max(len(line) for line in lines) <= 80
    assert [line.split()[0] for line in lines[1:]] == screens.ids
    assert "QUEUE" not in lines[0]
    assert re.search(r"a_task_\w*…", lines[1])


@pytest.mark.parametrize("code", [WITH_RICH, PLAIN], ids=["rich", "plain"])
def test_a_wide_terminal_has_room_for_everything(screens: Screens, code: str) -> None:
    lines = screens.table(120, code)
    assert "QUEUE" in lines[0]
    assert LONG in lines[1]


def test_states_are_coloured_where_rich_is_there_and_colours_are_wanted(screens: Screens) -> None:
    pytest.importorskip("rich")
    assert "\x1b[1mID" in screens.written[80, WITH_RICH]
    assert "\x1b" not in screens.written[80, PLAIN]
