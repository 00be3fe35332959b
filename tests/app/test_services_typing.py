"""What type checkers know of services: mypy reads this file, and each line here is a test of it.

An ignore that is not needed fails the check, so that every wrong declaration below is known to be an error.
"""

from collections.abc import Callable, Coroutine
from typing import Any, assert_type

import pytest

from mainspring import Idle, Mainspring, Proceed, Sleep
from mainspring.client.services import ServiceContext
from mainspring.errors import DeclarationError

app = Mainspring("memory://")


@app.service
async def plain() -> Idle:
    return Idle()


@app.service(every="5s", singleton=True, ttl=30)
async def single(ctx: ServiceContext) -> Proceed | Sleep:
    return Proceed(ctx.term)


@app.service(name="nothing")
async def nothing() -> None: ...


def test_a_service_keeps_its_type() -> None:
    same: Callable[[], Coroutine[Any, Any, Idle]] = plain
    with_context: Callable[[ServiceContext], Coroutine[Any, Any, Proceed | Sleep]] = single
    assert len({same, with_context, nothing}) == 3


async def results() -> None:
    assert_type(await plain(), Idle)


def test_what_no_node_could_run_is_an_error_to_a_checker_too() -> None:
    async def with_number(number: int) -> None: ...

    async def with_text() -> str:
        return "done"

    def blocking() -> Idle:
        return Idle()

    with pytest.raises(DeclarationError):
        app.service(with_number)  # type: ignore[type-var]  # nobody passes a number
    with pytest.raises(DeclarationError):
        app.service(blocking)  # type: ignore[type-var]  # it is not async
    with pytest.raises(DeclarationError):
        app.service(singelton=True)(plain)  # type: ignore[call-overload]  # there is no such option
    app.service(with_text)  # type: ignore[type-var]  # what it returns is seen when it has run
