"""Time is one object."""

from datetime import UTC

from mainspring.clock import Clock, SystemClock


def test_the_systems_clock_tells_aware_wall_time_and_seconds_that_never_go_back() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.now() <= clock.now()
    assert clock.monotonic() <= clock.monotonic()
