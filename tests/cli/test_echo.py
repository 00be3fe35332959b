"""Control characters from the store: commands make them visible instead of sending them to the terminal."""

import asyncio
import logging
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import mainspring.cli
from mainspring import Every, Mainspring, Retry
from mainspring.cli.echo import visible, visible_json
from mainspring.cli.logs import JsonLines, Lines
from mainspring.errors import JobFailed
from tests.cli.conftest import Shop, cli, on_terminal

HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x1b]52;c;cm0gLXJm\x07 \x9b31m \u202eevil\r\x7f"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
SEVERAL = """
import sys
from mainspring.cli import main

for words in sys.argv[1:]:
    main(words.split(), prog_name="mainspring", standalone_mode=False)
    print("----")
"""
"""A program that runs one command after another, and says where each ends."""
SGR = re.compile(r"\x1b\[[0-9;]*m")  # colours, of rich


@pytest.fixture
def hostile(shop: Shop) -> tuple[Shop, str]:
    """A store with hostile text wherever a handler or a caller can put it; returns the id of the failed job, too."""
    app = Mainspring(shop.url)

    @app.schedule(Every("1h"), name="hourly")
    @app.task(name="hostile", retry=Retry.none(), breaker=True)
    async def work(text: str = HOSTILE) -> None:
        raise ValueError(text)

    async def fill() -> str:
        async with app.node():
            job = await work.using(tags=["tag"]).enqueue(HOSTILE)
            with suppress(JobFailed):
                await job.result(timeout="30s")
            await app.store.pause("default", by="me", reason=HOSTILE)
            await app.breakers.open("hostile", reason=HOSTILE)
            await app.schedules.pause("hourly")
        await app.close()
        return str(job.id)

    return shop, asyncio.run(fill())


COMMANDS = (
    ("jobs", "list"),
    ("jobs", "show", "{job}"),
    ("queues", "list"),
    ("breakers", "list"),
    ("breakers", "show", "hostile"),
    ("schedules", "list"),
    ("schedules", "show", "hourly"),
    ("nodes", "list", "--all"),
    ("top", "--once"),
)


def test_no_command_prints_control_characters(hostile: tuple[Shop, str]) -> None:
    shop, job = hostile
    printed = ""
    for command in COMMANDS:
        done = cli(*(word.format(job=job) for word in command), "--url", shop.url)
        assert done.exit_code == 0, done.output
        assert not CONTROL.search(done.output), command
        printed += done.output
    assert "\\x1b]0;PWNED" in printed, "what is hidden is still to be read"


@pytest.mark.slow
def test_no_table_on_a_terminal_has_control_characters(hostile: tuple[Shop, str]) -> None:
    shop, job = hostile
    commands = (("jobs", "list"), ("jobs", "show", job), ("queues", "list"), ("breakers", "list"))
    written, code = on_terminal(*map(" ".join, commands), columns=200, code=SEVERAL, MAINSPRING_URL=shop.url)
    assert code == 0, written
    *outputs, rest = written.replace("\r\n", "\n").split("----\n")
    assert (len(outputs), rest) == (len(commands), "")
    for command, output in zip(commands, outputs, strict=True):
        assert "\\x1b]0;PWNED" in output or command == ("jobs", "list"), command
        assert not CONTROL.search(SGR.sub("", output)), command


def test_json_keeps_the_text_and_is_printable(hostile: tuple[Shop, str]) -> None:
    shop, job = hostile
    done = cli("jobs", "show", job, "--json", "--url", shop.url)
    assert not CONTROL.search(done.output)
    assert msgspec.json.decode(done.output)["error"]["message"] == HOSTILE


def test_errors_are_printed_in_the_same_way(shop: Shop) -> None:
    done = cli("jobs", "list", "--task", HOSTILE, "--url", shop.url)
    assert not CONTROL.search(done.output)


def test_log_lines_of_a_worker_are_printable_and_keep_the_text() -> None:
    record = logging.LogRecord("shop", logging.ERROR, __file__, 1, "failed: %s", (HOSTILE,), None)
    line, as_json = Lines(with_process=False).format(record), JsonLines().format(record)
    assert not CONTROL.search(line)
    assert not CONTROL.search(as_json)
    assert msgspec.json.decode(as_json)["message"] == f"failed: {HOSTILE}"


def test_text_without_control_characters_stays_as_it_is() -> None:
    text = "Grüße\n\tan 日本 \N{ZERO WIDTH JOINER}\N{NO-BREAK SPACE}👩‍🚀"
    assert visible(text) == visible_json(text) == text


def test_commands_print_in_one_place() -> None:
    root = Path(mainspring.cli.__file__).parent
    others = [
        path for path in root.rglob("*.py") if path.name != "echo.py" and "click.echo(" in path.read_text("utf-8")
    ]
    assert others == []
