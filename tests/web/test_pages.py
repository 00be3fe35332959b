"""The pages of a job, schedules, outboxes, dead letters, breakers, plugins and the audit log, of a filled shop."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from html import unescape

import httpx
import pytest

from mainspring import Every, Mainspring
from mainspring.core.breaker import Phase
from mainspring.core.job import State
from mainspring.web import Identity, dashboard
from tests.web.conftest import client
from tests.web.test_dashboard import ADMIN, OPERATOR, VIEWER, posted
from tests.web.world import World, in_world, until

PLACES = ("schedules", "schedule?name=often", "outboxes", "letters", "letters?outbox=orders", "breakers", "plugins")


@asynccontextmanager
async def browse(app: Mainspring, who: Identity = ADMIN) -> AsyncIterator[httpx.AsyncClient]:
    async with client(dashboard(app, auth=lambda _: who)) as found:
        yield found


async def text_of(found: httpx.AsyncClient, path: str) -> str:
    response = await found.get(f"/{path}")
    assert response.status_code == 200, response.text
    return unescape(re.sub(r"<[^>]*>", "", response.text))


# Jobs.


@in_world
async def test_why_a_job_failed_is_said_in_a_sentence(world: World) -> None:
    async with browse(world.app) as found:
        failed = (await found.get(f"/api/v1/jobs/show?id={world.jobs[State.FAILED]}")).json()["job"]
        done = (await found.get(f"/api/v1/jobs/show?id={world.jobs[State.SUCCEEDED]}")).json()["job"]
        shown = await text_of(found, f"job?id={world.jobs[State.FAILED]}")
    assert (done["cause"], done["why"]) == (None, None)
    assert failed["why"] == "It raised an error or took too long in its only attempt."
    assert failed["why"] in shown


# Schedules.


@in_world
async def test_schedules_are_shown_with_their_rules_in_words(world: World) -> None:
    async with browse(world.app) as found:
        shown = await text_of(found, "schedules")
    for words in ("At 02:30 every day, Europe/Berlin time.", "30 2 * * *", "Every 10 min", "On demand", "none yet"):
        assert words in shown


@in_world
async def test_a_schedule_shows_when_it_is_next_on_the_walls_of_its_zone_and_in_utc(world: World) -> None:
    async with browse(world.app) as found:
        html = (await found.get("/schedule?name=nightly")).text
    assert html.count('class="wall"') == 10
    assert re.search(r"\d{4}-\d\d-\d\d 02:30 CES?T", html)
    assert re.search(r">\d{4}-\d\d-\d\d 0[01]:30 UTC<", html)


@in_world
async def test_times_of_one_list_have_one_form_and_words_whole_seconds(world: World) -> None:
    app = world.app
    start = app.store.now().replace(second=0, microsecond=250_000) + timedelta(minutes=2)
    await app.schedules.add("halves", Every("30s", start=start), app.find("add").call(1))
    async with browse(app) as found:
        html = (await found.get("/schedule?name=halves")).text
    slots = re.findall(r'class="wall">([^<]*)<', html)
    assert slots == [f"{start + timedelta(seconds=30 * place):%Y-%m-%d %H:%M:%S} UTC" for place in range(10)]
    assert f"Every 30 seconds, for the first time at {start:%Y-%m-%d %H:%M:%S} UTC." in html


@in_world
async def test_runs_are_told_with_what_became_of_them(world: World) -> None:
    async with browse(world.app) as found:
        assert (await posted(found, "schedules.run", {"name": "nightly"})).status_code == 200
        listed, shown = (await found.get("/schedules")).text, (await found.get("/schedule?name=nightly")).text
    (run,) = (await world.app.schedules.runs("nightly")).runs
    for html in (listed, shown):
        assert f'id="run-{run.id}"' in html
        assert f'href="job?id={run.job}"' in html
        assert "by hand" in html


@in_world
async def test_who_paused_a_schedule_and_why_is_shown(world: World) -> None:
    async with browse(world.app) as found:
        form = {"name": "nightly", "reason": "the figures are wrong"}
        assert "is paused" in (await posted(found, "schedules.pause", form)).text
        assert "so already" in (await posted(found, "schedules.pause", form)).text
        for path in ("schedules", "schedule?name=nightly"):
            assert "by anna: the figures are wrong" in await text_of(found, path)
        await posted(found, "schedules.resume", {"name": "nightly"})
        assert "the figures are wrong" not in await text_of(found, "schedules")
    assert (await world.app.schedules.get("nightly")).paused is None


@in_world
async def test_a_schedule_that_was_cancelled_says_so(world: World) -> None:
    await world.app.schedules.pause("nightly", by="cancelled")
    async with browse(world.app) as found:
        assert "state is-cancelled" in (await found.get("/schedule?name=nightly")).text


@in_world
async def test_schedules_are_found_by_a_part_of_their_names_and_page_by_page(world: World) -> None:
    async with browse(world.app) as found:

        async def names(query: str) -> list[str]:
            html = (await found.get(f"/schedules?{query}")).text
            return re.findall(r'id="schedule-([^"]*)"', html)

        assert await names("name=ight") == ["nightly"]
        assert await names("name=none") == []
        assert set(await names("owner=plugin:mainspring")) <= {"mainspring:" + one for one in UPKEEP}
        assert await names("owner=nobody") == []
        seen, query = [], "limit=1"
        while True:
            html = (await found.get(f"/schedules?{query}")).text
            seen += re.findall(r'id="schedule-([^"]*)"', html)
            more = re.search(r'href="schedules\?([^"]*)" rel="next"', html)
            if not more:
                break
            query = unescape(more[1])
        assert seen == [str(look.schedule.name) for look in (await world.app.schedules.list()).looks]
        answer = (await found.get("/api/v1/schedules/list?name=t&limit=1")).json()
        assert [one["name"] for one in answer["schedules"]]
        assert len(answer["schedules"]) == 1
        assert answer["runs"] == {}


UPKEEP = ("compaction", "retention_sweep", "statistics")


@in_world
async def test_slots_of_the_past_are_counted_before_they_are_filled(world: World) -> None:
    now = world.app.store.now()
    said = {"name": "nightly", "since": (now - timedelta(days=3)).isoformat(), "until": now.isoformat()}
    async with browse(world.app) as found:
        assert 'data-backfill="nightly"' in (await found.get("/schedule?name=nightly")).text
        seen = await found.post("/api/v1/schedules/backfill", json={**said, "dry_run": True})
        assert seen.json()["missing"] == 3
        assert (await found.post("/api/v1/schedules/backfill", json=said)).json()["made"] == 3
        html = (await found.get("/schedule?name=nightly")).text
        assert html.count("backfilled") >= 3
        assert 'data-opens="backfill"' not in (await found.get("/schedule?name=by-hand")).text


# Outboxes and dead letters.


@in_world
async def test_an_outbox_shows_how_far_behind_it_is_and_what_was_given_up(world: World) -> None:
    async with browse(world.app) as found:
        html = (await found.get("/outboxes")).text
    assert html.count('<svg class="partition') == 3
    assert re.search(r'href="letters\?outbox=orders">3</a>', html)
    assert re.findall(r"<tr><td>(\d)</td>", html) == [
        "0",
        "1",
        "0",
    ]  # also those with nothing behind, so that none comes or goes
    assert "<details" not in html[html.index("Outboxes</h1>") :]


@in_world
async def test_a_dead_letter_shows_its_payload_and_not_its_secrets(world: World) -> None:
    async with browse(world.app) as found:
        shown = await text_of(found, "letters?outbox=orders")
        assert "nobody wants 1" in shown
        assert '"card_number": "•••"' in shown
        assert "4111" not in shown
        assert "There are no dead letters." in await text_of(found, "letters?outbox=sent")
        assert "No dead letter fits." in await text_of(found, "letters?outbox=orders&key=x")


@in_world
async def test_letters_are_filtered_and_shown_page_by_page(world: World) -> None:
    async with browse(world.app) as found:

        async def ids(query: str) -> list[str]:
            return re.findall(r'id="letter-(\d+)"', (await found.get(f"/letters?{query}")).text)

        everything = await ids("")
        assert len(everything) == 3
        assert await ids("outbox=orders") == everything
        assert len(await ids("key=1")) == 1
        assert await ids("state=resolved&state=discarded") == []
        first = (await found.get("/letters?limit=2")).text
        (more,) = re.findall(r'href="letters\?([^"]*)" rel="next"', first)
        assert re.findall(r'id="letter-(\d+)"', first) + await ids(unescape(more)) == everything
        assert (await found.get("/letters?outbox=none")).status_code == 404
        for query in ("state=lost", "partition=1", "after=nonsense"):
            assert 'class="problem"' in (await found.get(f"/letters?{query}")).text


@in_world
async def test_a_letter_is_replayed_or_discarded_by_its_id(world: World) -> None:
    letters = (await world.shop.orders.letters()).letters
    async with browse(world.app) as found:
        done = await posted(found, "outboxes.discard", {"ids": str(letters[0].id)})
        assert "The letter is discarded." in done.text
        assert "so already" in (await posted(found, "outboxes.discard", {"ids": str(letters[0].id)})).text
        assert (await posted(found, "outboxes.replay", {"ids": str(letters[1].id)})).status_code == 200
        assert (await posted(found, "outboxes.replay", {})).status_code == 422
    left = {one.id for one in (await world.shop.orders.letters()).letters}
    assert letters[0].id not in left
    assert letters[1].id not in left


# Breakers.


@in_world
async def test_a_breaker_is_forced_and_reset_and_tells_its_story(world: World) -> None:
    async with browse(world.app) as found:
        await posted(found, "breakers.open", {"task": "fail", "reason": "they asked us to stop"})
        story = await world.app.breakers.show("fail")
        assert (story.breaker.circuit.phase, story.breaker.circuit.forced) == (Phase.OPEN, True)
        shown = await text_of(found, "breakers")
        assert "by anna: they asked us to stop" in shown
        assert "forced" in shown
        await posted(found, "breakers.reset", {"task": "fail"})
        assert not (await world.app.breakers.show("fail")).breaker.circuit.forced
        shown = await text_of(found, "breakers")
        assert "reset by anna" in shown
        assert "2 changes" in shown


@in_world
async def test_a_breaker_that_opened_says_when_it_lets_a_probe_through(world: World) -> None:
    for _ in range(2):  # one has failed already
        await world.app.enqueue("fail")

    async def is_open() -> bool:
        return (await world.app.breakers.show("fail")).breaker.circuit.phase is Phase.OPEN

    await until(is_open)
    async with browse(world.app) as found:
        html = (await found.get("/breakers")).text
        answer = (await found.get("/api/v1/breakers/list")).json()
    assert "state is-open" in html
    assert re.search(r"lets a probe through <time [^>]*>in \d+ s", html)
    assert set(answer["probes_at"]) == {"fail"}
    assert answer["changes"] == {}


# The audit log, and plugins.


@in_world
async def test_the_audit_log_shows_who_did_what_about_what(world: World) -> None:
    async with browse(world.app) as found:
        await posted(found, "schedules.run", {"name": "nightly"})
        await posted(found, "jobs.retry", {"id": next(iter(world.jobs.values()))})
        await posted(found, "schedules.run", {"name": "none"})
        html = (await found.get("/audit")).text
        assert 'href="schedule?name=nightly"' in html
        assert f'href="job?id={next(iter(world.jobs.values()))}"' in html
        assert "unknown schedule" in html
        one = (await found.get("/audit?action=jobs.retry")).text
        assert one.count('class="c-who"') == 1
        assert "No line fits." in await text_of(found, "audit?who=bob")
        first = (await found.get("/audit?limit=2")).text
        (more,) = re.findall(r'href="audit\?([^"]*)" rel="next"', first)
        assert (await found.get(f"/audit?{unescape(more)}")).text.count('class="c-who"') == 1


@pytest.mark.parametrize(("who", "status"), [(VIEWER, 403), (OPERATOR, 200), (ADMIN, 200)])
@in_world
async def test_only_some_may_read_the_audit_log(world: World, who: Identity, status: int) -> None:
    async with browse(world.app, who) as found:
        assert (await found.get("/audit")).status_code == status
        menu = (await found.get("/jobs")).text
    assert ('href="audit"' in menu) is (status == 200)


@in_world
async def test_plugins_are_shown_with_what_they_may_and_have(world: World) -> None:
    async with browse(world.app) as found:
        shown = await text_of(found, "plugins")
    assert "mainspring:retention_sweep" in shown
    assert "BackgroundJobs" in shown


# Who may do what.


BUTTONS = r'hx-post="do/([\w.]+)"|data-(letters|opens)="(\w+)"'


@pytest.mark.parametrize(
    ("who", "wanted"),
    [
        (VIEWER, set()),
        (
            OPERATOR,
            {"schedules.run", "schedules.pause", "outboxes.replay", "breakers.open", "breakers.close"}
            | {"replay", "backfill"},
        ),
        (
            ADMIN,
            {"schedules.run", "schedules.pause", "outboxes.replay", "outboxes.discard", "breakers.open"}
            | {"breakers.close", "replay", "discard", "backfill"},
        ),
    ],
)
@in_world
async def test_buttons_are_shown_to_those_who_may_press_them(world: World, who: Identity, wanted: set[str]) -> None:
    letter = (await world.shop.orders.letters()).letters[0].id
    async with browse(world.app, who) as found:
        seen: set[str] = set()
        for path in PLACES:
            for groups in re.findall(BUTTONS, (await found.get(f"/{path}")).text):
                seen.add(groups[0] or groups[2])
        assert seen - {"breakers.reset"} == wanted
        forms = {
            "schedules.run": {"name": "nightly"},
            "schedules.pause": {"name": "nightly"},
            "outboxes.replay": {"ids": str(letter)},
            "outboxes.discard": {"ids": str(letter)},
            "breakers.open": {"task": "fail"},
            "breakers.close": {"task": "fail"},
        }
        for action, form in forms.items():
            if action not in wanted:
                assert (await posted(found, action, form)).status_code == 403
    if who is VIEWER:
        assert (await world.app.schedules.get("nightly")).paused is None
        assert len((await world.shop.orders.letters()).letters) == 3


@in_world
async def test_each_part_of_a_filled_page_is_a_part_of_it(world: World) -> None:
    async with browse(world.app) as found:
        for path in ("schedules?part=rows", "schedule?name=often&part=schedule", "outboxes?part=rows"):
            assert "<html" not in (await found.get(f"/{path}")).text
        for path in PLACES:
            html = (await found.get(f"/{path}")).text
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html), path
            for link in re.findall(r'(?:href|action|hx-get|hx-post)="([^"]*)"', html):
                assert re.fullmatch(r"#main|([.]|[a-z]*|do/[a-z_.]+|static/[\w./]+)([?][^\s]*)?", link), link
