"""What the pages about schedules show and list is what there is: programs, commands, options, fields."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.cli.schedules import schedules
from mainspring.client.plans import ScheduleOptions
from mainspring.client.schedules import Schedules
from mainspring.core.missed import Policy, Reason
from mainspring.core.schedule import Overlap, Run, Schedule
from tests.project.test_docs_code import ROOT, blocks, blocks_under, run_tests
from tests.project.test_docs_reference import listed, mentioned, names, public, rows, section

HOW_TO = "docs/how-to/run-on-a-schedule.md"
COMMAND_LINE = "docs/reference/command-line.md"


@pytest.mark.slow
def test_the_tests_in_the_how_to_pass(tmp_path: Path) -> None:
    assert run_tests(tmp_path, page="\n".join(blocks(HOW_TO))) == {"page": {"PASSED": 4}}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of `mainspring schedules` in a block of text, up to its first pipe, and the page that it is on."""
    for page in (HOW_TO, COMMAND_LINE):
        for block in blocks_under(page, language=""):
            for line in block.splitlines():
                words = shlex.split(line.removeprefix("$ ").split(" | ")[0]) if "mainspring schedules " in line else []
                if words[:2] == ["mainspring", "schedules"]:
                    yield page, words[2:]


@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_every_command_on_the_pages_can_be_understood(page: str, words: list[str]) -> None:
    name, *arguments = words
    command = schedules.commands[name]
    assert command.make_context(name, arguments).params, page


def test_there_are_commands_on_both_pages() -> None:
    found = list(commands())
    assert {page for page, _ in found} == {HOW_TO, COMMAND_LINE}
    assert {words[0] for _, words in found} >= {"add", "backfill", "explain", "list", "next", "pause", "run", "runs"}


def test_a_command_that_cannot_be_understood_is_noticed() -> None:
    with pytest.raises(click.UsageError):
        schedules.commands["next"].make_context("next", ["nightly", "--aftr", "2027-03-27"])


def test_the_slots_around_a_change_of_clocks_are_as_the_page_shows_them() -> None:
    (shown,) = [block for block in blocks_under(HOW_TO, "Zones", language="") if "explain" in block]
    first, *output = shown.splitlines()
    done = CliRunner().invoke(main, shlex.split(first)[2:], prog_name="mainspring")
    assert without_distance(done.output.splitlines()) == without_distance(output)


def without_distance(lines: list[str]) -> list[str]:
    """Leave out how far away a slot is: that is another number every day."""
    return [" ".join(re.sub(r"in \d+ \w+|\d+ \w+ ago", "", line).split()) for line in lines]


def test_every_option_of_a_schedule_is_listed() -> None:
    assert listed("schedules.md", "Options of a schedule") == set(ScheduleOptions.__annotations__)
    assert {name for name in Overlap if f'`"{name}"`' in section("schedules.md", "Options of a schedule")} == set(
        Overlap
    )


def test_every_method_is_listed_and_every_one_has_a_twin() -> None:
    members = public(Schedules)
    methods = {name for name in members if not name.endswith("_sync")}
    assert {f"{name}_sync" for name in methods} == members - methods
    assert methods == {name.split("(")[0].removeprefix("await ") for name in listed("schedules.md", "At run time")}


def test_every_policy_for_missed_slots_is_listed() -> None:
    assert {name.split("(")[0] for name in listed("schedules.md", "Missed")} == {f"Missed.{one}" for one in Policy}


def test_every_field_of_a_run_and_every_reason_is_listed() -> None:
    cells = {name for first, *_ in rows(section("schedules.md", "What is kept")) for name in names(first)}
    assert cells - {"reason"} == {*Run.__struct_fields__, "job", *(str(one) for one in Reason)} - {"reason"}


def test_what_is_said_to_be_in_a_schedule_is() -> None:
    there = {*Schedule.__struct_fields__, *public(Schedule)}
    told = mentioned(section("schedules.md", "What is kept").split("A `Run`")[0])
    assert told - there - {"Schedule", "rule", "template", "at", "by", "reason"} == set()


def test_every_command_and_every_option_of_add_is_on_the_page() -> None:
    text = (ROOT / COMMAND_LINE).read_text(encoding="utf-8")
    of_schedules = section("command-line.md", "schedules")
    assert [
        name for name in schedules.commands if f"`mainspring schedules {name}" not in text and name != "resume"
    ] == []
    options = {option for param in schedules.commands["add"].params for option in param.opts if option[:2] == "--"}
    assert {option for option in options - {"--json"} if option not in of_schedules} == set()
