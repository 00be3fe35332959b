"""Draws what a benchmark has kept as an SVG: bars with their spread, lines over rounds, and what was aimed at.

python -m bench.postgres.kit.plot           # all again, from the last line of each benchmark in bench/results
"""

import json
import sys
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

WIDTH, LEFT, RIGHT, MARGIN = 760, 164, 136, 24
BAR, GAP, LINE = 18, 8, 20
OURS, OTHERS, FAINT, TEXT, QUIET = "#0b7285", "#a7b1bc", "#e3e7eb", "#1c2733", "#5c6b7a"
GOOD, BAD = "#2b7a3d", "#b3261e"
LINES = ("#7b8794", "#b08d57", "#a06cd5")  # of the others, where grey alone would not tell them apart

Record = dict[str, Any]


class Drawing:
    """An SVG that grows downwards."""

    def __init__(self) -> None:
        self.top = MARGIN
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, *, size: int = 13, fill: str = TEXT, **more: str) -> None:
        self._add("text", escape(words), x=x, y=y, font_size=size, fill=fill, **more)

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self._add("rect", x=x, y=y, width=max(width, 1), height=height, fill=fill, rx=2)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, **more: str) -> None:
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **more)

    def path(self, points: Iterable[tuple[float, float]], stroke: str) -> None:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", points=joined, fill="none", stroke=stroke, stroke_width=2)

    def dot(self, x: float, y: float, fill: str) -> None:
        self._add("circle", cx=x, cy=y, r=2.5, fill=fill)

    def svg(self) -> str:
        height = self.top + MARGIN
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, sans-serif">\n<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
        )

    def _add(self, kind: str, content: str = "", **attributes: object) -> None:
        written = " ".join(f'{name.replace("_", "-")}="{short(value)}"' for name, value in attributes.items())
        self._parts.append(f"<{kind} {written}>{content}</{kind}>" if content else f"<{kind} {written}/>")


def draw(record: Record, path: Path) -> None:
    drawing = Drawing()
    drawing.text(MARGIN, drawing.top + 10, record["title"], size=17, font_weight="600")
    drawing.top += 34
    for (group, unit), those in panels(record["figures"]):
        bars(drawing, f"{group}, {unit}" if group else unit, those, scale_of(those, record["figures"]))
    if record["lines"]:
        curves(drawing, record["lines"])
    aims(drawing, record["checks"])
    footer(drawing, record)
    path.write_text(drawing.svg(), encoding="utf-8")


def bars(drawing: Drawing, title: str, figures: list[Record], most: float) -> None:
    """One bar for each figure, as long as its median; the thin line is its spread over the rounds."""
    heading(drawing, title)
    scale = (WIDTH - LEFT - RIGHT) / (most or 1)
    for one in figures:
        y = drawing.top
        middle = y + BAR / 2
        drawing.text(LEFT - 10, middle + 4, one["name"], text_anchor="end")
        drawing.box(LEFT, y, one["median"] * scale, BAR, OURS if is_ours(one) else OTHERS)
        end = LEFT + one["high"] * scale
        if one["high"] > one["low"]:
            drawing.line(LEFT + one["low"] * scale, middle, end, middle, TEXT, stroke_width="1.5")
            for x in (LEFT + one["low"] * scale, end):
                drawing.line(x, middle - 4, x, middle + 4, TEXT, stroke_width="1.5")
        drawing.text(end + 8, middle + 4, written(one["median"]))
        drawing.top += BAR + GAP
    drawing.top += 10


def curves(drawing: Drawing, figures: list[Record]) -> None:
    """Values that follow each other, named at their right end."""
    heading(drawing, figures[0]["unit"])
    height, rounds = 180, max(len(one["values"]) for one in figures)
    top, most = float(drawing.top), 1.05 * max([1.0, *(float(one["high"]) for one in figures)])
    across = (WIDTH - LEFT - RIGHT) / max(1, rounds - 1)

    def y_of(value: float) -> float:
        return top + height * (1 - value / most)

    for value in (0, 0.5, 1):
        drawing.line(LEFT, y_of(value), WIDTH - RIGHT, y_of(value), FAINT)
        drawing.text(LEFT - 10, y_of(value) + 4, f"{value:g}", text_anchor="end", fill=QUIET)
    for number in range(rounds):
        drawing.text(LEFT + number * across, top + height + 18, str(number + 1), text_anchor="middle", fill=QUIET)
    drawing.text(LEFT - 24, top + height + 18, "round", text_anchor="end", fill=QUIET)
    others = iter(LINES)
    colours = {one["name"]: OURS if is_ours(one) else next(others) for one in figures}
    for one in figures:
        points = [(LEFT + number * across, y_of(value)) for number, value in enumerate(one["values"])]
        drawing.path(points, colours[one["name"]])
        for x, y in points:
            drawing.dot(x, y, colours[one["name"]])
    for one, y in spaced([(one, y_of(one["values"][-1])) for one in figures]):
        words = f"{one['name']} {one['values'][-1]:.2f}"
        drawing.text(WIDTH - RIGHT + 10, y + 4, words, fill=colours[one["name"]])
    drawing.top += height + 40


def aims(drawing: Drawing, checks: list[Record]) -> None:
    """What was aimed at, and whether it was met."""
    aimed = [one for one in checks if one["met"] is not None]
    if not aimed:
        return
    heading(drawing, "targets")
    for one in aimed:
        y = drawing.top + 12
        drawing.text(MARGIN, y, "met" if one["met"] else "missed", fill=GOOD if one["met"] else BAD, font_weight="600")
        drawing.text(MARGIN + 60, y, one["what"])
        drawing.text(WIDTH - 290, y, f"{written(one['median'])} ({written(one['low'])}-{written(one['high'])})")
        drawing.text(WIDTH - 140, y, one["target"], fill=QUIET)
        drawing.top += LINE
    drawing.top += 10


def footer(drawing: Drawing, record: Record) -> None:
    machine = record["machine"]
    versions = ", ".join(f"{name.rpartition(' ')[2]} {number}" for name, number in distinct(record["versions"]))
    quick = "; a quick run, which says nothing about speed" if record["options"]["quick"] else ""
    where = f"{machine['system']}, {machine['cores']} cores, {machine['sync_ms']} ms to sync a page"
    lines = [
        f"{record['date'][:10]}: medians and spread of rounds that took turns{quick}",
        where,
        *wrapped(versions, 110),
    ]
    for line in lines:
        drawing.text(MARGIN, drawing.top + 12, line, size=11, fill=QUIET)
        drawing.top += 15


def heading(drawing: Drawing, words: str) -> None:
    drawing.text(MARGIN, drawing.top + 12, words, fill=QUIET, font_weight="600")
    drawing.top += LINE


def panels(figures: list[Record]) -> Iterator[tuple[tuple[str, str], list[Record]]]:
    for key, those in groupby(figures, key=lambda one: (one["group"], one["unit"])):
        yield key, list(those)


def scale_of(panel: list[Record], figures: list[Record]) -> float:
    """Say what a whole bar stands for: the same for all panels of a unit, but for one that could not be read then."""
    here = max(one["high"] for one in panel)
    most = max(one["high"] for one in figures if one["unit"] == panel[0]["unit"])
    return float(most if here * 5 >= most else here)


def is_ours(one: Record) -> bool:
    return bool(one["name"].startswith("mainspring"))


def spaced(labels: list[tuple[Record, float]]) -> list[tuple[Record, float]]:
    """Move labels down until none stands on another."""
    placed: list[tuple[Record, float]] = []
    for one, y in sorted(labels, key=lambda label: label[1]):
        placed.append((one, max(y, placed[-1][1] + 16) if placed else y))
    return placed


def distinct(versions: dict[str, str]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((name.rpartition(" ")[2], number) for name, number in versions.items()))


def wrapped(words: str, width: int) -> Iterator[str]:
    line = ""
    for part in words.split(", "):
        if len(line) + len(part) > width:
            yield line.rstrip(" ")
            line = ""
        line += f"{part}, "
    yield line.rstrip(", ")


def written(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def main(folder: Path) -> None:
    records = [json.loads(line) for line in (folder / "postgres.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in {record["bench"]: record for record in records}.values():
        draw(record, folder / f"postgres-{record['bench']}.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parents[2] / "results")
