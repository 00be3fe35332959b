"""What it costs to find the next slot of a schedule, beside cronsim, which tests compare with.

A rule is asked at one instant after the other, an hour and a bit apart, for two years: so changes of clocks, the ends of
months and the ends of what is remembered are in it, in the share that they have in a program's life. Measured is the
time of the processor, because others may be at work on it.
"""

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim

from mainspring.core.cron import expression, walk, zone
from mainspring.core.rules import Cron, Rule

ROUNDS, CALLS = 15, 2_000
START = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = [START + n * timedelta(minutes=517, seconds=7) for n in range(CALLS)]
GOAL = 10
"""Microseconds that the next slot of a common rule may take."""

COMMON = [
    ("*/5 * * * *", "UTC"),
    ("*/5 * * * *", "Europe/Berlin"),
    ("0 9 * * MON-FRI", "Europe/Berlin"),
    ("0 0 1 * *", "Europe/Berlin"),
    ("30 2 * * *", "Europe/Berlin"),
    ("*/10 * * * * *", "Europe/Berlin"),
]
RARE = [("0 0 LW * *", "Europe/Berlin"), ("0 0 29 2 *", "Europe/Berlin"), ("0 0 ? 2 FRI#5", "America/New_York")]


def main() -> None:
    print(f"{'µs':<48}{'next':>8}{'fastest':>10}{'previous':>10}{'cronsim':>10}")
    slowest = max(row(text, tz) for text, tz in COMMON)
    print(f"\nThe slowest of these common ones takes {slowest:.1f} µs; the goal is less than {GOAL}.\n")
    for text, tz in RARE:
        row(text, tz)
    reading()


def row(text: str, tz: str) -> float:
    rule = Cron(text, tz=tz)
    place = UTC if tz == "UTC" else ZoneInfo(tz)
    later = measure(lambda: [rule.next(instant) for instant in ASKED])
    earlier = measure(lambda: [rule.previous(instant) for instant in ASKED])
    peer = "-"
    if "?" not in text:
        some = [instant.astimezone(place) for instant in ASKED[::20]]
        peer = f"{statistics.median(measure(lambda: [next(CronSim(text, one)) for one in some], len(some))):.1f}"
    median = statistics.median(later)
    name = f"{text}  {tz}"
    print(f"{name:<48}{median:>8.2f}{min(later):>10.2f}{statistics.median(earlier):>10.2f}{peer:>10}")
    return median


def reading() -> None:
    """Measure how long it takes to read a rule for the first time, and a stored one that was read before."""
    stored = msgspec.json.encode(Cron("0 9 * * MON-FRI", tz="Europe/Berlin"))
    read = msgspec.json.Decoder(Rule).decode
    print(f"\n{'read a stored rule':<48}{statistics.median(measure(lambda: read(stored), 1)):>8.2f}")

    def anew() -> None:
        expression.read.cache_clear()
        walk.walk.cache_clear()
        read(stored)

    print(f"{'the same, not remembered':<48}{statistics.median(measure(anew, 1)):>8.2f}")

    def zone_anew() -> None:
        zone._stretches.cache_clear()  # noqa: SLF001 - what is measured is what it saves
        zone.zone("Europe/Berlin").at(0)
        zone.zone("Europe/Berlin").at(1 << 30)

    print(f"{'half a year of a zone, not remembered':<48}{statistics.median(measure(zone_anew, 2)):>8.2f}")


def measure(call: Callable[[], object], calls: int = CALLS) -> list[float]:
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        took.append((time.process_time() - began) / calls * 1e6)
    return took


if __name__ == "__main__":
    main()
