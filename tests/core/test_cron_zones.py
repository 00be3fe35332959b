"""Every zone there is, at every change of its clocks, compared with a walk by hand and with the files of zones.

`make test` takes a part of the changes from 2015 to 2037, `make test-full` all of them, and those of other times.
"""

import os
import random
import struct
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest

from mainspring.core.cron import walk as walk_module
from mainspring.core.cron import zone as zone_module
from mainspring.core.cron.zone import zone
from mainspring.core.rules import Cron
from mainspring.errors import ScheduleError
from tests.core.cron_by_hand import MINUTE, SECOND, ByHand, changes, moments, slots, utc
from tests.tier import FULL

HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = sorted(zoneinfo.available_timezones() - {"localtime"})
RULES = [
    # These follow the clock on the wall.
    "* * * * *", "*/15 * * * *", "30 * * * *", "0 */2 * * *", "*/20 0-3 * * *",
    # These have fixed times.
    "30 2 * * *", "0 0 * * *", "0 3 * * *", "59 23 * * *", "15,45 0,1,2,3,4 * * *", "0-59/7 0-4 * * *",
    "5 1-23/2 * * *", "17,47 0-23 * * *", "10 23 * * FRI-MON",
    # These have days that a change may fall on, or beside.
    "0 2 * * SUN", "30 1 L * *", "0 0 1 * *", "0 1 * * 6#5,0L", "30 0 LW,15W * 5",
]  # fmt: skip
PARTS = 6 if FULL else 1
BY_HAND = {text: ByHand(text) for text in RULES}


@lru_cache
def all_changes(first: int, last: int) -> list[tuple[str, datetime]]:
    """Name every change of every zone in some years; zones that have changed alike are one."""
    begin, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    groups: dict[tuple[tuple[datetime, timedelta, timedelta], ...], str] = {}
    for name in NAMES:
        found = changes(zoneinfo.ZoneInfo(name), begin, end)
        groups.setdefault(tuple((one, offset(name, one - SECOND), offset(name, one)) for one in found), name)
    return [(name, change) for group, name in groups.items() for change, _, _ in group]


def offset(name: str, instant: datetime) -> timedelta:
    found = instant.astimezone(zoneinfo.ZoneInfo(name)).utcoffset()
    assert found is not None
    return found


def around(name: str, change: datetime) -> tuple[datetime, datetime]:
    """Return a time on both sides of a change; a longer one if a day was left out or came twice."""
    jump = abs(offset(name, change) - offset(name, change - SECOND))
    width = 4 * HOUR if jump <= 3 * HOUR else 30 * HOUR
    return change - width, change + width


def compare(name: str, change: datetime, rules: list[str], step: timedelta) -> int:
    """Compare what is found around a change with what is found by hand; returns how many slots that were."""
    start, end = around(name, change)
    walk = list(moments(zoneinfo.ZoneInfo(name), start, end, step))
    draw = random.Random(f"{name} {change}")  # noqa: S311 - the same ones in each run
    asked = [
        change - SECOND,
        change,
        change + SECOND,
        *(change + draw.randint(-4 * 3600, 4 * 3600) * SECOND for _ in "123"),
    ]
    compared = 0
    for text in rules:
        rule = Cron(text, tz=name)
        by_hand = slots(BY_HAND[text], walk)
        assert list(rule.between(start - SECOND, end)) == by_hand, (name, text)
        assert list(backwards(rule, start, end)) == by_hand[::-1], (name, text)
        assert rule.count(start - SECOND, end) == len(by_hand), (name, text)
        for instant in asked:
            later = next((slot for slot in by_hand if slot > instant), None)
            earlier = next((slot for slot in reversed(by_hand) if slot < instant), None)
            assert within(rule.next(instant), start, end) == later, (name, text, instant)
            assert within(rule.previous(instant), start, end) == earlier, (name, text, instant)
            assert rule.matches(instant) == (instant in by_hand), (name, text, instant)
        compared += len(by_hand)
    return compared


def backwards(rule: Cron, start: datetime, end: datetime) -> Iterator[datetime]:
    slot = rule.previous(end + SECOND)
    while slot and slot >= start:
        yield slot
        slot = rule.previous(slot)


def within(slot: datetime | None, start: datetime, end: datetime) -> datetime | None:
    return slot if slot and start <= slot <= end else None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_change_of_clocks_is_as_by_hand(part: int) -> None:
    found = all_changes(2015, 2037)
    assert len(found) > 1_500
    chosen = found[part :: PARTS if FULL else 6]
    compared = sum(compare(name, change, RULES, MINUTE) for name, change in chosen)
    assert compared > 100 * len(chosen)


if FULL:  # and not skipped otherwise: where everything is required, a test that is skipped fails

    @pytest.mark.slow
    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("part", range(PARTS))
    def test_so_is_every_change_before_and_after(part: int) -> None:
        """Long ago clocks showed parts of a minute; then the walk goes by seconds, with fewer rules."""
        for name, change in (all_changes(1850, 2014) + all_changes(2038, 2100))[part::PARTS]:
            odd = any(offset(name, one) % MINUTE for one in (change - SECOND, change)) or change.second
            rules = RULES[part::9] if odd else RULES[part % 2 :: 2]
            compare(name, change, rules, SECOND if odd else MINUTE)


# Against the files that zones come from.


def content(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        if (file := Path(folder) / name).is_file():
            return file.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def announced(file: bytes) -> list[tuple[int, int]]:
    """Read the changes in a file, as instants and the offsets from then on (RFC 9636)."""

    def counts(at: int) -> tuple[int, ...]:
        assert file[at : at + 4] == b"TZif"
        return struct.unpack(">6l", file[at + 20 : at + 44])

    universal, standard, leaps, times, kinds, letters = counts(0)
    at = 44 + times * 5 + kinds * 6 + letters + leaps * 8 + standard + universal  # the second part has 64 bits
    universal, standard, leaps, times, kinds, letters = counts(at)
    at += 44
    instants = struct.unpack(f">{times}q", file[at : at + 8 * times])
    which = file[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", file[at + 6 * kind : at + 6 * kind + 4])[0] for kind in range(kinds)]
    return [(instant, offsets[kind]) for instant, kind in zip(instants, which, strict=True)]


def seconds(text: str) -> int:
    return (utc(text) - EPOCH) // SECOND


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_change_in_any_file_is_overlooked() -> None:
    first, last = (seconds("1850-01-01T00:00Z"), seconds("2100-01-01T00:00Z")) if FULL else (
        seconds("2012-01-01T00:00Z"), seconds("2030-01-01T00:00Z"),
    )  # fmt: skip
    files = {content(name): name for name in NAMES}
    compared = 0
    for file, name in files.items():
        there = zone(name)
        told = [(instant, offset) for instant, offset in announced(file) if first <= instant < last]
        if not told:
            continue
        found, instant = [], first
        while instant <= told[-1][0]:
            stretch = there.at(instant)
            assert stretch.start <= instant < stretch.end
            found.append((stretch.start, stretch.offset))
            instant = stretch.end
        assert real(found) == real([(found[0][0], found[0][1]), *told]), name
        compared += len(told)
    assert compared > 1_000


def real(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Leave out the ends of half-years, and changes of a name that leave clocks alone."""
    return [later for earlier, later in pairwise(steps) if later[1] != earlier[1]]


def test_stretches_follow_one_another_and_know_what_was_shown() -> None:
    berlin = zone("Europe/Berlin")
    instant = seconds("2025-01-01T00:00Z")
    reached = None
    jumps = []
    while instant < seconds("2027-01-01T00:00Z"):
        stretch = berlin.at(instant)
        assert stretch.end > instant
        assert reached is None or stretch.reached == reached
        if instant == stretch.start and stretch.reached != stretch.start + stretch.offset:
            jumps.append((EPOCH + stretch.start * SECOND, stretch.start + stretch.offset - stretch.reached))
        instant, reached = stretch.end, stretch.end + stretch.offset
    assert jumps == [
        (utc("2025-03-30T01:00Z"), 3600),
        (utc("2025-10-26T01:00Z"), -3600),
        (utc("2026-03-29T01:00Z"), 3600),
        (utc("2026-10-25T01:00Z"), -3600),
    ]


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have stretches of half an hour at most instead of half a year, so that their ends fall everywhere."""

    def forget() -> None:
        for remembered in (walk_module.walk, zone_module.zone, zone_module._stretches):
            remembered.cache_clear()

    forget()
    monkeypatch.setattr(zone_module, "_HALF_YEAR", 11)
    yield
    forget()


@pytest.mark.usefixtures("short_memory")
@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"])
def test_it_does_not_matter_where_a_half_year_ends(name: str) -> None:
    for change in changes(zoneinfo.ZoneInfo(name), utc("2011-06-01T00:00Z"), utc("2012-06-01T00:00Z")):
        compare(name, change, ["*/15 * * * *", "17,47 0-23 * * *"], MINUTE)


# Names.


@pytest.mark.parametrize(("name", "said"), [
    ("Europe/Berln", "there is no zone named 'Europe/Berln'; did you mean 'Europe/Berlin'?"),
    ("europe/berlin", "did you mean 'Europe/Berlin'?"),
    ("New York", "there is no zone named 'New York'"),
    ("Mars/Base", "expected a name such as 'Europe/Berlin'"),
    ("", "there is no zone named ''"),
    ("Europe", "there is no zone named 'Europe'"),
    ("Europe/", "there is no zone named 'Europe/'"),
    ("/etc/passwd", "there is no zone named '/etc/passwd'"),
    ("../zoneinfo/UTC", "there is no zone named '../zoneinfo/UTC'"),
    ("localtime", "there is no zone named 'localtime'"),
    ("right/Europe/Berlin", "did you mean 'Europe/Berlin'?"),
    ("posix/Europe/Berlin", "did you mean 'Europe/Berlin'?"),
    ("leapseconds", "there is no zone named 'leapseconds'"),
    ("x\x00", "there is no zone named 'x\\x00'"),
    ("\ud800", "there is no zone named"),
    ("a" * 5_000, "there is no zone named 'aaaa"),
    ("a/" * 2_000 + "a", "there is no zone named 'a/a/"),
    (" UTC", "there is no zone named ' UTC'"),
])  # fmt: skip
def test_a_zone_that_does_not_exist_is_refused_with_a_hint(name: str, said: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Cron("0 9 * * *", tz=name)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


def test_every_zone_of_this_system_is_known() -> None:
    for name in NAMES:
        assert Cron("0 9 * * *", tz=name).tz == name


def test_without_any_data_of_zones_there_is_still_utc() -> None:
    program = """
import sys
sys.modules["tzdata"] = None
from mainspring.core.rules import Cron
print(Cron("0 9 * * *").explain())
try:
    Cron("0 9 * * *", tz="Europe/Berlin")
except ValueError as error:
    print(error)
"""
    environment = os.environ | {"PYTHONTZPATH": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    said, refused = done.stdout.splitlines()
    assert said == "At 09:00 every day, UTC."
    assert refused.endswith("this system has no data of zones at all: install the package tzdata")
