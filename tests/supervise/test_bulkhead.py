"""How many steps run at once, who comes next, and that a place is never lost."""

import asyncio

import pytest

from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Bulkhead,
    Directive,
    Lane,
    Pacing,
    Proceed,
    Service,
    Sleep,
    Stop,
)
from tests.supervise.conftest import Boom, Script, Work, now, running, until

pytestmark = pytest.mark.usefixtures("virtual_time")


async def test_a_bulkhead_without_lanes_holds_nobody_up() -> None:
    steps = [Script(Work(10)) for _ in range(50)]
    bulkhead = Bulkhead()
    async with running(*[Service(f"s{n}", step, bulkhead=bulkhead) for n, step in enumerate(steps)]):
        await until(5)
        assert [step.calls for step in steps] == [[0]] * 50


async def test_services_of_one_lane_run_as_many_steps_at_once_as_it_has_places() -> None:
    lane = Lane(2)
    steps = [Script(Work(10)) for _ in range(5)]
    async with running(*[Service(f"s{n}", step, bulkhead=Bulkhead(lane)) for n, step in enumerate(steps)]):
        await until(100)
    assert [step.calls for step in steps] == [[0], [0], [10], [10], [20]]


async def test_a_lane_is_shared_by_those_who_share_it_and_nobody_else() -> None:
    bulkhead, other = Bulkhead(Lane(1)), Bulkhead(Lane(1))
    steps = [Script(Work(10)) for _ in range(3)]
    async with running(
        Service("first", steps[0], bulkhead=bulkhead),
        Service("second", steps[1], bulkhead=bulkhead),
        Service("third", steps[2], bulkhead=other),
    ):
        await until(100)
    assert [step.calls for step in steps] == [[0], [10], [0]]


async def test_who_waited_longest_for_a_place_gets_it() -> None:
    lane = Lane(1)
    # They ask for the place at 3, 1 and 2 seconds; it is held from 0.5 to 10.
    steps = [Script(Sleep(start), Work(5)) for start in (3, 1, 2)]
    async with running(*[Service(f"s{n}", step, bulkhead=Bulkhead(lane)) for n, step in enumerate(steps)]):
        await until(0.5)
        async with running(Service("holder", Script(Work(9.5)), bulkhead=Bulkhead(lane))):
            await until(50)
    assert [step.calls for step in steps] == [[0, 20], [0, 10], [0, 15]]


async def test_who_goes_on_at_once_does_not_push_in_front_of_those_who_wait() -> None:
    lane = Lane(1)
    greedy, patient = (Script(*[Work(5, Proceed())] * 3) for _ in range(2))
    async with running(
        Service("greedy", greedy, bulkhead=Bulkhead(lane), pacing=NO_PAUSE),
        Service("patient", patient, bulkhead=Bulkhead(lane), pacing=NO_PAUSE),
    ):
        await until(100)
    assert greedy.calls[:3] == [0, 10, 20]
    assert patient.calls[:3] == [5, 15, 25]


@pytest.mark.parametrize(
    "act", [Sleep(100), Sleep(100, wakeable=True), Proceed(), Boom()], ids=["asleep", "dozing", "pausing", "failed"]
)
async def test_a_place_is_free_while_its_last_holder_waits(act: Directive | BaseException) -> None:
    lane = Lane(1)
    first, second = Script(Work(3, act)), Script()
    pacing, backoff = Pacing(active_interval=100), Backoff.fixed(100)
    async with running(
        Service("first", first, bulkhead=Bulkhead(lane), pacing=pacing, backoff=backoff),
        Service("second", second, bulkhead=Bulkhead(lane)),
    ):
        await until(50)
    assert second.calls == [3]


async def test_a_service_that_dies_leaves_its_place() -> None:
    lane, step = Lane(1), Script()
    with pytest.raises(Boom):
        await Service("dying", Script(Work(1, Boom())), bulkhead=Bulkhead(lane), on_panic="propagate").run(Stop())
    async with running(Service("next", step, bulkhead=Bulkhead(lane))):
        await until(10)
    assert step.calls == [1]


async def test_a_service_that_is_cancelled_in_its_step_leaves_its_place() -> None:
    lane, step = Lane(1), Script()
    run = asyncio.create_task(Service("cancelled", Script(Work(100)), bulkhead=Bulkhead(lane)).run(Stop()))
    await until(3)
    run.cancel()
    async with running(Service("next", step, bulkhead=Bulkhead(lane))):
        await until(10)
    assert step.calls == [3]


@pytest.mark.parametrize("manner", ["stopped", "cancelled"])
@pytest.mark.parametrize("at", [5, 10], ids=["while it waits", "when the place becomes free"])
async def test_a_place_passes_over_a_waiter_who_left(manner: str, at: float) -> None:
    lane, stop = Lane(1), Stop()
    holder, leaving, last = Script(Work(10)), Script(Work(2)), Script()
    async with running(Service("holder", holder, bulkhead=Bulkhead(lane))):
        run = asyncio.create_task(Service("leaving", leaving, bulkhead=Bulkhead(lane)).run(stop))
        await until(1)
        async with running(Service("last", last, bulkhead=Bulkhead(lane))):
            await until(at)
            if manner == "stopped":
                stop.set()
            else:
                run.cancel()
            await asyncio.wait([run])
            await until(100)
    # At the same moment, the place may have come first; a step that was cancelled is over at once, another takes 2 s.
    assert last.calls in ([10], [12])
    assert last.calls == [10] or leaving.calls == [10]


# Tiers.


async def test_the_first_free_lane_in_order_is_taken() -> None:
    shared, guaranteed = Lane(1), Lane(1)
    tiered, on_shared, on_guaranteed = Script(Work(10)), Script(), Script()
    async with running(
        Service("tiered", tiered, bulkhead=Bulkhead(shared, guaranteed)),
        Service("on shared", on_shared, bulkhead=Bulkhead(shared)),
        Service("on guaranteed", on_guaranteed, bulkhead=Bulkhead(guaranteed)),
    ):
        await until(100)
    assert tiered.calls == [0]
    assert on_shared.calls == [10]
    assert on_guaranteed.calls == [0]


async def test_the_guaranteed_lane_is_there_when_the_shared_one_is_full() -> None:
    shared, guaranteed = Lane(2), Lane(1)
    crowd = [Script(Work(10)) for _ in range(6)]
    tiered = [Script(Work(4)) for _ in range(2)]
    async with running(
        *[Service(f"c{n}", step, bulkhead=Bulkhead(shared)) for n, step in enumerate(crowd)],
        *[Service(f"t{n}", step, bulkhead=Bulkhead(shared, guaranteed)) for n, step in enumerate(tiered)],
    ):
        await until(100)
    assert [step.calls for step in tiered] == [[0], [4]]
    assert [step.calls for step in crowd] == [[0], [0], [10], [10], [20], [20]]


@pytest.mark.parametrize(("shared_until", "guaranteed_until"), [(5, 9), (9, 5)])
async def test_when_no_lane_is_free_the_one_that_frees_first_is_taken_and_the_other_left_alone(
    shared_until: float, guaranteed_until: float
) -> None:
    shared, guaranteed = Lane(1), Lane(1)
    tiered, on_shared, on_guaranteed = Script(Work(100)), Script(), Script()
    async with running(
        Service("holds shared", Script(Work(shared_until)), bulkhead=Bulkhead(shared)),
        Service("holds guaranteed", Script(Work(guaranteed_until)), bulkhead=Bulkhead(guaranteed)),
        Service("tiered", tiered, bulkhead=Bulkhead(shared, guaranteed)),
        Service("on shared", on_shared, bulkhead=Bulkhead(shared)),
        Service("on guaranteed", on_guaranteed, bulkhead=Bulkhead(guaranteed)),
    ):
        await until(50)
        assert tiered.calls == [5]
        # Whoever queued behind it in the other lane has that lane for itself.
        assert (on_shared.calls, on_guaranteed.calls) == (([], [9]) if shared_until == 5 else ([9], []))


async def test_both_lanes_freed_at_once_serve_two() -> None:
    shared, guaranteed = Lane(1), Lane(1)
    first, second = Script(Work(10)), Script(Work(10))
    async with running(
        Service("holds shared", Script(Work(5)), bulkhead=Bulkhead(shared)),
        Service("holds guaranteed", Script(Work(5)), bulkhead=Bulkhead(guaranteed)),
        Service("first", first, bulkhead=Bulkhead(shared, guaranteed)),
        Service("second", second, bulkhead=Bulkhead(shared, guaranteed)),
    ):
        await until(50)
    assert first.calls == [5]
    assert second.calls == [5]


@pytest.mark.parametrize("manner", ["stopped", "cancelled"])
async def test_who_leaves_two_queues_leaves_no_trace_in_either(manner: str) -> None:
    shared, guaranteed, stop = Lane(1), Lane(1), Stop()
    on_shared, on_guaranteed = Script(), Script()
    async with running(
        Service("holds shared", Script(Work(5)), bulkhead=Bulkhead(shared)),
        Service("holds guaranteed", Script(Work(7)), bulkhead=Bulkhead(guaranteed)),
    ):
        run = asyncio.create_task(Service("leaving", Script(), bulkhead=Bulkhead(shared, guaranteed)).run(stop))
        await until(1)
        async with running(
            Service("on shared", on_shared, bulkhead=Bulkhead(shared)),
            Service("on guaranteed", on_guaranteed, bulkhead=Bulkhead(guaranteed)),
        ):
            await until(2)
            if manner == "stopped":
                stop.set()
            else:
                run.cancel()
            await asyncio.wait([run])
            assert now() == 2
            await until(50)
    assert on_shared.calls == [5]
    assert on_guaranteed.calls == [7]
