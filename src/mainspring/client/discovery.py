"""Plugins that are installed with pip: found by their entry points, and loaded one by one.

Whatever a stranger's package may do when it is looked at or imported, it is told of under its name, and the others are
found all the same. What cannot be held off is code that ends or blocks the whole process while it is imported:
`mainspring plugins install-check` loads it in a process of its own.
"""

import inspect
import signal
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, distributions, entry_points
from types import FrameType
from typing import Final

from mainspring.client.plugin import Plugin
from mainspring.errors import PluginError

GROUP: Final = "mainspring.plugins"
"""The group of entry points that plugins are found in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The entry points of the group by their names, and what could not even be read, by its package."""

    points: dict[str, EntryPoint] = field(default_factory=dict)
    broken: dict[str, Exception] = field(default_factory=dict)


def find() -> Found:
    """Look which plugins there are, and load none. A name that two packages offer is nobody's."""
    points, broken = _points()
    found = Found(broken=broken)
    for name in sorted({point.name for point in points}):
        offered = [point for point in points if point.name == name]
        if len({point.value for point in offered}) == 1:
            found.points[name] = offered[0]
            continue
        # Else whoever is found first would be let in under a name that was allowed for another.
        packages = ", ".join(sorted(f"{_package(point)} ({point.value})" for point in offered))
        found.broken[name] = PluginError(name, f"several packages offer it, and none is taken: {packages}")
    return found


def load(point: EntryPoint) -> Plugin:
    """Load the plugin of an entry point: a `Plugin`, or a function that makes one. Raises `PluginError`."""
    heard = Interrupts()
    try:
        with heard:
            plugin = made(point.load())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and heard.any:  # somebody has had enough of waiting
            raise
        raise PluginError(point.name, f"it cannot be loaded: {told(error)}") from error
    if not isinstance(plugin, Plugin):
        raise PluginError(point.name, f"{point.value} is no Plugin and makes none, but {type(plugin).__name__}")
    return plugin


class Interrupts:
    """Tells a person's Ctrl-C from a `KeyboardInterrupt` that code has raised: inside of the block it hears of the signal."""

    def __init__(self) -> None:
        self.any = False
        self._before: object = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # no other gets any
            self._before = signal.getsignal(signal.SIGINT)
        if callable(self._before):
            signal.signal(signal.SIGINT, self._hear)

    def __exit__(self, *_: object) -> None:
        if callable(self._before) and signal.getsignal(signal.SIGINT) == self._hear:
            signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.any = True
        if callable(self._before):
            self._before(number, frame)


def made(found: object) -> object:
    """Return what was found, or what it makes."""
    if isinstance(found, Plugin) or not callable(found):
        return found
    result = found()
    if inspect.iscoroutine(result):
        result.close()  # nobody awaits it
    return result


def told(error: BaseException) -> str:
    """Say an error in one line; its own text may raise, too."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - a stranger's own
        said = ""
    return f"{type(error).__name__}: {said}".rstrip(": ")


def _points() -> tuple[list[EntryPoint], dict[str, Exception]]:
    try:
        return list(entry_points(group=GROUP)), {}
    except Exception:  # noqa: BLE001 - one package whose files cannot be read; which one is found below
        return _one_by_one()


def _one_by_one() -> tuple[list[EntryPoint], dict[str, Exception]]:
    points: list[EntryPoint] = []
    broken: dict[str, Exception] = {}
    seen: set[str] = set()
    for package in distributions():
        where = str(getattr(package, "_path", package))
        try:
            name = package.name
            offered: Iterable[EntryPoint] = package.entry_points.select(group=GROUP)
        except Exception as error:  # noqa: BLE001 - whatever its files are
            broken[where] = PluginError(where, f"what it offers cannot be read: {told(error)}")
            continue
        if name not in seen:  # of one that is there twice, Python imports the first
            seen.add(name)
            points += offered
    return points, broken


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "?"
