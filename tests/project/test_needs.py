"""What the suite does about what is missing: tests/conftest.py, run on small suites of its own."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.project.small_suite import SmallSuite

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


@pytest.fixture(params=["one process", pytest.param("two processes", marks=pytest.mark.full)])
def suite(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Suite:
    """Run a suite of some modules where PATH leads nowhere; return what was printed."""
    small = SmallSuite(root, tmp_path)
    options = ("-n", "2") if request.param == "two processes" else ()
    return partial(small.run, options=options, PATH="")


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
