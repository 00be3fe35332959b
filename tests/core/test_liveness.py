"""Who is dead, and who only could not be seen."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.job import NodeId
from mainspring.core.liveness import Sighting, beat_of, is_dead, observe

LEASE = 15.0
BEAT = beat_of(LEASE)
OTHER = NodeId("other")


def watch(looks: Sequence[tuple[float | None, int]]) -> list[bool]:
    """Look at one node again and again: seconds since the last look, and its counter then. Was it dead?"""
    sightings: dict[NodeId, Sighting] = {}
    verdicts = []
    for since, counter in looks:
        sightings = observe(sightings, [(OTHER, counter)], since=since, lease=LEASE)
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
    looks = math.ceil(LEASE / gap)

    assert watch([(None, 7), *[(gap, 7)] * looks]) == [False] * looks + [True]


def test_a_watcher_that_needs_longer_than_half_a_lease_time_for_a_renewal_declares_no_death() -> None:
    assert not any(watch([(None, 7), *[(LEASE / 2 + 0.1, 7)] * 100]))


def test_a_first_look_says_nothing() -> None:
    assert watch([(None, 1)]) == [False]
    assert watch([(BEAT, 1)]) == [False]


def test_an_outage_or_a_sleep_of_the_watcher_starts_the_count_anew() -> None:
    silent_so_long = [(None, 7), *[(BEAT, 7)] * 9]

    assert watch([*silent_so_long, (600.0, 7), *[(BEAT, 7)] * 9])[-1] is False
    assert watch([*silent_so_long, (600.0, 7), *[(BEAT, 7)] * 10])[-1] is True


def test_a_node_that_is_gone_from_the_list_is_forgotten() -> None:
    before = {OTHER: Sighting(3, 9.0)}

    assert observe(before, [], since=BEAT, lease=LEASE) == {}


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
