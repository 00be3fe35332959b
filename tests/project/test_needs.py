"""What the suite does about what is missing: tests/conftest.py, run on small suites of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

pytestmark = pytest.mark.slow  # each test is a run of pytest or two

Suite = Callable[..., str]

NEEDS_CHROMIUM = """
    import pytest

    @pytest.mark.needs("chromium")
    def test_one(): raise AssertionError("must not be reached")

    @pytest.mark.needs("chromium", "make")
    def test_two(): raise AssertionError("must not be reached")

    def test_three(): pass
"""
SKIPS_ITSELF = """
    import pytest

    def test_one(): pytest.skip("not today")

    @pytest.mark.xfail(reason="known")
    def test_two(): raise ValueError
"""
SKIPS_THE_WHOLE_MODULE = """
    import pytest
    pytest.importorskip("a_module_that_nobody_has")
    def test_one(): pass
"""


@pytest.fixture(params=["one process", "two processes"])
def suite(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Suite:
    """Run a suite of some modules where PATH leads nowhere; return what was printed."""
    shutil.copy(root / "tests" / "conftest.py", tmp_path)
    shutil.copytree(root / "tests" / "servers", tmp_path / "tests" / "servers", ignore=shutil.ignore_patterns("test_*"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs(part): see conftest.py\n", encoding="utf-8")
    processes = ["-n", "2"] if request.param == "two processes" else []

    def run(*texts: str, **variables: str) -> str:
        for number, text in enumerate(texts):
            lines = (line[4:] for line in text.splitlines())
            (tmp_path / f"test_{number}.py").write_text("\n".join(lines), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *processes],
            cwd=tmp_path,
            env=os.environ | {"PATH": "", "MAINSPRING_REQUIRE_ALL": "0"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return f"{done.stdout}\nexit {done.returncode}"

    return run


def test_what_is_missing_is_skipped_and_listed_last_and_tests_and_modules_may_skip_themselves(suite: Suite) -> None:
    printed = suite(NEEDS_CHROMIUM, SKIPS_ITSELF, SKIPS_THE_WHOLE_MODULE)

    assert "1 passed, 4 skipped, 1 xfailed" in printed
    assert "exit 0" in printed
    summary, listing = printed.split(" Not tested here ")
    assert "SKIPPED" in summary
    assert "SKIPPED" not in listing
    assert re.search(r"^chromium: 2 tests\. Debian: apt-get install chromium", listing, re.MULTILINE)
    assert re.search(r"^make: 1 test\. Debian: apt-get install make", listing, re.MULTILINE)


def test_where_all_is_required_what_is_missing_fails_and_so_does_a_test_that_skips_itself(suite: Suite) -> None:
    printed = suite(NEEDS_CHROMIUM, SKIPS_ITSELF, MAINSPRING_REQUIRE_ALL="1")

    assert re.search(r"1 failed, 1 passed, 1 xfailed, 2 errors|3 failed, 1 passed, 1 xfailed", printed)
    assert "exit 1" in printed
    assert "chromium is missing. Debian: apt-get install chromium" in printed
    assert "must not be reached" not in printed
    assert "not today" in printed


def test_where_all_is_required_a_module_that_skips_itself_is_an_error(suite: Suite) -> None:
    printed = suite(SKIPS_THE_WHOLE_MODULE, MAINSPRING_REQUIRE_ALL="1")

    assert "1 error" in printed
    assert "a_module_that_nobody_has" in printed
    assert "exit 0" not in printed


def test_an_unknown_part_is_an_error_at_collection(suite: Suite) -> None:
    printed = suite(NEEDS_CHROMIUM.replace('"make"', '"cromium"'))

    assert "test_0.py::test_two needs 'cromium', which tests/conftest.py does not know: chromium, make" in printed
    assert "ERROR collecting test_0.py" in printed
    assert "exit 0" not in printed


def test_what_takes_turns_has_its_turn_within_four_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "EVERY_TURN", False)
    names = [f"test_{number}" for number in range(200)]
    turns: Counter[str] = Counter()
    for day in range(20_000, 20_004):
        monkeypatch.setenv(conftest.TODAY, str(day))
        today = [name for name in names if not conftest.is_on_another_day(an_item(name, takes_turns=True))]
        assert 30 < len(today) < 70
        turns.update(today)
        assert not any(conftest.is_on_another_day(an_item(name, takes_turns=False)) for name in names)
    assert turns == Counter(names)
    monkeypatch.setattr(conftest, "EVERY_TURN", True)
    assert not any(conftest.is_on_another_day(an_item(name, takes_turns=True)) for name in names)


def an_item(name: str, *, takes_turns: bool) -> Any:  # noqa: ANN401 - as much of an item as is looked at
    return SimpleNamespace(name=name, get_closest_marker=lambda _: takes_turns or None)
