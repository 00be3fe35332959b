"""Exact times are in UTC, or as the clocks of who looks show them: whichever was chosen, everywhere and for good."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import Seen, seen
from tests.browser.test_dashboard import SHIFTS, failed
from tests.browser.test_pages import Shop, shop

__all__ = ["shop"]
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

TOKYO = timedelta(hours=9)
"""Without a summer time."""


def title(one: Locator) -> str:
    return one.get_attribute("title") or ""


def in_tokyo(utc: str) -> str:
    """The same instant to the same digit."""
    shape = "%Y-%m-%d %H:%M:%S.%f" if "." in utc else "%Y-%m-%d %H:%M:%S" if utc.count(":") == 2 else "%Y-%m-%d %H:%M"
    there = (datetime.strptime(utc.removesuffix(" UTC"), shape).replace(tzinfo=UTC) + TOKYO).strftime(shape)
    return f"{there[: len(utc) - 4]} GMT+9"


def times(at: Seen) -> list[str]:
    return at.page.evaluate("[...document.querySelectorAll('main time[title]')].map((one) => one.title)")  # type: ignore[no-any-return]  # as it is


def test_exact_times_are_switched_and_the_choice_is_kept(browser: Browser, shop: tuple[Shop, str]) -> None:
    with seen(browser, *shop, zone="Asia/Tokyo") as at:
        (id_,) = failed(at)
        at.go(f"job?id={id_}")
        at.page.locator("#live").click()
        in_utc, line = times(at), at.page.locator(".line time")
        assert in_utc
        assert all(one.endswith(" UTC") for one in in_utc)
        said = line.inner_text()
        at.page.evaluate(SHIFTS)
        at.page.locator("#clock").focus()
        at.page.keyboard.press("Enter")
        assert times(at) == [in_tokyo(one) for one in in_utc]
        assert line.inner_text()[:2] == f"{(int(said[:2]) + 9) % 24:02}"
        assert line.inner_text()[2:] == said[2:]
        assert at.page.evaluate("window.shifted") < 0.001  # no more than figures of a time that goes on
        expect(at.page.locator("#clock")).to_have_accessible_name("Exact times: local time")

        at.go("schedule?name=nightly")
        wall, under = at.page.locator(".slots .wall").first, at.page.locator(".slots .under").first
        expect(wall).to_have_text(re.compile(r" 02:30 CES?T$"))  # a rule is told on the clocks of its own zone
        expect(under).to_have_text(re.compile(r" (09|10):30 GMT\+9$"))

        at.page.keyboard.press("z")
        expect(under).to_have_text(re.compile(r" 0[01]:30 UTC$"))
        at.go(f"job?id={id_}")
        assert times(at) == in_utc
        assert at.complaints == []


def test_what_comes_later_and_what_is_pointed_at_follow(browser: Browser, shop: tuple[Shop, str]) -> None:
    with seen(browser, *shop, zone="Asia/Tokyo") as at:
        at.go("schedule?name=often")
        at.page.keyboard.press("z")
        runs = at.page.locator(".runs tbody tr")
        before = runs.count()
        expect(runs).not_to_have_count(before)  # one a second
        assert all(one.endswith(" GMT+9") for one in times(at))
        at.page.locator("#live").click()
        at.page.locator("[data-strip] a").last.hover()
        expect(at.page.locator(".tip")).to_contain_text("GMT+9")
        expect(at.page.locator(".rule")).to_have_text(re.compile(r"for the first time at [\d-]+ [\d:]{8} GMT\+9\.$"))


def test_what_only_looks_like_a_time_is_left_as_it_is(browser: Browser, shop: tuple[Shop, str]) -> None:
    with seen(browser, *shop, zone="Asia/Tokyo") as at:
        at.go()
        at.page.keyboard.press("z")
        said = "ValueError: 2026-99-99 99:99 UTC is none, 2026-01-31 23:30 UTC is"
        assert at.page.evaluate("(text) => window.mainspring.onClock(text)", said) == (
            "ValueError: 2026-99-99 99:99 UTC is none, 2026-02-01 08:30 GMT+9 is"
        )


def test_the_chart_follows_the_same_clock(browser: Browser, shop: tuple[Shop, str]) -> None:
    with seen(browser, *shop, zone="Asia/Tokyo") as at:
        at.go()
        chart = at.page.locator("#rates .u-over")
        for zone in ("UTC", "GMT+9"):
            chart.hover()
            expect(at.page.locator(".chart-tip")).to_contain_text(re.compile(rf"^\d\d:\d\d {re.escape(zone)}"))
            hour = int(at.page.locator(".chart-tip").inner_text()[:2])
            now = datetime.now(UTC) - timedelta(minutes=30) + (TOKYO if zone != "UTC" else timedelta(0))
            assert (now.hour - hour) % 24 in {0, 1, 23}
            at.page.keyboard.press("z")
            at.page.mouse.move(0, 0)
        assert at.complaints == []
