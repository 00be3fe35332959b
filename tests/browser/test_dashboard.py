"""Pages load without a complaint and without asking other hosts; buttons change the store; what changes is seen."""

import re
from datetime import timedelta

import pytest
from msgspec import structs
from playwright.sync_api import Browser, expect

from mainspring.core.job import State
from mainspring.web import ticks
from mainspring.web.groups import ALL as ROUTES
from mainspring.web.pages import ALL
from tests.browser.conftest import Program, Seen, seen

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

EVIL = """<img src=x onerror="alert(1)"><script>alert(2)</script>"""
SHIFTS = """() => {
  window.shifted = 0;
  new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shifted += one.value; })
    .observe({type: "layout-shift"});
}"""
"""Counts shifts from now on; those of a page that is still being loaded are not the subject."""


def failed(see: Seen, many: int = 1) -> list[str]:
    jobs = [see.program.enqueue("mail.send", "nobody") for _ in range(many)]
    for job in jobs:
        until(see, job.id, State.FAILED)
    return [str(job.id) for job in jobs]


def until(see: Seen, id_: object, state: State) -> None:
    job = see.program.app.job(str(id_))
    see.until(lambda: see.program.do(job.state) is state, lambda: see.program.do(job.state))


def test_each_page_loads_and_lives_on_without_a_complaint(see: Seen) -> None:
    (ended,) = failed(see)
    running = see.program.enqueue("film.encode")
    takes = {route.name: structs.fields(route.takes) for route in ROUTES}
    paths = [page.path for page in ALL if not any(field.required for field in takes[page.gathers])]
    (node,) = see.program.do(see.program.app.store.nodes)
    for path in (*paths, f"job?id={ended}", f"job?id={running.id}", f"node?id={node.node.id}"):
        see.lives_on(path)  # a tick comes, as progress is written
        expect(see.page.locator("h1")).to_be_visible()
        expect(see.page.locator("#live-word")).to_have_text("live")


def test_nothing_that_a_job_says_is_run(see: Seen) -> None:
    job = see.program.enqueue("mail.send", EVIL)
    until(see, job.id, State.SUCCEEDED)
    for path in ("jobs", f"job?id={job.id}", f"jobs?error={EVIL}&task=x"):
        see.go(path)
        assert see.page.locator("img").count() == 0
    see.go(f"job?id={job.id}")
    expect(see.page.get_by_text(EVIL).first).to_be_visible()


def test_a_warning_that_comes_up_moves_nothing(see: Seen) -> None:
    until(see, see.program.enqueue("film.encode").id, State.RUNNING)  # a store at rest is counted once a minute only
    see.go()
    expect(see.page.locator(".notices")).to_be_visible()
    expect(see.page.locator("a.tile").nth(1).locator(".figure")).to_have_text("1")  # counted, so that figures stay
    see.page.evaluate(SHIFTS)
    before = see.box(".tiles")
    see.program.do(lambda: see.program.app.store.pause("mail", by="ada"))
    see.program.enqueue("mail.send", "anna")
    expect(see.page.locator(".notices")).to_contain_text("paused with jobs in them")
    assert see.box(".tiles") == before
    assert see.page.evaluate("window.shifted") == 0
    see.page.locator(".notices summary").click()
    expect(see.page.locator(".notices li").first).to_be_visible()


def test_retry_changes_the_store_and_says_so(see: Seen) -> None:
    (id_,) = failed(see)
    see.go(f"job?id={id_}")
    see.page.get_by_role("button", name="Retry").click()
    expect(see.page.locator(".toast")).to_have_text("The job will run again.")
    until(see, id_, State.FAILED)
    assert see.program.do(see.program.app.job(id_).refresh).job.granted == 1


def test_cancel_asks_first(see: Seen) -> None:
    job = see.program.enqueue("film.encode")
    until(see, job.id, State.RUNNING)
    see.go(f"job?id={job.id}")
    see.page.get_by_role("button", name="Cancel").click()
    see.page.locator("#ask").get_by_role("button", name="Leave it").click()
    assert see.program.do(job.state) is State.RUNNING
    see.page.get_by_role("button", name="Cancel").click()
    see.page.locator("#ask").get_by_role("button", name="Yes").click()
    until(see, job.id, State.CANCELLED)
    expect(see.page.locator("h1 .state")).to_have_text("cancelled")


def test_a_job_is_seen_as_soon_as_it_is_there(see: Seen) -> None:
    failed(see, 3)
    see.go("jobs")
    expect(see.page.locator("#rows tr")).to_have_count(3)
    job = see.program.enqueue("mail.send", "anna")
    expect(see.page.locator(f"#job-{job.id}")).to_be_visible()


def test_figures_change_and_nothing_jumps(see: Seen) -> None:
    see.go("")
    see.page.evaluate(SHIFTS)
    see.program.enqueue("film.encode")
    expect(see.page.locator("a.tile").nth(1).locator(".figure")).to_have_text("1")
    assert see.page.evaluate("window.shifted") == 0


def test_a_figure_is_as_high_as_one_that_is_not_known(see: Seen) -> None:
    see.go("")
    tile = see.page.locator(".tile").last
    heights = []
    for figure in ("<span class=none>-</span>", "15<small> %</small>"):
        tile.locator(".figure").evaluate("(one, text) => { one.innerHTML = text; }", figure)
        heights.append(tile.evaluate("one => one.getBoundingClientRect().height"))
    assert heights[0] == heights[1]


def test_a_stream_that_ends_begins_anew_without_a_complaint(see: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "LIFE", timedelta(seconds=1.5))
    streams: list[str] = []
    see.page.on("request", lambda request: streams.append(request.url) if request.url.endswith("/events") else None)
    see.go("jobs")
    see.until(lambda: len(streams) >= 2)
    job = see.program.enqueue("mail.send", "anna")
    expect(see.page.locator(f"#job-{job.id}")).to_be_visible()
    expect(see.page.locator("#live-word")).to_have_text("live")


def test_live_updates_can_be_switched_off(see: Seen) -> None:
    failed(see)
    see.go("jobs")
    see.page.locator("#live").click()
    expect(see.page.locator("#live-word")).to_have_text("off")
    see.program.enqueue("mail.send", "anna")
    see.page.wait_for_timeout(2500)
    assert see.page.locator("#rows tr").count() == 1
    see.go("jobs")
    expect(see.page.locator("#live-word")).to_have_text("off")  # that is kept
    see.page.keyboard.press("l")
    expect(see.page.locator("#live-word")).to_have_text("live")
    job = see.program.enqueue("mail.send", "anna")
    expect(see.page.locator(f"#job-{job.id}")).to_be_visible()


def test_many_are_retried_after_a_preview(see: Seen) -> None:
    ids = failed(see, 4)
    done = see.program.enqueue("mail.send", "anna")
    until(see, done.id, State.SUCCEEDED)
    see.go("jobs")
    for id_ in (ids[0], ids[1], str(done.id)):
        see.page.locator(f"input[value='{id_}']").check()
    expect(see.page.locator("#live-word")).to_have_text("on hold")
    expect(see.page.locator("#bulk-count")).to_have_text("3")
    see.page.locator("[data-bulk=retry]").click()
    expect(see.page.locator("#bulk-text")).to_have_text("2 jobs; 1 more cannot be changed this way now.")
    see.page.locator("#bulk-go").click()
    expect(see.page.locator("#bulk-text")).to_contain_text("2 done")
    see.page.locator("#bulk-stop").click()
    expect(see.page.locator("#bulk")).to_be_hidden()
    granted = [see.program.do(see.program.app.job(id_).refresh).job.granted for id_ in ids]
    assert granted == [1, 1, 0, 0]


def test_all_that_match_are_retried_and_no_others(see: Seen) -> None:
    ids = failed(see, 3)
    running = see.program.enqueue("film.encode")
    see.go("jobs?state=failed&limit=2")
    see.page.locator("#all").check()
    see.page.locator("#bulk-all").check()
    see.page.locator("[data-bulk=delete]").click()
    expect(see.page.locator("#bulk-text")).to_have_text("3 jobs.")
    see.page.locator("#bulk-go").click()
    expect(see.page.locator("#bulk-text")).to_have_text("3 done.")
    assert see.program.do(lambda: see.program.app.jobs(state="failed")).jobs == ()
    assert see.program.do(running.state) is State.RUNNING
    assert len(ids) == 3


def test_it_can_be_used_by_keys(see: Seen) -> None:
    ids = failed(see, 3)
    see.go("")
    see.page.keyboard.press("g")
    see.page.keyboard.press("j")
    see.page.wait_for_url("**/jobs")
    for key, row in (("j", 2), ("j", 1), ("k", 2)):
        see.page.keyboard.press(key)
        assert see.page.evaluate("document.activeElement.id") == f"job-{ids[row]}"
    see.page.keyboard.press("x")
    assert see.page.locator("#rows input:checked").get_attribute("value") == ids[2]
    see.page.keyboard.press("b")
    expect(see.page.locator("[data-bulk=retry]")).to_be_focused()
    see.page.keyboard.press("Escape")
    assert see.page.locator("#rows input:checked").count() == 0
    see.page.keyboard.press("/")
    see.page.keyboard.type("none.such")
    see.page.keyboard.press("Enter")
    see.page.wait_for_url("**/jobs?task=none.such")
    expect(see.page.get_by_text("No job fits.")).to_be_visible()
    see.page.keyboard.press("?")
    expect(see.page.locator("#help")).to_be_visible()
    see.page.keyboard.press("Escape")
    expect(see.page.locator("#help")).to_be_hidden()


def test_what_has_the_focus_keeps_it_while_rows_change(see: Seen) -> None:
    ids = failed(see, 2)
    see.go("jobs")
    see.page.locator(f"#job-{ids[0]}").focus()
    job = see.program.enqueue("mail.send", "anna")
    expect(see.page.locator(f"#job-{job.id}")).to_be_visible()
    assert see.page.evaluate("document.activeElement.id") == f"job-{ids[0]}"


def test_light_and_dark_are_kept(see: Seen) -> None:
    see.go("")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = see.page.evaluate(ground)
    see.page.locator("#theme").click()
    dark = see.page.evaluate(ground)
    assert dark != light
    see.go("jobs")
    assert see.page.evaluate(ground) == dark


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, program: tuple[Program, str]) -> None:
    with seen(browser, *program, width=360, height=740) as see:
        (id_,) = failed(see)
        (node,) = see.program.do(see.program.app.store.nodes)
        for path in ("", "jobs", f"job?id={id_}", "queues", "nodes", f"node?id={node.node.id}", "services"):
            see.go(path)
            assert see.page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert not see.page.locator("nav[aria-label=Pages] a").first.is_visible()
        see.page.locator(".menu-button").click()
        see.page.locator("nav[aria-label=Pages] a").nth(1).click()
        see.page.wait_for_url("**/jobs")
        assert see.complaints == []


def test_it_works_under_a_prefix(browser: Browser) -> None:
    program = Program(prefix="/in/side")
    base = program.start()
    try:
        with seen(browser, program, base) as see:
            (id_,) = failed(see)
            see.go("")
            see.page.locator("nav[aria-label=Pages] a").nth(1).click()
            see.page.locator(f"#job-{id_}").click()
            see.page.get_by_role("button", name="Retry").click()
            expect(see.page.locator(".toast")).to_have_text("The job will run again.")
            see.page.get_by_role("link", name=re.compile("Overview")).click()
            expect(see.page.locator("#rates canvas")).to_be_visible()
            expect(see.page.locator("#live-word")).to_have_text("live")
            assert see.complaints == []
    finally:
        program.stop()
