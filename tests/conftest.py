"""What holds for all tests: above all, what happens where something is missing that pip does not bring.

A test says `@pytest.mark.needs("chromium")`. Without a Chromium it is skipped, and the summary ends with a list of what
was not tested here and how to get it. With MAINSPRING_REQUIRE_ALL=1, as in .ci/run, whatever is missing is a failure,
and so is a test that skips itself for any reason of its own.
"""

import gc
import heapq
import importlib.util
import os
import random
import shutil
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import tier
from tests.servers import pgbouncer

pytest_plugins = ["tests.servers.fixtures"]

# How long an example takes depends on who else is at work on the machine. Examples are drawn by the seed of the run.
settings.register_profile(
    "mainspring", settings(), deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("mainspring")

# What a shell starts in the background ignores Ctrl-C, and so does everything that it starts; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

SERVER_FIXTURES = {"postgres", "own_postgres", "quiet_postgres", "oldest_postgres"}
"""Fixtures that start a PostgreSQL server."""

SCENARIOS = {"schedules", "plugins", "web"}
"""Folders whose scenarios `make test` runs on the memory store only: contract and comparison show that stores are equal."""
ON_FILES = {"sidecar"}
"""Folders whose tests use files as stores."""

SLOWEST = 50
"""Tests whose durations each run writes to a file."""

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


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes: one per core in `make check`, else two, because many tests wait for servers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if "not slow" in config.getoption("-m") else min(2 * cores, 16)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    from tests.xdist_scheduler import ModuleScheduling  # noqa: PLC0415 -- needed only by the process that assigns tests

    config.option.loadscopereorder = False  # else modules are sorted by their number of tests
    return ModuleScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Seed Hypothesis with the seed of the run; its plugin reads the option later."""
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(tier.SEED)


def pytest_report_header() -> str:
    return seed_line()


def seed_line() -> str:
    return f"random seed {tier.SEED}; to repeat this run, set {tier.repeat_variables()}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the tier.

    Tests that are marked `full` run in `make test-full` only, and so do scenarios on a database that run in memory too.
    Tests that use a server or a file as a store are left out of `make check`.
    """
    names = {item.nodeid for item in items}
    for item in items:
        if item.path.parent.name in SCENARIOS and names & set(in_memory(item.nodeid)):
            item.add_marker("full")
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())) or uses_file_store(item):
            item.add_marker("slow")
    if not tier.FULL:
        later = [item for item in items if item.get_closest_marker("full") is not None]
        if later:
            config.hook.pytest_deselected(items=later)
            items[:] = [item for item in items if item.get_closest_marker("full") is None]
    if tier.RANDOM_ORDER:
        items[:] = tier.shuffled(items)
    elif hasattr(config, "workerinput"):
        from tests.xdist_scheduler import in_order_of_assignment  # noqa: PLC0415 -- needs pytest-xdist

        items[:] = in_order_of_assignment(items)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude collected tests from later garbage collections, which took an eighth of the time of a full run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(f"{tier.SEED} {item.nodeid}")  # tests that use the global generator choose the same each time
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
    if not terminalreporter.showheader or terminalreporter.no_header:  # the header has the line otherwise
        terminalreporter.line(seed_line())
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


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the slowest tests to a file, with the seconds of each."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    took: defaultdict[str, float] = defaultdict(float)
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                took[report.nodeid] += report.duration
    if not took:
        return
    folder = session.config.rootpath / ".cache"
    folder.mkdir(exist_ok=True)
    lines = [
        f"{seconds:8.2f} s  {name}\n" for name, seconds in heapq.nlargest(SLOWEST, took.items(), key=lambda one: one[1])
    ]
    (folder / "slowest-tests.txt").write_text("".join(lines), encoding="utf-8")


def in_memory(name: str) -> list[str]:
    """Return the names that a test on a database has on the memory store."""
    return [
        name.replace(store, "memory") for store in ("sqlite", "postgres") if f"[{store}" in name or f"-{store}" in name
    ]


def uses_file_store(item: pytest.Item) -> bool:
    return item.path.parent.name in ON_FILES or "sqlite" in item.nodeid.lower()


def parts_of(item: pytest.Item | pytest.Function) -> list[str]:
    return [part for mark in item.iter_markers("needs") for part in mark.args]


def fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{reason}\nMAINSPRING_REQUIRE_ALL is set: nothing may be skipped."
