"""What the reference pages list is what there is: names, attributes and defaults, and links that lead somewhere."""

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Context, JobHandle, Mainspring, Task, errors
from mainspring.client.declaration import TaskOptions
from mainspring.client.look import Look
from mainspring.client.options import Using
from mainspring.client.overview import Overview
from mainspring.runtime.events import StateChange
from mainspring.settings import NodeSettings

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"


def section(page: str, title: str) -> str:
    """The text of a page from one heading to the next of the same kind."""
    text = (REFERENCE / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no section {title!r}"
    return found[1]


def rows(text: str) -> Iterator[list[str]]:
    """The rows of the tables in a text, as cells, without their heads."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def mentioned(text: str) -> set[str]:
    """Every word in the code of a text."""
    return set(re.findall(r"\w+", " ".join(names(text))))


def listed(page: str, title: str) -> set[str]:
    return {name for first, *_ in rows(section(page, title)) for name in names(first)}


def test_every_error_is_listed_with_its_attributes() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    told = {cells[0].strip("`"): names(cells[-1]) for cells in rows(text)}
    there = {
        name: [one for one in inspect.signature(cls.__init__).parameters if one != "self"]
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, errors.MainspringError) and cls is not errors.MainspringError
    }
    assert told == there


@pytest.mark.parametrize(("title", "options"), [("Options of a task", TaskOptions), ("Options of an enqueue", Using)])
def test_every_option_is_listed(title: str, options: Any) -> None:  # noqa: ANN401 - a TypedDict is no type
    assert listed("jobs.md", title) == set(options.__annotations__)


@pytest.mark.parametrize(
    ("title", "cls", "not_for_users"),
    [
        ("The app", Mainspring, set()),
        ("A task", Task, set()),
        ("A handle", JobHandle, set()),
        ("The context", Context, {"link"}),
        ("Listeners", StateChange, set()),
    ],
)
def test_every_member_is_listed(title: str, cls: type, not_for_users: set[str]) -> None:
    twins = {name for name in public(cls) if name.endswith("_sync")}
    assert public(cls) - twins - not_for_users - mentioned(section("jobs.md", title)) == set()


def test_the_settings_of_a_node_are_listed_with_their_defaults() -> None:
    told = {names(name)[0]: default for name, default, *_ in rows(section("settings.md", "Nodes"))}
    assert told == {
        field.name: "none" if field.name == "tick" else as_written(field.default)
        for field in dataclasses.fields(NodeSettings)
    }


def as_written(default: object) -> str:
    match default:
        case None:
            return "all"
        case str():
            return f'`"{default}"`'
        case _:
            return str(default)


def test_every_page_is_in_the_navigation() -> None:
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(leaves(navigation)) == pages


def leaves(tree: Any) -> Iterator[str]:  # noqa: ANN401 - what TOML holds
    if isinstance(tree, str):
        yield tree
        return
    for branch in tree.values() if isinstance(tree, dict) else tree:
        yield from leaves(branch)


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_pages_outside_of_the_site_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    assert [target for target in targets if not leads_somewhere(target)] == []


def leads_somewhere(target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = ROOT / path
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_link_that_leads_nowhere_is_noticed() -> None:
    assert leads_somewhere("docs/explanation/sqlite.md#durability")
    assert not leads_somewhere("docs/explanation/sqlite.md#durabilty")
    assert not leads_somewhere("docs/explanation/sqlit.md")


def test_every_warning_of_the_overview_is_listed() -> None:
    """Those that only the doctor gives are not."""
    folder = ROOT / "src/mainspring/client/health"
    given = {
        code
        for path in folder.glob("*.py")
        for code in re.findall(r'"([a-z]+_[a-z_]+|unanswered)"\)', path.read_text(encoding="utf-8"))
    }
    told = {code for first, *_ in rows(section("overview.md", "Warnings")) for code in names(first)}
    assert told == given - {"schedule_unknown_task", "schedule_unreadable"}


def test_every_field_of_a_look_is_listed() -> None:
    assert listed("overview.md", "A look") == set(Look.__struct_fields__)


def test_every_member_of_the_overview_is_listed() -> None:
    assert mentioned(section("overview.md", "The overview")) >= public(Overview)
