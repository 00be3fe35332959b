"""What a service refuses to be made with: it says so where it is written, not on the night when it is needed."""

from typing import Any

import pytest

from mainspring import Retry
from mainspring.errors import DeclarationError
from mainspring.supervise import Bulkhead, Idle, Lane, Notifier, Service, Stats, every


async def step() -> Idle:
    return Idle()


@pytest.mark.parametrize(("argument", "given", "said"), [
    ("wake", ["30s"], "wake takes notifiers and intervals, not '30s'"),
    ("wake", "30s", "wake takes notifiers and intervals, not '30s'"),
    ("wake", [Notifier(), 30], "wake takes notifiers and intervals, not 30"),
    ("pacing", 0.1, "pacing takes a Pacing"),
    ("bulkhead", Lane(1), r"write Bulkhead\(lane\)"),
    ("backoff", "5s", "backoff takes a Backoff"),
    ("backoff", Retry.fixed(5), "backoff takes a Backoff"),
    ("on_panic", "propogate", "on_panic is 'retry' or 'propagate', not 'propogate'"),
    ("listeners", [Stats], "a listener is a function or an object that can be called"),
    ("listeners", [None], "a listener is a function"),
    ("step", None, "the step must be an async function, not None"),
])  # fmt: skip
def test_a_wrong_argument_is_refused_with_advice(argument: str, given: object, said: str) -> None:
    arguments: dict[str, Any] = {"step": step} | {argument: given}
    with pytest.raises(DeclarationError, match=f"service 'sender': .*{said}"):
        Service("sender", **arguments)


def test_all_that_is_wrong_is_said_at_once() -> None:
    arguments: dict[str, Any] = {"backoff": 5, "bulkhead": 5}
    with pytest.raises(DeclarationError, match=r"bulkhead takes .*; backoff takes "):
        Service("sender", step, **arguments)


def test_a_single_notifier_need_not_be_put_into_a_list() -> None:
    one: Any = Notifier()
    Service("sender", step, wake=one)
    Service("sender", step, wake=(wake for wake in [one, every("30s")]))


@pytest.mark.parametrize("places", [0, -1, 1.5, "2"])
def test_a_lane_has_a_whole_number_of_places(places: int) -> None:
    with pytest.raises(DeclarationError, match="at least one"):
        Lane(places)


def test_a_bulkhead_is_made_of_lanes() -> None:
    lane: Any = 2
    with pytest.raises(DeclarationError, match=r"write Bulkhead\(Lane\(2\)\)"):
        Bulkhead(lane)
