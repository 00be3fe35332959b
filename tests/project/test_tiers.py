"""Selection, order and seed of tests: tests/tier.py and tests/conftest.py, run on small suites."""

import re
from pathlib import Path

import pytest

from tests.project.small_suite import SmallSuite

pytestmark = pytest.mark.slow  # each test is a run of pytest or two

TIERS = """
    import pytest

    def test_usual(): pass

    @pytest.mark.full
    def test_marked(): pass

    @pytest.mark.parametrize("store", ["memory", "sqlite"])
    def test_scenario(store): pass

    @pytest.mark.parametrize("store", ["sqlite"])
    def test_on_files(store): pass
"""
RANDOM_TESTS = """
    import random

    import pytest
    from hypothesis import given, strategies as st
    from tests.tier import seeded_random

    def test_global(): print("drawn", random.random())

    def test_named(): print("drawn", seeded_random("a name").random())

    @given(st.integers())
    def test_hypothesis(number): print("drawn", number)
"""
MANY = "\n".join(f"    def test_{number}(): pass" for number in range(12))


@pytest.fixture
def suite(root: Path, tmp_path: Path) -> SmallSuite:
    return SmallSuite(root, tmp_path)


def names(printed: str) -> list[str]:
    return re.findall(r"^(\S+::\S+) PASSED", printed, re.MULTILINE)


def drawn(printed: str) -> list[str]:
    return re.findall(r"drawn (\S+)", printed)


def test_each_tier_has_its_tests(suite: SmallSuite) -> None:
    schedules = suite.folder / "schedules"
    schedules.mkdir()
    (suite.folder / "tests" / "conftest.py").write_text("")
    (schedules / "test_scenarios.py").write_text(
        'import pytest\n\n@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])\ndef test_one(store): pass\n'
    )

    usual = names(suite.run(TIERS, options=("-v",)))
    check = names(suite.run(TIERS, options=("-v", "-m", "not slow")))
    full = names(suite.run(TIERS, options=("-v",), MAINSPRING_TESTS="full"))

    in_memory = "schedules/test_scenarios.py::test_one[memory]"
    usual_there = {
        f"test_0.py::test_{name}" for name in ("usual", "scenario[memory]", "scenario[sqlite]", "on_files[sqlite]")
    }
    assert set(usual) == usual_there | {in_memory}
    assert set(check) == {name for name in usual if "sqlite" not in name}
    others = {"test_0.py::test_marked", in_memory.replace("memory", "sqlite"), in_memory.replace("memory", "postgres")}
    assert set(full) == set(usual) | others


def test_random_choices_are_those_of_the_seed_that_is_printed(suite: SmallSuite) -> None:
    options = ("-v", "-s", "-n", "0")
    usual, again = suite.run(RANDOM_TESTS, options=options), suite.run(RANDOM_TESTS, options=options)
    other = suite.run(RANDOM_TESTS, options=options, MAINSPRING_SEED="812")

    assert "random seed 1; to repeat this run, set MAINSPRING_SEED=1" in usual
    assert "random seed 812; to repeat this run, set MAINSPRING_SEED=812" in other
    assert "random seed 1; to repeat this run, set MAINSPRING_SEED=1" in suite.run(RANDOM_TESTS, options=("-q",))
    assert len(drawn(usual)) > 10
    assert drawn(usual) == drawn(again)
    assert not set(drawn(usual)[:2]) & set(drawn(other)[:2])


def test_a_random_order_is_repeated_with_the_variables_that_are_printed(suite: SmallSuite) -> None:
    first = suite.run(MANY, options=("-v",), MAINSPRING_ORDER="random")
    found = re.search(r"set MAINSPRING_ORDER=random MAINSPRING_SEED=(\d+)$", first, re.MULTILINE)
    assert found
    again = suite.run(MANY, options=("-v",), MAINSPRING_ORDER="random", MAINSPRING_SEED=found[1])

    assert names(first) == names(again)
    assert names(first) != sorted(names(first), key=lambda name: int(name.rpartition("_")[2]))


def test_a_module_is_run_by_one_process(suite: SmallSuite) -> None:
    printed = suite.run(MANY, MANY, options=("-v", "-n", "2"), MAINSPRING_ORDER="random")

    assert "24 passed" in printed
    assert len(set(re.findall(r"^\[(gw\d)\].* PASSED (test_\d\.py)::", printed, re.MULTILINE))) == 2


def test_the_slowest_tests_are_written_to_a_file(suite: SmallSuite) -> None:
    suite.run("import time\ndef test_long(): time.sleep(0.2)\ndef test_short(): pass\n")

    lines = (suite.folder / ".cache" / "slowest-tests.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[-1] for line in lines] == ["test_0.py::test_long", "test_0.py::test_short"]
