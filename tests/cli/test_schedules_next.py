"""The slots of a rule as people read them, with what changes of clocks do to them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Cron, Every
from mainspring.client.clocks import clock_changes, shown_slots
from tests.cli.conftest import Shop, cli
from tests.cli.schedules_shop import plan


def explained(*arguments: str, code: int = 0) -> str:
    done = cli("schedules", "explain", *arguments)
    assert done.exit_code == code, done.output
    return done.output


def marks(text: str, tz: str, after: str, number: int = 4) -> list[tuple[str, str | None]]:
    """The local times of slots, and how each is marked."""
    done = json.loads(explained(text, "--tz", tz, "--after", after, "-n", str(number), "--json"))
    return [(slot["local"], slot["mark"]) for slot in done["slots"]]


def test_a_rule_is_said_in_english_with_its_next_slots() -> None:
    sentence, empty, heading, *slots = explained("0 9 * * MON-FRI", "--tz", "Europe/Berlin").splitlines()
    assert (sentence, empty) == ("At 09:00 on Monday to Friday, Europe/Berlin time.", "")
    assert heading.split()[:3] == ["LOCAL", "UTC", "WHEN"]
    table = [line for line in slots if " in " in line]
    assert len(table) == 5
    assert all(" 09:00 CE" in line and line[:3] not in {"Sat", "Sun"} for line in table)


def test_in_utc_there_is_one_column_of_times() -> None:
    lines = explained("0 9 * * *", "-n", "2").splitlines()
    assert lines[2].split() == ["UTC", "WHEN"]
    assert len(lines) == 5


def test_times_of_one_list_have_one_form() -> None:
    slots = explained(
        "*/30 * * * * *", "--tz", "Europe/Berlin", "--after", "2027-03-26T09:00:00", "-n", "3"
    ).splitlines()
    assert [line.split()[2:6:3] for line in slots[3:]] == [
        [f"09:{time}", "2027-03-26"] for time in ("00:30", "01:00", "01:30")
    ]
    assert [line.split()[6] for line in slots[3:]] == ["08:00:30", "08:01:00", "08:01:30"]


def test_a_slot_that_the_clocks_leave_out_is_marked_and_explained() -> None:
    lines = explained("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2027-03-26", "-n", "4").splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("Sun")] == ["moved"]
    assert lines[-1] == (
        "2027-03-28 03:00: clocks go forward 02:00 → 03:00 on 2027-03-28; 02:30 does not exist that day: moved to 03:00"
    )
    assert "Sun 2027-03-28 03:00 CEST  Sun 2027-03-28 01:00" in lines[5]


def test_a_time_that_comes_twice_is_marked() -> None:
    assert marks("30 2 * * *", "Europe/Berlin", "2027-10-30") == [
        ("2027-10-30T02:30:00+02:00", None),
        ("2027-10-31T02:30:00+02:00", "first of two"),
        ("2027-11-01T02:30:00+01:00", "changed"),
        ("2027-11-02T02:30:00+01:00", None),
    ]


def test_a_rule_that_follows_the_wall_has_both() -> None:
    assert marks("*/30 * * * *", "Europe/Berlin", "2027-10-31T00:20:00Z", 5) == [
        ("2027-10-31T02:30:00+02:00", "first of two"),
        ("2027-10-31T02:00:00+01:00", "second of two"),
        ("2027-10-31T02:30:00+01:00", "second of two"),
        ("2027-10-31T03:00:00+01:00", None),
        ("2027-10-31T03:30:00+01:00", None),
    ]
    assert marks("*/30 * * * *", "Europe/Berlin", "2027-03-28T01:00", 3) == [
        ("2027-03-28T01:30:00+01:00", None),
        ("2027-03-28T03:00:00+02:00", "changed"),
        ("2027-03-28T03:30:00+02:00", None),
    ]


@pytest.mark.parametrize(
    ("text", "tz", "after", "says"),
    [
        ("0 3 * * *", "Europe/Berlin", "2027-03-28", ["clocks go forward 02:00 → 03:00 on 2027-03-28"]),
        (
            "0-59 2 * * *",
            "Europe/Berlin",
            "2027-03-28",
            ["clocks go forward 02:00 → 03:00 on 2027-03-28", "02:00 to 02:59 do not exist that day: moved to 03:00"],
        ),
        (
            "0,30 2,3 * * *",
            "Europe/Berlin",
            "2027-03-28",
            ["clocks go forward 02:00 → 03:00 on 2027-03-28", "02:00 and 02:30 do not exist that day: moved to 03:00"],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-04",
            ["clocks go forward 02:00 → 02:30 on 2026-10-04", "02:15 does not exist that day: moved to 02:30"],
        ),
        (
            "0 12 30 * *",
            "Pacific/Apia",
            "2011-12-29",
            [
                "clocks go forward from 2011-12-30 00:00 to 2011-12-31 00:00",
                "12:00 does not exist that day: moved to 2011-12-31 00:00",
            ],
        ),
        ("0 0 1 1 *", "Europe/Berlin", "2027-05-01", ["clocks go back 03:00 → 02:00 on 2027-10-31"]),
        ("0 0 29 2 *", "Europe/Berlin", "2028-03-01", ["clocks change 8 times from 2028-03-26 to 2031-10-26"]),
        ("0 9 * * *", "Asia/Tokyo", "2027-03-28", []),
    ],
)
def test_changes_of_clocks_are_told_in_sentences(text: str, tz: str, after: str, says: list[str]) -> None:
    done = json.loads(explained(text, "--tz", tz, "--after", after, "-n", "1", "--json"))
    (slot,) = done["slots"]
    assert slot["says"] == says


def test_a_slot_as_json_has_all_that_was_said() -> None:
    done = json.loads(explained("30 2 * * *", "--tz", "Europe/Berlin", "--after", "2027-03-28", "-n", "1", "--json"))
    assert done == {
        "rule": {"type": "cron", "text": "30 2 * * *", "tz": "Europe/Berlin"},
        "explained": "At 02:30 every day, Europe/Berlin time.",
        "slots": [
            {
                "slot": "2027-03-28T01:00:00Z",
                "local": "2027-03-28T03:00:00+02:00",
                "zone": "Europe/Berlin",
                "mark": "moved",
                "says": [
                    "clocks go forward 02:00 → 03:00 on 2027-03-28",
                    "02:30 does not exist that day: moved to 03:00",
                ],
                "clock_changes": [
                    {"at": "2027-03-28T01:00:00Z", "shown": "2027-03-28T02:00:00", "instead": "2027-03-28T03:00:00"}
                ],
                "moved_from": ["2027-03-28T02:30:00"],
            }
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["0 25 * * *"], "mainspring: Cron('0 25 * * *'): hour: '25' is out of range; expected 0 to 23"),
        (["0 0 31 2 *"], "it can never fire"),
        (["@reboot"], "use a service"),
        (["* * * *"], "expected 5 fields"),
        (["0 9 * * *", "--tz", "Europe/Berln"], "did you mean 'Europe/Berlin'?"),
        (["0 9 * * *", "-n", "0"], "0 is not in the range"),
        (["0 9 * * *", "--after", "tomorrow"], "'tomorrow' is no instant; write it as 2027-01-31, "),
    ],
)
def test_rules_that_cannot_be_read_end_with_2_and_say_why(arguments: list[str], says: str) -> None:
    text = explained(*arguments, code=2)
    assert says in text
    assert text.count("\n") == 1


def test_the_next_slots_of_a_schedule_are_those_of_its_rule(shop: Shop) -> None:
    plan(shop, rule=Cron("30 2 * * *", tz="Europe/Berlin"))
    arguments = ("next", "nightly", "--after", "2027-03-27", "-n", "2")
    done = cli("schedules", *arguments, "--url", shop.url)
    assert done.exit_code == 0
    assert done.output.splitlines()[0].split() == ["LOCAL", "UTC", "WHEN", "CLOCKS"]
    assert "02:30 does not exist that day: moved to 03:00" in done.output
    slots = shop.lines("schedules", *arguments)
    assert [slot["local"] for slot in slots] == ["2027-03-27T02:30:00+01:00", "2027-03-28T03:00:00+02:00"]
    assert [slot["mark"] for slot in slots] == [None, "moved"]


def test_no_more_slots_are_shown_than_will_make_a_job(shop: Shop) -> None:
    start = datetime.now(UTC) + timedelta(hours=1)
    plan(shop, "few", Every("1h", start=start), max_runs=3)
    plan(shop, "short", Every("1h", start=start), until=start + timedelta(hours=1))
    assert len(shop.lines("schedules", "next", "few")) == 3
    assert len(shop.lines("schedules", "next", "short")) == 2


def test_of_a_fixed_delay_one_slot_is_known(shop: Shop) -> None:
    plan(shop, rule=Every("15m", after_end=True))
    assert len(shop.lines("schedules", "next", "nightly")) == 1
    assert "More is known when that has ended." in cli("schedules", "next", "nightly", "--url", shop.url).output


def test_a_zone_without_changes_has_none() -> None:
    start, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    assert list(clock_changes("Asia/Tokyo", start, end)) == []
    assert list(clock_changes("UTC", start, end)) == []
    assert len(list(clock_changes("Europe/Berlin", start, end))) == 20


def test_a_change_at_a_slot_belongs_to_that_slot_and_to_no_other() -> None:
    rule = Cron("0 3 * * *", tz="Europe/Berlin")
    start = datetime(2027, 3, 27, 12, tzinfo=UTC)
    slots = list(rule.between(start, start + timedelta(days=3)))
    assert [len(one.changes) for one in shown_slots(rule, "Europe/Berlin", slots, start)] == [1, 0, 0]
