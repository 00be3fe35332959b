"""The pytest plugin, seen from outside: small test files, run by a pytest of their own.

Other plugins that run async tests are played by the few lines that matter in them, so that nothing needs to be
installed.
"""

from textwrap import dedent

import pytest

pytest_plugins = ["pytester"]

HEADER = """
import asyncio
import pytest
from mainspring.errors import Standstill
from mainspring.testing import VirtualLoop, VirtualTime

def on_virtual_time():
    return isinstance(asyncio.get_running_loop(), VirtualLoop)
"""

# What pytest-asyncio does in its auto mode: an item of its own that makes a plain function of the test.
LIKE_PYTEST_ASYNCIO = """
import asyncio, functools, inspect
import pytest

class AsyncItem(pytest.Function):
    def runtest(self):
        test = self.obj
        @functools.wraps(test)
        def plain(**kwargs):
            asyncio.run(test(**kwargs))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self, "obj", plain)
            super().runtest()

@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem():
    return [
        AsyncItem.from_parent(it.parent, name=it.name) if inspect.iscoroutinefunction(it.obj) else it
        for it in (yield) or ()
    ]
"""

# What anyio does: a fixture with its backends, and a hook that wants to be the first.
LIKE_ANYIO = """
import asyncio, inspect
import pytest

@pytest.fixture(params=["asyncio", ("trio", {})], autouse=True)
def anyio_backend(request):
    return request.param

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        asyncio.run(pyfuncitem.obj(**arguments))
        return True
"""


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(HEADER + dedent(tests))
    strangers = ("-p", "no:asyncio", "-p", "no:anyio", "-p", "no:schemathesis")  # where they happen to be installed
    return pytester.runpytest_inprocess("-W", "error", "-p", "no:cacheprovider", "-rs", *strangers, *options)


def test_async_tests_that_ask_for_virtual_time_run_on_it(pytester: pytest.Pytester) -> None:
    tests = """
    @pytest.fixture
    def clock(virtual_time):
        return virtual_time.clock

    async def test_that_asks_itself(virtual_time: VirtualTime) -> None:
        await asyncio.sleep(3600)
        assert virtual_time.elapsed == 3600

    async def test_that_asks_through_a_fixture(clock):
        await asyncio.sleep(3600)
        assert clock.monotonic() == 3600

    @pytest.mark.usefixtures("virtual_time")
    async def test_that_asks_by_a_mark():
        await asyncio.sleep(3600)

    @pytest.mark.parametrize("hours", [1, 2])
    async def test_with_parameters(hours, virtual_time):
        await asyncio.sleep(hours * 3600)

    class TestInAClass:
        async def test_method(self, virtual_time):
            self.hour = 3600
            await asyncio.sleep(self.hour)

    def test_that_is_no_coroutine(virtual_time):
        virtual_time.run(asyncio.sleep(3600))
        assert virtual_time.elapsed == 3600
    """
    run(pytester, tests).assert_outcomes(passed=7)


def test_failures_are_the_tests_own(pytester: pytest.Pytester) -> None:
    tests = """
    async def test_that_fails(virtual_time):
        await asyncio.sleep(1)
        assert virtual_time.elapsed == 2

    async def test_that_waits_for_ever(virtual_time):
        await asyncio.Event().wait()

    @pytest.mark.xfail(raises=Standstill, strict=True)
    async def test_that_is_expected_to_wait_for_ever(virtual_time):
        await asyncio.Event().wait()

    async def test_that_skips(virtual_time):
        pytest.skip("not today")
    """
    result = run(pytester, tests)
    result.assert_outcomes(failed=2, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["*assert 1.0 == 2*", "*Standstill*", "*at test_*.py:* in test_that_waits_for_ever"])


def test_async_tests_that_do_not_ask_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LIKE_ANYIO.replace('"asyncio", ("trio", {})', '"asyncio"'))
    tests = """
    async def test_on_real_time():
        assert not on_virtual_time()
    """
    run(pytester, tests).assert_outcomes(passed=1)


def test_each_example_of_hypothesis_begins_at_zero(pytester: pytest.Pytester) -> None:
    tests = """
    from hypothesis import given, settings, strategies as st
    unhurried = settings(deadline=None)
    seen = []

    @unhurried
    @given(hours=st.integers(1, 1000))
    async def test_function(virtual_time, hours):
        seen.append(hours)
        assert virtual_time.elapsed == 0
        virtual_time.clock.jump("1h")
        await asyncio.sleep(hours * 3600)
        assert virtual_time.clock.monotonic() == virtual_time.elapsed == hours * 3600

    class TestInAClass:
        @pytest.mark.parametrize("factor", [1, 2])
        @unhurried
        @given(hours=st.integers(1, 1000))
        async def test_method(self, virtual_time, factor, hours):
            await asyncio.sleep(factor * hours)
            assert virtual_time.elapsed == factor * hours

    def test_that_there_were_several():
        assert len(seen) > 10

    @unhurried
    @given(hours=st.integers(1, 1000))
    async def test_that_fails(virtual_time, hours):
        await asyncio.sleep(hours)
        assert hours < 17
    """
    result = run(pytester, tests)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["hours = 17"])  # in the traceback: plugins change how Hypothesis reports examples


def test_hypothesis_still_objects_to_other_fixtures(pytester: pytest.Pytester) -> None:
    tests = """
    from hypothesis import given, strategies as st

    @pytest.fixture
    def made_once():
        return []

    @given(number=st.integers())
    async def test_that_shares(virtual_time, made_once, number):
        pass
    """
    result = run(pytester, tests)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*function-scoped fixture 'made_once'*"])


BOTH = """
async def test_on_virtual_time(virtual_time):
    assert on_virtual_time()
    await asyncio.sleep(3600)

async def test_on_real_time():
    assert not on_virtual_time()
"""


def test_a_plugin_with_items_of_its_own_keeps_the_other_tests(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LIKE_PYTEST_ASYNCIO)
    run(pytester, BOTH).assert_outcomes(passed=2)


def test_a_plugin_with_backends_keeps_the_other_tests(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LIKE_ANYIO)
    result = run(pytester, BOTH)
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*virtual time is an asyncio event loop, and this is anyio's backend 'trio'"])


def test_a_fixture_of_the_same_name_is_not_ours(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(LIKE_ANYIO.replace('"asyncio", ("trio", {})', '"asyncio"'))
    tests = """
    @pytest.fixture
    def virtual_time():
        return "theirs"

    async def test_on_real_time(virtual_time):
        assert virtual_time == "theirs"
        assert not on_virtual_time()
    """
    run(pytester, tests).assert_outcomes(passed=1)


def test_the_plugin_can_be_switched_off(pytester: pytest.Pytester) -> None:
    tests = """
    def test_of_something_else():
        pass

    def test_that_makes_its_own():
        with VirtualTime() as time:
            time.run(asyncio.sleep(3600))
    """
    run(pytester, tests, "-p", "no:mainspring").assert_outcomes(passed=2)


@pytest.mark.slow
def test_loading_the_plugin_loads_no_event_loop(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
    import sys

    def test_that_has_no_use_for_it():
        assert "mainspring.testing.pytest_plugin" in sys.modules
        assert "mainspring.testing.loop" not in sys.modules
        assert "mainspring.testing.virtual" not in sys.modules
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_what_is_not_there_is_not_there() -> None:
    with pytest.raises(ImportError, match="VirtualTim"):
        from mainspring.testing import VirtualTim  # type: ignore[attr-defined]  # noqa: F401, PLC0415 -- a typo
