"""Schedules, outboxes, dead letters, breakers and the audit log, as people use them."""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from mainspring import Breaker, Cron, Every, Fail, Mainspring
from mainspring.client.outbox import Outbox
from mainspring.core.breaker import Phase
from mainspring.outbox.message import Message
from tests.browser.conftest import Program, Seen, seen
from tests.browser.test_dashboard import SHIFTS

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

MANY = 250
"""Letters: more than one page, and more than two steps."""


class Shop(Program):
    """A program with schedules, an outbox whose messages all fail until they are wanted, and a breaker."""

    def __init__(self) -> None:
        super().__init__()
        app = self.app
        self.wanted = False
        self.orders = self._declared(app)

    def _declared(self, app: Mainspring) -> Outbox[Any]:
        @app.task(name="report", breaker=Breaker(threshold=3))
        async def report() -> None: ...

        app.schedule(Cron("30 2 * * *", tz="Europe/Berlin"), name="nightly")(report)
        app.schedule(Every("1s"), name="often")(report)
        orders: Outbox[Any] = app.outbox("orders", partitions=8)

        @orders.handler(max_attempts=1)
        async def handle(message: Message[Any]) -> None:
            if not self.wanted:
                raise Fail(f"nobody wants {message.seq}")

        return orders

    def letters(self, many: int) -> list[int]:
        """Have so many letters, and name them."""

        async def publish() -> list[int]:
            for number in range(many):
                await self.orders.publish(None, {"order": number}, key=str(number))
            while True:
                letters = (await self.orders.letters(limit=1000)).letters
                if len(letters) >= many:
                    return [one.id for one in letters]
                await asyncio.sleep(0.05)

        return self.do(publish)


@pytest.fixture
def shop() -> Iterator[tuple[Shop, str]]:
    found = Shop()
    base = found.start()
    try:
        yield found, base
    finally:
        found.stop()


@pytest.fixture
def at(browser: Browser, shop: tuple[Shop, str]) -> Iterator[Seen]:
    with seen(browser, *shop) as found:
        yield found
    assert found.complaints == []
    assert found.hosts == {shop[1].split("/")[2]}


def shop_of(at: Seen) -> Shop:
    assert isinstance(at.program, Shop)
    return at.program


def test_each_page_loads_and_lives_on_without_a_complaint(at: Seen) -> None:
    shop_of(at).letters(3)
    for path in ("schedules", "schedule?name=often", "outboxes", "letters", "breakers", "plugins", "audit"):
        at.lives_on(path)  # a schedule fires every second
        expect(at.page.locator("h1")).to_be_visible()
        expect(at.page.locator("#live-word")).to_have_text("live")


def test_a_schedule_is_run_now_and_its_run_is_seen(at: Seen) -> None:
    at.go("schedules")
    row = at.page.locator("tr", has=at.page.locator("#schedule-nightly"))
    expect(row.get_by_text("none yet")).to_be_visible()
    row.get_by_role("button", name="Run now").click()
    expect(at.page.locator(".toast")).to_have_text("A job was made of the schedule.")
    expect(row.locator("[data-strip] .is-succeeded")).to_have_count(1)
    (run,) = at.program.do(lambda: at.program.app.schedules.runs("nightly")).runs
    row.locator(f"#run-{run.id}").hover()
    expect(at.page.locator(".tip")).to_contain_text("by hand")
    row.locator(f"#run-{run.id}").click()
    at.page.wait_for_url(f"**/job?id={run.job}")


def test_a_schedule_is_paused_with_a_reason_and_resumed(at: Seen) -> None:
    at.go("schedule?name=nightly")
    at.page.get_by_role("button", name="Pause").click()
    at.page.locator("#ask").get_by_role("button", name="Leave it").click()
    assert at.program.do(lambda: at.program.app.schedules.get("nightly")).paused is None
    at.page.get_by_role("button", name="Pause").click()
    at.page.locator("#ask-reason").fill("the figures are wrong")
    at.page.keyboard.press("Enter")
    expect(at.page.locator("h1 .state")).to_have_text("paused")
    paused = at.program.do(lambda: at.program.app.schedules.get("nightly")).paused
    assert paused is not None
    assert (paused.by, paused.reason) == ("local", "the figures are wrong")
    expect(at.page.locator(".warning")).to_contain_text("the figures are wrong")
    at.page.get_by_role("button", name="Resume").click()
    expect(at.page.locator("h1 .state")).to_have_text("on")
    assert at.program.do(lambda: at.program.app.schedules.get("nightly")).paused is None


def test_why_a_schedule_is_paused_is_not_cut_off(at: Seen) -> None:
    reason = "the text is not ready"
    at.program.do(lambda: at.program.app.schedules.pause("nightly", by="anna", reason=reason))
    for width in (1280, 1101, 800, 390):
        at.page.set_viewport_size({"width": width, "height": 800})
        at.go("schedules")
        note = at.page.locator("tr", has=at.page.locator("#schedule-nightly")).locator(".c-standing .under")
        expect(note).to_contain_text(reason)
        assert note.evaluate("one => one.scrollHeight - one.clientHeight + one.scrollWidth - one.clientWidth") <= 1, (
            width
        )


def test_where_a_letter_comes_from_stands_in_one_line(at: Seen) -> None:
    shop_of(at).letters(128)  # numbers of two digits
    for width in (1280, 1101, 800, 390):
        at.page.set_viewport_size({"width": width, "height": 800})
        at.go("letters")
        places = at.page.locator(".c-from .under")
        assert re.search(r"number \d\d$", "\n".join(places.all_inner_texts()), re.MULTILINE)
        assert max(places.evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")) < 25, width


def test_slots_of_the_past_are_previewed_and_then_filled(at: Seen) -> None:
    now = datetime.now(UTC)
    at.go("schedule?name=nightly")
    at.page.get_by_role("button", name="Backfill…").click()
    at.page.locator("[name=since]").fill(f"{now - timedelta(days=5):%Y-%m-%dT%H:%M:00}")  # which the field leaves out
    at.page.locator("[name=until]").fill(f"{now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}")
    at.page.get_by_role("button", name="Preview").click()
    expect(at.page.locator("#bulk-text")).to_have_text("5 slots.")
    assert at.program.do(lambda: at.program.app.schedules.runs("nightly")).runs == ()
    at.page.locator("#bulk-go").click()
    expect(at.page.locator("#bulk-text")).to_have_text("5 jobs made.")
    at.page.locator("#bulk-stop").click()
    expect(at.page.locator(".runs .tag")).to_have_count(5)
    assert len(at.program.do(lambda: at.program.app.schedules.runs("nightly")).runs) == 5


def test_a_letter_is_replayed_and_delivered(at: Seen) -> None:
    shop = shop_of(at)
    (id_,) = shop.letters(1)
    at.go("letters?outbox=orders")
    shop.wanted = True
    at.page.locator(f"#row-{id_}").click()
    at.page.get_by_role("button", name="Replay").first.click()
    expect(at.page.locator(".toast")).to_have_text("The letter will be delivered again.")
    expect(at.page.get_by_text("There are no dead letters.")).to_be_visible()
    assert shop.do(shop.orders.letters).letters == ()


def test_all_letters_that_match_are_replayed_once_although_they_fail_again(at: Seen) -> None:
    shop = shop_of(at)
    before = shop.letters(MANY)
    at.go("letters?outbox=orders")
    at.page.locator("#all").check()
    expect(at.page.locator("#bulk-count")).to_have_text("50")
    at.page.locator("#bulk-all").check()
    at.page.locator("[data-letters=replay]").click()
    expect(at.page.locator("#bulk-text")).to_have_text(
        f"{MANY} letters will be delivered again, the oldest failure first."
    )
    at.page.locator("#bulk-go").click()
    expect(at.page.locator("#bulk-text")).to_have_text(f"{MANY} done.")
    at.until(lambda: len(shop.do(lambda: shop.orders.letters(limit=1000)).letters) == MANY)  # all of them came back
    assert not set(before) & {one.id for one in shop.do(lambda: shop.orders.letters(limit=1000)).letters}


def test_what_is_selected_is_discarded_and_nothing_else(at: Seen) -> None:
    shop = shop_of(at)
    ids = shop.letters(3)
    at.go("letters")
    at.page.locator(f"input[type=checkbox][value='{ids[1]}']").check()
    expect(at.page.locator("#live-word")).to_have_text("on hold")
    at.page.locator("[data-letters=discard]").click()
    expect(at.page.locator("#bulk-text")).to_have_text("1 letter will not be delivered.")
    at.page.locator("#bulk-go").click()
    expect(at.page.locator("#bulk-text")).to_have_text("1 done.")
    at.page.locator("#bulk-stop").click()
    expect(at.page.locator("#rows tr")).to_have_count(2)
    assert [one.id for one in shop.do(shop.orders.letters).letters] == [ids[0], ids[2]]


def test_a_breaker_is_forced_open_and_reset(at: Seen) -> None:
    def circuit() -> tuple[Phase, bool]:
        found = at.program.do(lambda: at.program.app.breakers.show("report")).breaker.circuit
        return found.phase, found.forced

    at.go("breakers")
    row = at.page.locator("tr", has=at.page.locator("#breaker-report"))
    row.get_by_role("button", name="Open").click()
    at.page.locator("#ask-reason").fill("they asked us to stop")
    at.page.locator("#ask-yes").click()
    expect(row.locator(".state")).to_have_text("open")
    expect(row).to_contain_text("by local: they asked us to stop")
    assert circuit() == (Phase.OPEN, True)
    row.get_by_role("button", name="Reset").click()
    at.page.locator("#ask-yes").click()
    expect(row.locator(".state")).to_have_text("closed")
    assert circuit() == (Phase.CLOSED, False)
    at.go("audit")
    expect(at.page.locator("#rows tr")).to_have_count(2)
    expect(at.page.locator("#rows tr").first).to_contain_text("breakers.reset")
    expect(at.page.locator("#rows tr").first).to_contain_text("done")
    at.program.do(lambda: at.program.app.enqueue("report"))


def test_the_audit_log_shows_what_is_done_elsewhere_meanwhile(at: Seen) -> None:
    at.go("audit")
    expect(at.page.get_by_text("Nobody has changed anything yet.")).to_be_visible()
    done = at.page.request.post(f"{at.base}api/v1/schedules/run", data={"name": "nightly"})
    assert done.ok
    expect(at.page.locator("#rows tr")).to_have_count(1)
    at.page.get_by_role("link", name="nightly").click()
    at.page.wait_for_url("**/schedule?name=nightly")


def test_runs_come_without_being_asked_for_and_nothing_jumps(at: Seen) -> None:
    at.go("schedules")
    at.until(lambda: at.page.locator("[data-strip] a").count() > 2)
    at.page.evaluate(SHIFTS)
    before = at.page.locator("[data-strip] a").count()
    at.until(lambda: at.page.locator("[data-strip] a").count() > before + 1)
    assert at.page.evaluate("window.shifted") < 0.01


def test_what_was_opened_stays_open_while_others_come(at: Seen) -> None:
    shop = shop_of(at)
    (id_,) = shop.letters(1)
    at.go("letters")
    at.page.locator(f"#row-{id_}").click()
    shop.do(lambda: shop.orders.publish(None, {"order": "another"}, key="x"))
    expect(at.page.locator("#rows tr")).to_have_count(2)
    expect(at.page.locator(f"#letter-{id_} pre")).to_be_visible()


def test_runs_are_walked_by_keys(at: Seen) -> None:
    at.until(lambda: len(at.program.do(lambda: at.program.app.schedules.runs("often")).runs) > 2)
    at.go("schedules")
    at.page.locator("#live").click()  # so that there are no more of them meanwhile
    runs = at.page.locator("[data-strip]").first.locator("a")

    def is_told_of_the_last() -> bool:
        """Rows that were asked for before the click still come, and replace the one that has the focus."""
        runs.last.blur()
        runs.last.focus()
        return at.page.locator(".tip").is_visible()

    at.until(is_told_of_the_last)
    at.page.keyboard.press("ArrowLeft")
    assert runs.nth(runs.count() - 2).evaluate("one => one === document.activeElement")
    for key, page in {"u": "outboxes", "b": "breakers", "p": "plugins", "a": "audit", "s": "schedules"}.items():
        at.page.keyboard.press("g")
        at.page.keyboard.press(key)
        at.page.wait_for_url(re.compile(f".*/{page}$"))


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, shop: tuple[Shop, str]) -> None:
    with seen(browser, *shop, width=360, height=740) as at:
        shop[0].letters(2)
        for path in ("schedules", "schedule?name=often", "outboxes", "letters", "breakers", "plugins", "audit"):
            at.go(path)
            assert at.page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert at.complaints == []


@pytest.mark.parametrize("path", ["schedules", "breakers"])
def test_at_a_middling_width_what_can_be_done_stands_beside_the_name(at: Seen, path: str) -> None:
    # In one step: the page replaces its rows now and then.
    boxes = """() => {
      const row = document.querySelector("tbody tr");
      return [".c-name", ".c-acts", ".c-standing, .c-phase"].map((one) => row.querySelector(one).getBoundingClientRect());
    }"""
    at.go(path)
    for width in (850, 1100):
        at.page.set_viewport_size({"width": width, "height": 800})
        name, acts, below = at.page.evaluate(boxes)
        assert min(name["width"], acts["width"], below["width"]) > 0
        assert abs(name["y"] + name["height"] / 2 - acts["y"] - acts["height"] / 2) < 10
        assert below["y"] >= name["y"] + name["height"]
        assert below["x"] == name["x"] or path == "schedules"


def test_at_no_width_is_a_button_out_of_sight(browser: Browser, shop: tuple[Shop, str]) -> None:
    wide = """() => [...document.querySelectorAll("main .scroll:has(> .jobs, > .records, > .list)")]
      .filter((one) => one.scrollWidth > one.clientWidth + 1).length"""
    shop[0].letters(2)
    with seen(browser, *shop) as at:
        for path in ("jobs", "queues", "schedules", "nodes", "services", "letters", "breakers", "audit"):
            at.go(path)
            for width in (360, 721, 900, 1101, 1201, 1280):
                at.page.set_viewport_size({"width": width, "height": 800})
                assert at.page.evaluate(wide) == 0, (path, width)
        assert at.complaints == []
