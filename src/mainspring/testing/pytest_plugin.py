"""Virtual time for pytest: the fixtures `virtual_time` and `memory_app`, and async tests that run on them.

An `async def` test that asks for `virtual_time`, itself or through another fixture, runs on its loop; under `@given`
each example begins at zero. All other async tests are left to other plugins.

pytest-asyncio and anyio offer themselves for the same tests: for those with their marks, or for all in their auto
modes. So such a test is made a plain function before anyone else can look at it. One that anyio multiplies over its
backends is skipped for those that are not asyncio.

pytest imports this in every run, so it leaves the loop alone until a test asks for virtual time.
"""

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pytest

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.testing.virtual import VirtualTime

P = ParamSpec("P")
R = TypeVar("R")


@pytest.fixture
def virtual_time() -> "Iterator[VirtualTime]":
    """Virtual time: an async test that asks for it runs on it, any other test can call its `run`."""
    from mainspring.testing.virtual import VirtualTime  # noqa: PLC0415 -- see above

    with VirtualTime() as time:
        yield time


@pytest.fixture
def memory_app(virtual_time: "VirtualTime") -> "Mainspring":
    """An app with a store in memory, on virtual time: for tasks that a test declares itself."""
    from mainspring.app import Mainspring  # noqa: PLC0415 -- see above
    from mainspring.stores.memory import MemoryStore  # noqa: PLC0415 -- see above

    clock = virtual_time.clock
    return Mainspring(store=MemoryStore(clock=clock), clock=clock)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    if not isinstance(item, pytest.Function) or "virtual_time" not in item.funcargs:
        return (yield)
    with pytest.MonkeyPatch.context() as patch, pytest.MonkeyPatch.context() as hide:
        _make_plain(item, patch, hide)
        return (yield)


def _make_plain(item: pytest.Function, patch: pytest.MonkeyPatch, hide: pytest.MonkeyPatch) -> None:
    from mainspring.testing.virtual import VirtualTime  # noqa: PLC0415 -- the fixture has imported it already

    time = item.funcargs["virtual_time"]
    if not isinstance(time, VirtualTime):  # someone else's fixture of the same name
        return
    given = getattr(item.obj, "hypothesis", None)
    inner = getattr(given, "inner_test", None)
    if inspect.iscoroutinefunction(item.obj):
        patch.setattr(item, "obj", _plain(item.obj, time))
    elif inspect.iscoroutinefunction(inner):
        # The place that Hypothesis keeps for those who run async tests.
        patch.setattr(given, "inner_test", _example(inner, time))
        # Before the call, Hypothesis objects to fixtures that are not made anew for each example. This one is.
        hide.setattr(item.function, "__signature__", _without_virtual_time(item.function), raising=False)
    else:
        return
    _skip_other_backends(item.funcargs.get("anyio_backend"))

    def runtest() -> None:
        hide.undo()
        pytest.Function.runtest(item)

    # pytest-asyncio overrides this method, and would still take the test for a coroutine function.
    patch.setattr(item, "runtest", runtest)


def _plain(test: Callable[P, Coroutine[Any, Any, R]], time: "VirtualTime") -> Callable[P, R]:
    @wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        return time.run(test(*args, **kwargs))

    return plain


def _example(test: Callable[P, Coroutine[Any, Any, R]], time: "VirtualTime") -> Callable[P, R]:
    @wraps(test)
    def example(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        time.restart()
        return time.run(test(*args, **kwargs))

    return example


def _without_virtual_time(test: Callable[..., object]) -> inspect.Signature:
    signature = inspect.signature(test)
    return signature.replace(parameters=[it for it in signature.parameters.values() if it.name != "virtual_time"])


def _skip_other_backends(anyio_backend: object) -> None:
    match anyio_backend:
        case str(name) | (str(name), *_) if name != "asyncio":
            pytest.skip(f"virtual time is an asyncio event loop, and this is anyio's backend {name!r}")
