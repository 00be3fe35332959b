"""Who is dead, and who only could not be seen."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.job import NodeId
from mainspring.core.liveness import MAX_BUSY_LEASES, Sighting, beat_of, is_dead, is_only_busy, observe

LEASE = 15.0
BEAT = beat_of(LEASE)
OTHER = NodeId("other")


def watch(looks: Sequence[tuple[float | None, int]], took: float = 0.0) -> list[bool]:
    """Look at one node again and again: seconds since the last look, and its counter then. Was it dead?

    Each look takes `took` seconds.
    """
    sightings: dict[NodeId, Sighting] = {}
    verdicts = []
    for since, counter in looks:
        sightings = observe(sightings, [(OTHER, counter)], since=since, took=took, lease=LEASE)
        verdicts.append(is_dead(sightings[OTHER], lease=LEASE))
    return verdicts


def test_a_node_that_renews_is_alive() -> None:
    assert not any(watch([(BEAT, counter) for counter in range(50)]))


def test_a_node_that_stands_still_for_a_lease_time_is_dead_and_not_before() -> None:
    verdicts = watch([(None, 7), *[(BEAT, 7)] * 10])

    assert verdicts == [False] * 10 + [True]


@pytest.mark.parametrize("lease", [0.5, 2.0, 15.0, 600.0])
def test_a_death_is_noticed_within_two_seconds_of_the_lease_time(lease: float) -> None:
    assert beat_of(lease) <= 1.5  # so much later a watcher may have seen the last renewal
    assert lease >= 5 * beat_of(lease)


@pytest.mark.parametrize("took", [0.1, 1.4, 1.6, 3.0, 6.0])
def test_a_death_is_noticed_by_a_watcher_whose_own_renewals_are_slow(took: float) -> None:
    gap = BEAT + took
    looks = math.ceil((LEASE + took) / gap)

    assert watch([(None, 7), *[(gap, 7)] * looks], took) == [False] * looks + [True]


def test_a_watcher_that_needs_longer_than_half_a_lease_time_for_a_renewal_declares_no_death() -> None:
    assert not any(watch([(None, 7), *[(LEASE / 2 + 0.1, 7)] * 100]))


def test_no_time_counts_before_the_counter_was_read() -> None:
    """The first renewal is sent at 0 and answered at 5.9, just after the other's last renewal; the next ones are quick."""
    began = [0.0, *(7.4 + BEAT * number for number in range(20))]
    sightings: dict[NodeId, Sighting] = {}
    for number, at in enumerate(began):
        since = at - began[number - 1] if number else None
        sightings = observe(sightings, [(OTHER, 7)], since=since, took=0.0 if number else 5.9, lease=LEASE)
        if is_dead(sightings[OTHER], lease=LEASE):
            assert LEASE - 0.001 < at - 5.9 < LEASE + BEAT + 0.001
            return
    pytest.fail("the death was not detected")


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 1), st.floats(0, 60), st.booleans()), min_size=1, max_size=40))
def test_a_node_is_not_declared_dead_before_its_counter_has_stood_still_for_a_lease_time(
    looks: list[tuple[float, float, float, bool]],
) -> None:
    """Each look takes some seconds, in which it reads the counter at some moment, and is followed by a pause."""
    sightings: dict[NodeId, Sighting] = {}
    sent, since, counter, read_first = 0.0, None, 0, 0.0
    for took, part, pause, renewed in looks:
        read = sent + took * part
        counter += renewed
        if renewed or since is None:
            read_first = read
        sightings = observe(sightings, [(OTHER, counter)], since=since, took=took, lease=LEASE)
        if is_dead(sightings[OTHER], lease=LEASE):
            assert read - read_first >= LEASE - 0.001
        since = took + pause
        sent += since


def test_a_first_look_says_nothing() -> None:
    assert watch([(None, 1)]) == [False]
    assert watch([(BEAT, 1)]) == [False]


def test_an_outage_or_a_sleep_of_the_watcher_starts_the_count_anew() -> None:
    silent_so_long = [(None, 7), *[(BEAT, 7)] * 9]

    assert watch([*silent_so_long, (600.0, 7), *[(BEAT, 7)] * 9])[-1] is False
    assert watch([*silent_so_long, (600.0, 7), *[(BEAT, 7)] * 10])[-1] is True


def test_a_node_that_is_gone_from_the_list_is_forgotten() -> None:
    before = {OTHER: Sighting(3, 9.0)}

    assert observe(before, [], since=BEAT, took=0.0, lease=LEASE) == {}


@given(st.lists(st.tuples(st.floats(0.01, 60), st.booleans()), max_size=60))
def test_no_node_dies_without_a_whole_silence_before_a_watcher_that_was_awake(looks: list[tuple[float, bool]]) -> None:
    counter = 0
    history: list[tuple[float | None, int]] = []
    silence = 0.0
    for since, renewed in looks:
        counter += renewed
        history.append((since, counter))
        silence = 0.0 if renewed or since > LEASE / 2 or len(history) == 1 else silence + since
        assert watch(history)[-1] is (silence >= LEASE)


# Processes that are busy.


def watch_process(shares: Sequence[float | None]) -> list[Sighting]:
    """Look at a node that never renews, once in a beat; each time it has used that share of a processor since."""
    sightings = observe({}, [(OTHER, 7)], since=None, took=0.0, lease=LEASE, cpu={OTHER: 0.0})
    seen, used = [], 0.0
    for share in shares:
        used += BEAT * (share or 0.0)
        cpu = {} if share is None else {OTHER: used}
        sightings = observe(sightings, [(OTHER, 7)], since=BEAT, took=0.0, lease=LEASE, cpu=cpu)
        seen.append(sightings[OTHER])
    return seen


def death(shares: Sequence[float | None]) -> float | None:
    """Seconds of silence after which it is dead."""
    return next((one.still for one in watch_process(shares) if is_dead(one, lease=LEASE)), None)


def test_a_busy_process_is_given_several_lease_times_and_no_more() -> None:
    assert death([1.0] * 100) == MAX_BUSY_LEASES * LEASE


@pytest.mark.parametrize("share", [0.0, 0.05, None])
def test_a_process_that_is_idle_stopped_or_invisible_is_dead_after_one_lease_time(share: float | None) -> None:
    assert death([share] * 100) == LEASE


def test_a_process_that_gets_a_share_of_a_crowded_machine_is_busy() -> None:
    assert death([0.2] * 100) == MAX_BUSY_LEASES * LEASE


def test_silence_counts_from_when_the_process_was_last_busy() -> None:
    assert death([1.0] * 8 + [0.0] * 100) == 8 * BEAT + LEASE
    assert death([None, 1.0, None, 1.0] + [0.0] * 100) == 4 * BEAT + LEASE - 4 * BEAT, "two readings make a share"


def test_a_busy_node_is_distinguished_from_a_silent_one_after_a_lease_time() -> None:
    busy = [is_only_busy(one, lease=LEASE) for one in watch_process([1.0] * 40)]
    silent = [is_only_busy(one, lease=LEASE) for one in watch_process([0.0] * 40)]

    assert busy == [False] * 9 + [True] * 30 + [False]
    assert not any(silent)


def test_a_renewal_ends_the_count() -> None:
    (*_, last) = watch_process([1.0] * 20)
    again = observe({OTHER: last}, [(OTHER, 8)], since=BEAT, took=0.0, lease=LEASE, cpu={OTHER: 99.0})

    assert again == {OTHER: Sighting(8, 0.0, cpu=99.0)}
