"""Queues are paused and limited, nodes are told what to do and say where they stand; all of it is seen as it happens."""

import pytest
from playwright.sync_api import Browser, Locator, expect

from mainspring.core.job import State
from mainspring.stores.overview import Overview, QueueRule
from mainspring.stores.records import NodeView
from tests.browser.conftest import Program, Seen, seen
from tests.browser.test_dashboard import SHIFTS, until

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]


def row(see: Seen, name: str) -> Locator:
    return see.page.locator("tbody tr", has=see.page.locator("a[data-row]", has_text=name))


def rule(see: Seen, name: str) -> QueueRule:
    store = see.program.app.store
    assert isinstance(store, Overview)
    rules = see.program.do(store.queue_rules)
    return next((one for one in rules if one.name == name), QueueRule(name=name))


def node_of(see: Seen) -> NodeView:
    (found,) = see.program.do(see.program.app.store.nodes)
    return found


def test_a_queue_is_paused_with_a_reason_and_resumed(see: Seen) -> None:
    see.go("queues")
    row(see, "mail").get_by_role("button", name="Pause").click()
    dialog = see.page.locator("#ask")
    expect(dialog).to_contain_text("Pause mail? Nothing more is taken from it")
    expect(see.page.locator("#live-word")).to_have_text("on hold")
    see.page.keyboard.type("they are down")  # the field has the focus
    see.page.keyboard.press("Enter")
    expect(see.page.locator(".toast")).to_have_text("The queue is paused; what runs goes on.")
    expect(dialog).to_be_hidden()
    expect(row(see, "mail")).to_contain_text("they are down")
    paused = rule(see, "mail").paused
    assert paused
    assert (paused.by, paused.reason) == ("local", "they are down")
    job = see.program.enqueue("mail.send", "anna")
    row(see, "mail").get_by_role("button", name="Resume").click()
    expect(row(see, "mail").get_by_role("button", name="Pause")).to_be_visible()
    assert rule(see, "mail").paused is None
    until(see, job.id, State.SUCCEEDED)


def test_a_dialog_that_is_closed_changes_nothing(see: Seen) -> None:
    see.go("queues")
    for name in ("mail", "media"):
        row(see, name).get_by_role("button", name="Pause").click()
        dialog = see.page.locator("#ask")
        expect(dialog).to_contain_text(f"Pause {name}?")
        expect(dialog.locator("#ask-reason")).to_have_value("")
        dialog.locator("#ask-reason").fill("never mind")
        dialog.get_by_role("button", name="Leave it").click()
        expect(dialog).to_be_hidden()
    assert rule(see, "mail").paused is None


def test_a_limit_is_set_and_taken_back(see: Seen) -> None:
    see.go("queues")
    row(see, "media").get_by_role("button", name="Limit").click()
    dialog = see.page.locator("dialog#limit")
    expect(dialog).to_contain_text("In codeno limit")
    dialog.locator("[name=concurrency]").fill("0")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog).to_be_visible()  # the browser says that it is too little
    dialog.locator("[name=concurrency]").fill("1")
    dialog.get_by_role("button", name="Set").click()
    expect(row(see, "media")).to_contain_text("limited by local; code: no limit")
    assert (rule(see, "media").limit, rule(see, "media").by) == (1, "local")
    jobs = [see.program.enqueue("film.encode") for _ in range(2)]
    until(see, jobs[0].id, State.RUNNING)
    see.page.wait_for_timeout(500)
    assert see.program.do(jobs[1].state) is State.READY
    row(see, "media").get_by_role("button", name="Take back").click()
    until(see, jobs[1].id, State.RUNNING)
    assert rule(see, "media").limit is None


def test_queues_and_nodes_are_seen_as_they_change_and_nothing_jumps(see: Seen) -> None:
    see.go("queues")
    expect(row(see, "media")).to_be_visible()
    see.page.evaluate(SHIFTS)
    see.program.enqueue("film.encode")
    expect(row(see, "media").locator(".c-use .figure")).to_have_text("1")  # once it is counted
    see.program.do(lambda: see.program.app.store.pause("mail", by="anna", reason="from elsewhere"))
    expect(row(see, "mail")).to_contain_text("by anna")
    see.go("nodes")
    see.page.evaluate(SHIFTS)
    running = see.page.locator(".c-use .figure")
    expect(running).to_have_text("1")
    see.program.enqueue("film.encode")
    expect(running).to_have_text("2")
    assert see.page.evaluate("window.shifted") < 0.05


def test_jobs_of_a_node_come_and_go_and_nothing_moves(see: Seen) -> None:
    see.go(f"node?id={node_of(see).node.id}")
    below = see.page.get_by_role("heading", name="Services", exact=True)
    expect(below).to_be_visible()
    places = [below.bounding_box()]
    jobs = []
    for _ in range(2):
        jobs.append(see.program.enqueue("film.encode"))
        expect(see.page.locator(f"#job-{jobs[-1].id}")).to_be_visible()
        places.append(below.bounding_box())
    for job in jobs:
        see.program.do(job.cancel)
    expect(see.page.get_by_text("It runs nothing now.")).to_be_visible()
    assert places == [below.bounding_box()] * 3


def test_on_a_phone_nothing_sticks_out_of_its_card(browser: Browser, program: tuple[Program, str]) -> None:
    out = """() => [...document.querySelectorAll(".card")].flatMap((card) => [...card.querySelectorAll("table, .scroll, p, dl")]
      .filter((one) => !one.parentElement.closest(".scroll") && one.getBoundingClientRect().right > card.getBoundingClientRect().right + 0.5)
      .map((one) => one.className || one.tagName))"""
    with seen(browser, *program, width=390, height=800) as see:
        for path in (f"node?id={node_of(see).node.id}", "queues", "nodes", "services"):
            see.go(path)
            see.page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
            assert see.page.evaluate(out) == [], path


def test_a_node_is_quiet_and_takes_jobs_again(see: Seen) -> None:
    see.go("nodes")
    see.page.get_by_role("button", name="Quiet").click()
    expect(see.page.locator(".toast")).to_have_text("The node is asked to take nothing new.")
    expect(see.page.locator(".state.is-quiet")).to_be_visible()
    job = see.program.enqueue("mail.send", "anna")
    see.page.wait_for_timeout(500)
    assert see.program.do(job.state) is State.READY
    see.page.get_by_role("button", name="Resume").click()
    until(see, job.id, State.SUCCEEDED)
    expect(see.page.locator(".state.is-quiet")).to_be_hidden()


def test_a_node_gets_other_places(see: Seen) -> None:
    see.go("nodes")
    see.page.get_by_role("button", name="Places").click()
    field = see.page.locator("dialog#places [name=places]")
    expect(field).to_have_value("4")
    field.fill("7")
    see.page.keyboard.press("Enter")
    see.until(lambda: node_of(see).node.concurrency == 7)
    expect(see.page.locator("td.c-use")).to_contain_text("of 7")


def test_a_node_is_asked_to_stop_after_a_question(see: Seen) -> None:
    node = node_of(see).node.id
    see.go(f"node?id={node}")
    see.page.get_by_role("button", name="Stop").click()
    see.page.locator("#ask").get_by_role("button", name="Leave it").click()
    assert see.program.do(lambda: see.program.app.store.orders(node)) == ()
    see.page.get_by_role("button", name="Stop").click()
    see.page.locator("#ask").get_by_role("button", name="Yes").click()
    expect(see.page.locator(".toast")).to_have_text("The node is asked to shut down.")
    (order,) = see.program.do(lambda: see.program.app.store.orders(node))
    assert type(order.order).__name__ == "StopNode"


def test_a_node_shows_where_it_stands(see: Seen) -> None:
    job = see.program.enqueue("film.encode")
    until(see, job.id, State.RUNNING)
    see.go(f"node?id={node_of(see).node.id}")
    see.page.get_by_role("button", name="Live stack").click()
    stack = see.page.locator("#stack")
    expect(stack).to_contain_text("in encode")
    expect(stack).to_contain_text(str(job.id))
    expect(see.page.locator(".timeline")).to_contain_text("dump stacks")
    see.page.wait_for_timeout(2500)  # ticks come, and leave it alone
    expect(stack).to_contain_text("in encode")
    see.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stack.locator("details").first.locator(".copy").click()
    see.until(lambda: "in encode\n" in see.page.evaluate("navigator.clipboard.readText()"))


def test_the_stack_of_a_job_is_asked_for_from_its_page(see: Seen) -> None:
    jobs = [see.program.enqueue("film.encode") for _ in range(2)]
    for job in jobs:
        until(see, job.id, State.RUNNING)
    see.go(f"job?id={jobs[0].id}")
    see.page.get_by_role("button", name="Live stack").click()
    stack = see.page.locator("#stack")
    expect(stack.locator("summary.stack-of")).to_have_count(1)
    expect(stack.locator("summary.stack-of")).to_contain_text(str(jobs[0].id))
    expect(stack).to_contain_text("in encode")
    see.page.wait_for_timeout(2500)  # the page goes on, and keeps it
    expect(stack.locator("summary.stack-of")).to_have_count(1)
    assert see.page.locator("#stack").count() == 1


def test_dialogs_fit_on_a_phone(browser: Browser, program: tuple[Program, str]) -> None:
    with seen(browser, *program, width=360, height=740) as see:
        see.go("queues")
        row(see, "mail").get_by_role("button", name="Limit").click()
        box = see.box("dialog#limit")
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        see.page.keyboard.press("Escape")
        assert see.complaints == []
