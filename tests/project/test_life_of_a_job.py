"""The picture and the table of a job's life, as the documentation shows them, are those of the code."""

import re
import shutil
from collections.abc import Iterable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import combinations, pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from mainspring.core.job import Cause, State
from mainspring.core.machine import TRANSITIONS, Event, Transition

spec = spec_from_file_location("life_of_a_job", Path(__file__).parents[2] / "tools" / "life_of_a_job.py")
assert spec is not None
assert spec.loader is not None
tool = module_from_spec(spec)
spec.loader.exec_module(tool)

ADVICE = "is out of date; make it again with: python tools/life_of_a_job.py\n"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """A checkout with the two files in it, to be spoilt."""
    for file in (tool.PICTURE, tool.PAGE):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / file, tmp_path / file)
    return tmp_path


def arrows(steps: Iterable[Transition]) -> list[ET.Element]:
    return ET.fromstring(tool.svg(steps)).findall(f"{SVG}g[@data-steps]")  # noqa: S314 - our own picture


def named(step: Transition) -> str:
    return f"{step.source or 'new'}:{step.event}:{step.target or 'gone'}"


# The files


def test_the_picture_in_the_docs_is_drawn_from_the_table(root: Path) -> None:
    assert (root / tool.PICTURE).read_text(encoding="utf-8") == tool.svg(TRANSITIONS)


def test_the_table_in_the_docs_is_written_from_the_table(root: Path) -> None:
    page = (root / tool.PAGE).read_text(encoding="utf-8")

    assert page.partition(tool.BEGIN)[2].partition(tool.END)[0].strip() == tool.table(TRANSITIONS).strip()
    assert f"]({tool.PICTURE.name})" in page


def test_the_page_explains_every_state_and_every_cause(root: Path) -> None:
    page = (root / tool.PAGE).read_text(encoding="utf-8")

    assert [word for word in (*State, *Cause) if f"\n| `{word}` | " not in page] == []


def test_check_is_content_with_the_files_as_they_are(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--check"], root) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("file", [tool.PICTURE, tool.PAGE])
def test_check_names_the_file_that_is_out_of_date_and_leaves_it(
    copy: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoilt = (copy / file).read_text(encoding="utf-8").replace("a node claims it", "a mode claims it")
    (copy / file).write_text(spoilt, encoding="utf-8")

    assert tool.main(["--check"], copy) == 1
    assert capsys.readouterr().err == f"{file} {ADVICE}"
    assert (copy / file).read_text(encoding="utf-8") == spoilt


def test_a_picture_that_is_missing_is_out_of_date(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / tool.PICTURE).unlink()

    assert tool.main(["--check"], copy) == 1
    assert capsys.readouterr().err == f"{tool.PICTURE} {ADVICE}"


def test_without_check_both_are_made_again(root: Path, copy: Path) -> None:
    (copy / tool.PICTURE).unlink()
    page = (copy / tool.PAGE).read_text(encoding="utf-8")
    (copy / tool.PAGE).write_text(page.replace("a node claims it", "a mode claims it"), encoding="utf-8")

    assert tool.main([], copy) == 0
    for file in (tool.PICTURE, tool.PAGE):
        assert (copy / file).read_bytes() == (root / file).read_bytes()


@pytest.mark.parametrize("page", ["", "<!-- table: begin -->", "<!-- table: end --> <!-- table: begin -->"])
def test_a_page_without_both_marks_is_refused(page: str) -> None:
    with pytest.raises(tool.NoPlace, match=re.escape("life-of-a-job.md has no place for the table")):
        tool.with_table(page, "")


# What is drawn


def test_every_step_is_on_one_arrow() -> None:
    drawn = [step for arrow in arrows(TRANSITIONS) for step in arrow.attrib["data-steps"].split()]

    assert sorted(drawn) == sorted(map(named, TRANSITIONS))


def test_every_arrow_is_labelled_with_its_events() -> None:
    for arrow in arrows(TRANSITIONS):
        events = [step.split(":")[1] for step in arrow.attrib["data-steps"].split()]
        labels = [text.text for text in arrow.findall(f"{SVG}text")]
        assert labels == list(dict.fromkeys(events))


def test_what_all_waiting_states_share_is_one_arrow() -> None:
    assert [
        arrow.attrib["data-steps"].split() for arrow in arrows(TRANSITIONS) if ":claimed:" in arrow.attrib["data-steps"]
    ] == [["ready:claimed:running", "scheduled:claimed:running", "retrying:claimed:running"]]


def test_an_operators_arrows_look_different() -> None:
    operators = {
        step
        for arrow in arrows(TRANSITIONS)
        if "operator" in arrow.attrib["class"]
        for step in arrow.attrib["data-steps"].split()
    }

    assert operators == {named(step) for step in TRANSITIONS if "operator" in step.when}
    assert {"ready:cancelled:cancelled", "running:cancel_requested:running"} <= operators
    assert "running:cancelled:cancelled" not in operators


@pytest.mark.parametrize("gone", TRANSITIONS, ids=named)
def test_without_any_one_step_both_are_different(gone: Transition) -> None:
    fewer = [step for step in TRANSITIONS if step != gone]

    assert tool.table(fewer) != tool.table(TRANSITIONS)
    try:
        picture = tool.svg(fewer)
    except tool.NoPlace:
        return  # what two of three waiting states share has no arrow
    assert picture != tool.svg(TRANSITIONS)
    assert named(gone) not in picture


def test_a_further_event_on_a_known_way_gets_its_label() -> None:
    more = Transition(State.RUNNING, Event.MOVED, State.SCHEDULED, "put off by hand")
    [arrow] = [arrow for arrow in arrows([*TRANSITIONS, more]) if named(more) in arrow.attrib["data-steps"]]

    assert [text.text for text in arrow.findall(f"{SVG}text")] == ["snoozed", "moved"]
    assert "| `running` | `moved` | `scheduled` | put off by hand |\n" in tool.table([*TRANSITIONS, more])


@pytest.mark.parametrize(("step", "missing"), [
    (Transition(State.SUCCEEDED, Event.RETRIED, State.READY, ""), "no way for finished → ready (retried)"),
    (Transition(State.RUNNING, Event.DELETED, None, ""), "no way for running → gone (deleted)"),
    (Transition(None, Event.CLAIMED, State.RUNNING, ""), "no way for new → running (claimed)"),
    (Transition(State.FAILED, Event.MOVED, State.FAILED, ""), "no way for failed → itself (moved)"),
])  # fmt: skip
def test_an_arrow_that_has_no_way_is_an_error(step: Transition, missing: str) -> None:
    with pytest.raises(tool.NoPlace, match=re.escape(missing)):
        tool.svg([*TRANSITIONS, step])


def test_a_label_that_has_no_room_is_an_error() -> None:
    step = Transition(None, Event.RETRIED, State.READY, "")

    with pytest.raises(
        tool.NoPlace, match=re.escape("too little room for the labels of new → ready (enqueued, retried)")
    ):
        tool.svg([*TRANSITIONS, step])


def test_an_arrow_that_would_run_into_nothing_is_an_error() -> None:
    fewer = [step for step in TRANSITIONS if (step.source, step.event) != (State.FAILED, Event.RETRIED)]

    with pytest.raises(tool.NoPlace, match=re.escape("runs into failed → ready, which is not there")):
        tool.svg(fewer)


def test_a_state_that_has_no_box_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(tool.BOXES, State.FAILED)

    with pytest.raises(tool.NoPlace, match="no box for failed"):
        tool.svg(TRANSITIONS)


def test_a_row_joins_the_sources_of_one_event_and_keeps_what_differs_apart() -> None:
    written = tool.table(TRANSITIONS)

    assert written.startswith(
        "| from | event | to | when |\n| --- | --- | --- | --- |\n| (new) | `enqueued` | `ready` | "
    )
    assert "\n| `ready`, `scheduled`, `retrying` | `claimed` | `running` | a node claims it" in written
    assert written.count("| `cancelled` | `cancelled` |") == 2
    assert "`succeeded`, `failed`, `cancelled` | `deleted` | (gone) | " in written


def test_signs_that_mean_something_to_markdown_or_xml_are_kept_as_text() -> None:
    steps = [Transition(State.RUNNING, Event.FAILED, State.FAILED, "a|b <c> & d")]

    assert "| a\\|b <c> & d |" in tool.table(steps)
    assert arrows(steps)[0].findtext(f"{SVG}title") == "failed: a|b <c> & d"


# How it looks


def test_the_picture_says_what_it_shows_and_fetches_nothing() -> None:
    picture = tool.svg(TRANSITIONS)
    svg = ET.fromstring(picture)  # noqa: S314 - our own picture

    assert svg.findtext(f"{SVG}title") == "The life of a job"
    assert "ready, scheduled, retrying to running, claimed: a node claims it" in svg.findtext(f"{SVG}desc", "")
    assert "prefers-color-scheme: dark" in picture
    assert picture.count("://") == 1  # the name of SVG itself
    assert not re.search(r"<script|<image|<use|href|@import|url\(|\bon[a-z]+=", picture)


class Area(NamedTuple):
    """Where something is on the picture."""

    name: str
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Area") -> bool:
        level = self.left < other.right and other.left < self.right
        return level and self.top < other.bottom and other.top < self.bottom


def labels(svg: ET.Element) -> Iterator[Area]:
    """Events are in a monospaced face, 0.6 of its height wide; a note's face is 0.65 at most."""
    for text in svg.iter(f"{SVG}text"):
        if "class" in text.attrib:
            name, x, y = text.text or "", float(text.attrib["x"]), float(text.attrib["y"])
            width = len(name) * (14 * 0.6 if text.attrib["class"] == "event" else 13 * 0.65)
            left = x - width / 2 if text.get("text-anchor") == "middle" else x
            yield Area(name, left, y - 11, left + width, y + 4)


def lines(svg: ET.Element) -> Iterator[Area]:
    for path in svg.iter(f"{SVG}path"):
        numbers = iter(map(float, re.findall(r"[\d.]+", path.attrib["d"])))
        for (x, y), (u, v) in pairwise(zip(numbers, numbers, strict=True)):
            yield Area(f"line at {x:g} {y:g}", min(x, u), min(y, v), max(x, u), max(y, v))


def boxes(svg: ET.Element) -> Iterator[Area]:
    for box in svg.findall(f"{SVG}rect[@rx='10']"):
        x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        yield Area(box.attrib["class"], x, y, x + width, y + height)


def clashes(picture: str) -> list[tuple[str, str]]:
    svg = ET.fromstring(picture)  # noqa: S314 - our own picture
    among = [*combinations(labels(svg), 2)]
    over = [(label, other) for label in labels(svg) for other in [*lines(svg), *boxes(svg)]]
    return [(one.name, other.name) for one, other in among + over if one.meets(other)]


def test_no_label_lies_on_a_line_on_a_state_or_on_another_label() -> None:
    assert clashes(tool.svg(TRANSITIONS)) == []


@pytest.mark.parametrize(("label", "moved", "clash"), [
    ('x="340" y="242"', 'x="340" y="254"', ("snoozed", "line at 408 250")),
    ('x="578" y="162"', 'x="620" y="162"', ("succeeded", "state succeeded")),
    ('x="340" y="162"', 'x="340" y="150"', ("lost", "given_back")),
])  # fmt: skip
def test_a_label_that_does_would_be_found(label: str, moved: str, clash: tuple[str, str]) -> None:
    assert clash in clashes(tool.svg(TRANSITIONS).replace(label, moved))


@pytest.mark.parametrize("ends", tool.ROUTES, ids=" → ".join)
def test_every_way_leads_from_the_edge_of_its_source_to_the_edge_of_its_target(ends: tuple[str, str]) -> None:
    route = tool.ROUTES[ends]
    places = {**tool.BOXES, "new": tool.START_DOT, "gone": tool.END_MARK}
    places |= {name: frame.box for name, frame in tool.FRAMES.items()}
    source, target = ends[0], ends[0] if ends[1] == "itself" else ends[1]

    assert on_edge(route.way[0], places[source])
    if route.joins:
        assert any(between(route.way[-1], *line) for line in pairwise(tool.ROUTES[route.joins].way))
    else:
        assert on_edge(route.way[-1], places[target])


def on_edge(point: tuple[int, int], box: tuple[int, int, int, int]) -> bool:
    left, top, width, height = box
    corners = [(left, top), (left + width, top), (left + width, top + height), (left, top + height), (left, top)]
    return any(between(point, *edge) for edge in pairwise(corners))


def between(point: tuple[int, int], one: tuple[int, int], other: tuple[int, int]) -> bool:
    (x, y), (left, right), (top, bottom) = point, sorted([one[0], other[0]]), sorted([one[1], other[1]])
    return left <= x <= right and top <= y <= bottom
