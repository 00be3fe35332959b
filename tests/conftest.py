"""What holds for all tests: above all, what happens where something is missing that pip does not bring.

A test says `@pytest.mark.needs("chromium")`. Without a Chromium it is skipped, and the summary ends with a list of what
was not tested here and how to get it. With MAINSPRING_REQUIRE_ALL=1, as in .ci/run, whatever is missing is a failure,
and so is a test that skips itself for any reason of its own.
"""

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import pgbouncer

pytest_plugins = ["tests.servers.fixtures"]

# How long an example takes depends on who else is at work on the machine. The parent is what hypothesis chose by
# itself: with CI set, the same examples in every run.
settings.register_profile("mainspring", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mainspring")

# What a shell starts in the background ignores Ctrl-C, and so does everything that it starts; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

SERVERS = {"postgres", "own_postgres", "oldest_postgres"}
"""Fixtures that start one."""

TWICE_TOLD = {"schedules", "plugins", "jobs", "app", "outbox", "web", "integrations"}
"""Folders of stories about the whole, each told on several stores; what stores must do themselves is in others."""
NO_CALL = SimpleNamespace(params={})

PARTS_OF_A_TURN = 4
"""Of what takes turns a run has one part in so many, the next day the next."""
EVERY_TURN = os.environ.get("MAINSPRING_STORES") == "full"
TODAY = "MAINSPRING_TODAY"

REQUIRE_ALL = os.environ.get("MAINSPRING_REQUIRE_ALL", "0") not in {"", "0"}


@dataclass(frozen=True, slots=True)
class Part:
    """Something that may be missing."""

    find: Callable[[], object]
    """Returns something true where the part is there."""
    get: str
    """Tells a person how to get it."""


def command(*names: str) -> Callable[[], str | None]:
    """Look on PATH, then beside this interpreter, where pip puts what it brings."""
    places = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    return lambda: next(filter(None, (shutil.which(name, path=place) for place in places for name in names)), None)


def module(name: str) -> Callable[[], object]:
    return lambda: importlib.util.find_spec(name)


CHROMIUM = command("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
UV = command("uv")

PARTS = {
    "chromium": Part(CHROMIUM, "Debian: apt-get install chromium; macOS: brew install --cask chromium"),
    "make": Part(command("make"), "Debian: apt-get install make; macOS: xcode-select --install"),
    "ladybug": Part(module("ladybug"), "make test brings it, for Python up to 3.14; by hand: pip install -e .[graph]"),
    "pgbouncer": Part(pgbouncer.find, pgbouncer.HOW_TO_GET),
    "uv": Part(UV, "make test brings it; by hand: pip install -e .[test]"),
    "uvloop": Part(module("uvloop"), "make test brings it, for Python up to 3.14; by hand: pip install uvloop"),
    "zensical": Part(module("zensical"), "make test brings it; by hand: pip install -e .[docs]"),
}


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is; for tests that say they need it."""
    path = CHROMIUM()
    assert path
    return path


@pytest.fixture(scope="session")
def uv() -> str:
    path = UV()
    assert path
    return path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse a name that PARTS does not know, while its module is being collected: a typo would skip a test for good."""
    for part in parts_of(metafunc.definition):
        if part not in PARTS:
            known = ", ".join(PARTS)
            where = metafunc.definition.nodeid
            pytest.fail(f"{where} needs {part!r}, which tests/conftest.py does not know: {known}", pytrace=False)


def pytest_configure() -> None:
    # Told to the processes that share the tests, so that midnight comes for all of them or for none.
    os.environ.setdefault(TODAY, str(int(time.time() // 86400)))


def pytest_report_header() -> str | None:
    part = int(os.environ[TODAY]) % PARTS_OF_A_TURN + 1
    return (
        None if EVERY_TURN else f"what takes turns: part {part} of {PARTS_OF_A_TURN}; all of it with make test-stores"
    )


def is_on_another_day(item: pytest.Item) -> bool:
    """Say whether a test that takes turns has its turn on another day; by its name, so that each has one."""
    if EVERY_TURN or item.get_closest_marker("takes_turns") is None:
        return False
    return (crc32(item.name.encode()) - int(os.environ[TODAY])) % PARTS_OF_A_TURN != 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what uses a server out of `make check`, but for what says that it is quick: there are a thousand of them.

    Likewise stories that are told on memory and on a file: the first of the two is enough before a commit.
    """
    later = [item for item in items if is_on_another_day(item)]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if not is_on_another_day(item)]
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        is_retold = (
            item.path.parent.name in TWICE_TOLD and "sqlite" in getattr(item, "callspec", NO_CALL).params.values()
        )
        if (names & SERVERS or is_retold) and item.get_closest_marker("quick") is None:
            item.add_marker("slow")


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = [part for part in parts_of(item) if not PARTS[part].find()]
    if not missing:
        return
    # Travels with the report to the process that prints the summary: tests may run in several.
    item.user_properties.extend(("missing", part) for part in missing)
    if REQUIRE_ALL:
        pytest.fail("\n".join(f"{part} is missing. {PARTS[part].get}" for part in missing), pytrace=False)
    pytest.skip(f"needs {' and '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_ALL and report.skipped:
        fail(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Print the list after everything else: the outermost wrapper has the last word."""
    yield
    reports = [report for kind in ("skipped", "failed", "error") for report in terminalreporter.stats.get(kind, ())]
    counts = Counter(
        part
        for report in reports
        for name, part in getattr(report, "user_properties", ())  # reports of collection have none
        if name == "missing"
    )
    if not counts:
        return
    terminalreporter.section("Not tested here", yellow=True)
    for part, count in sorted(counts.items()):
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.line(f"{part}: {tests}. {PARTS[part].get}")


def parts_of(item: pytest.Item | pytest.Function) -> list[str]:
    return [part for mark in item.iter_markers("needs") for part in mark.args]


def fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{reason}\nMAINSPRING_REQUIRE_ALL is set: nothing may be skipped."
