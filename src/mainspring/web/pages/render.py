"""Templates, and what they can call. Everything that they print is escaped; nothing here marks text as safe."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from mainspring.client import clocks
from mainspring.client.planned_words import at
from mainspring.client.words import count, length, size
from mainspring.core.job import claim_count
from mainspring.web.assets import VERSIONS

NOTHING: Final = "\u2013"
LONGEST_JSON: Final = 100_000
"""Characters of a value that a page shows."""


class Templates:
    """The templates of all pages. They hold no state: all dashboards of a program share them (`templates`)."""

    def __init__(self) -> None:
        self._environment: Final = Environment(
            loader=PackageLoader("mainspring.web", "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(
            link=link, asset=asset, instant=instant, number=number, have_seconds=have_seconds
        )
        self._environment.filters.update(
            ago=ago,
            whole=whole,
            took=took,
            exact=exact,
            pretty=pretty,
            many=count,
            short=short,
            on_wall=on_wall,
            local=local,
            size=size,
            claim_count=claim_count,
        )
        self._environment.globals["ui"] = self._environment.get_template("macros.html").module

    def page(self, name: str, values: Mapping[str, Any]) -> str:
        return self._environment.get_template(name).render(values)

    def part(self, name: str, part: str, values: Mapping[str, Any]) -> str:
        """Render one block of a template alone, as live updates need it."""
        template = self._environment.get_template(name)
        block = template.blocks[part]
        return "".join(block(template.new_context(dict(values))))


@cache
def templates() -> Templates:
    """Return the templates, which are read once."""
    return Templates()


def link(path: str, words: Mapping[str, object] | None = None, /, **query: object) -> str:
    """Make a relative address of a neighbouring page; what is None or empty is left out.

    `words` are parameters from a query string: as keywords of a call in a template, some would collide with Jinja's own.
    """
    every = {**query, **(words or {})}
    said = urlencode({name: str(value) for name, value in every.items() if value not in {None, ""}})
    return f"{path or '.'}{'?' if said else ''}{said}"


def asset(name: str) -> str:
    """Name a static file together with its version, so that it can be kept for good."""
    return f"static/{name}?v={VERSIONS[name]}"


def instant(text: str | datetime) -> datetime:
    """Read a time as records have it."""
    return text if isinstance(text, datetime) else datetime.fromisoformat(text)


def exact(text: str | datetime) -> str:
    """Say a time in full."""
    return f"{instant(text).astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


def on_wall(text: str | datetime, zone: str) -> str:
    """Say a time as the clocks of a zone show it, and in UTC."""
    there, here = at(instant(text), zone), at(instant(text), "UTC")
    return there if there == here else f"{there}, {here}"


def local(text: str | datetime, zone: str, *, seconds: bool = False) -> str:
    """Say a time as the clocks of a zone show it, in a list whose times `have_seconds` or not."""
    return at(instant(text), zone, seconds=seconds)


def have_seconds(texts: Iterable[str | None]) -> bool:
    """Say whether a list of times needs seconds."""
    return clocks.have_seconds(instant(text) for text in texts if text)


def number(value: float) -> str:
    """Say a number with a thin space for thousands: 12 345."""
    return f"{value:,}".replace(",", "\u2009")


def pretty(value: object) -> str:
    """Lay JSON out for people; what is very long is cut, and says so."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return (
        text if len(text) <= LONGEST_JSON else f"{text[:LONGEST_JSON]}\n… {len(text) - LONGEST_JSON:,} characters more"
    )


def short(value: object) -> str:
    """Say JSON in one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"


def ago(then: str | datetime, now: datetime) -> str:
    """Say when, as seen from now, in whole units: what is shown changes once a second at most."""
    seconds = (now - instant(then)).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{whole(seconds, shortly=True)} ago" if seconds > 0 else f"in {whole(-seconds, shortly=True)}"


def whole(seconds: float, *, shortly: bool = False) -> str:
    """Say for how long, in whole seconds or more."""
    return f"{max(int(seconds), 0)} s" if seconds < 60 else length(int(seconds), shortly=shortly)


def took(seconds: float | None) -> str:
    """Say how long something took; nothing is known where it is None."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return length(seconds)
