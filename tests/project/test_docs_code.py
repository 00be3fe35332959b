"""What the README and the pages show as code really runs."""

import json
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import cli, until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def blocks_under(page: str, *titles: str, language: str = "python") -> list[str]:
    """The blocks of a page that stand below headings of these titles, or of any if none is named."""
    found: list[str] = []
    path: list[str] = []
    text = (ROOT / page).read_text(encoding="utf-8")
    for marks, title, kind, block in re.findall(
        r"^(#+) ([^\n]+)$|^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    ):
        if marks:
            path = [*path[: len(marks) - 1], title]
        elif kind == language and (not titles or set(titles) & set(path)):
            found.append(block)
    return found


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_idea_in_the_readme_is_about_twenty_lines_and_works(tmp_path: Path) -> None:
    idea = blocks("README.md")[0]
    assert len(idea.splitlines()) <= 22
    (tmp_path / "shop.py").write_text(idea, encoding="utf-8")
    assert run("shop.py", cwd=tmp_path) == "order 7 shipped at attempt 2\n"


HOW_TO = {"virtual_time": 2, "test_your_jobs": 5, "limits_and_unique_jobs": 5}
"""How many tests pages have that show some."""


def run_tests(folder: Path, **pages: str) -> dict[str, Counter[str]]:
    """Run the tests of some pages, in one run of pytest; returns how many of each page passed or failed."""
    for name, text in pages.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    command = ["-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-c", "/dev/null", str(folder)]
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    outcomes = {name: Counter[str]() for name in pages}
    for name, outcome in re.findall(r"test_(\w+)\.py::\S+ ([A-Z]+) ", done.stdout):
        outcomes[name][outcome] += 1
    assert list(folder.glob("*.db*")) == [], "they keep their jobs in memory"
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    idea, test = blocks("README.md")[:2]
    readme = f"{idea}\n{test}"
    pages = {name: "\n".join(blocks(f"docs/how-to/{name.replace('_', '-')}.md")) for name in HOW_TO}
    single = readme.replace("max_attempts=5", "max_attempts=1")
    return run_tests(tmp_path_factory.mktemp("pages"), readme=readme, readme_with_a_single_attempt=single, **pages)


def test_the_test_in_the_readme_passes_and_would_fail_with_a_single_attempt(outcomes: dict[str, Counter[str]]) -> None:
    assert outcomes["readme"] == {"PASSED": 1}
    assert outcomes["readme_with_a_single_attempt"] == {"FAILED": 1}


@pytest.mark.parametrize(("name", "tests"), HOW_TO.items())
def test_the_tests_in_the_how_to_pass(outcomes: dict[str, Counter[str]], name: str, tests: int) -> None:
    assert outcomes[name] == {"PASSED": tests}


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(blocks("docs/tutorial/first-service.md")), encoding="utf-8")
    assert run(str(script)) == "sent: one\nsent: two\nsent: three\nsent: four\n"


@pytest.mark.parametrize(("name", "says"), [("run-until-sigterm", "looked\n"), ("embed-a-node", "shipped 7\n")])
def test_the_program_that_runs_until_sigterm_does(tmp_path: Path, name: str, says: str) -> None:
    script = tmp_path / "service.py"
    script.write_text(blocks(f"docs/how-to/{name}.md")[0], encoding="utf-8")
    with subprocess.Popen([sys.executable, script], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == says
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_payload_on_its_page_is_the_one_that_is_made(tmp_path: Path) -> None:
    example = blocks("docs/explanation/payloads.md")[0]
    script = tmp_path / "payloads.py"
    script.write_text(example, encoding="utf-8")
    assert run(str(script)).strip() in example


def test_a_job_and_an_order_are_there_together_and_effects_once(tmp_path: Path) -> None:
    page = blocks_under("docs/how-to/enqueue-in-your-transaction.md", "On SQLite", "With SQLite")
    (tmp_path / "shop.py").write_text("\n".join(page), encoding="utf-8")
    (tmp_path / "play.py").write_text(
        """
import asyncio, sqlite3
from contextlib import closing
from shop import app, book, engine, place_order, place_order_in_session, refund, ship
from mainspring.testing import drain

with closing(sqlite3.connect("shop.db")) as connection, connection:
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, article TEXT NOT NULL)")
    connection.execute("CREATE TABLE ledger (order_id INTEGER, cents INTEGER)")

async def play() -> None:
    async with app:
        print(place_order("tea"), place_order_in_session("cake"))
        engine.dispose()
        try:
            with closing(sqlite3.connect("shop.db")) as connection, connection:
                ship.using(tx=connection).enqueue_sync(2)
                raise LookupError
        except LookupError:
            print(len((await app.jobs()).jobs), "job")
        await book.enqueue(1, 250)
        await refund.enqueue(1, 250)
        print(dict(await drain(app)))
    with closing(sqlite3.connect("shop.db")) as connection:
        print(sorted(connection.execute("SELECT order_id, cents FROM ledger")))

asyncio.run(play())
""",
        encoding="utf-8",
    )
    assert run("play.py", cwd=tmp_path).splitlines() == [
        "1 2",
        "2 job",
        "{<State.SUCCEEDED: 'succeeded'>: 5}",
        "[(1, -250), (1, 250)]",
    ]


def test_what_is_told_to_stop_stops_as_its_page_says(tmp_path: Path) -> None:
    asks, *declares = blocks("docs/how-to/cancel-and-timeouts.md")
    (tmp_path / "work.py").write_text("\n".join(declares), encoding="utf-8")
    (tmp_path / "play.py").write_text(
        f"""
import asyncio
from work import app, convert, crawl, render
from mainspring.errors import JobCancelled, JobFailed

async def play() -> None:
    async with app.node(lease="1s"):
{textwrap.indent(asks, " " * 8)}
        quick = await crawl.using(timeout="100ms", max_attempts=1).enqueue("https://example.com/")
        looking = await convert.enqueue(10_000)
        while await looking.state() != "running":
            await asyncio.sleep(0.05)
        print(await looking.cancel())
        for one in (job, quick, looking):
            try:
                await one.result("30s")
            except (JobCancelled, JobFailed) as error:
                print(type(error).__name__, getattr(error, "error", ""))
        print(await (await render.enqueue(3)).result("30s"))

asyncio.run(play())
""",
        encoding="utf-8",
    )
    said = [line for line in run("play.py", cwd=tmp_path).splitlines() if line != "closing what was open"]
    assert said == [
        "running",
        "JobCancelled ",
        "JobFailed TimeoutError: it ran for longer than 0.1 s",
        "JobCancelled ",
        "None",
    ]


def test_a_node_is_started_and_stopped_by_hand_and_listened_to(tmp_path: Path) -> None:
    program, _fastapi, by_hand, listening = blocks("docs/how-to/embed-a-node.md")
    (tmp_path / "shop.py").write_text(f"{program}\n{by_hand}\n{listening}", encoding="utf-8")
    (tmp_path / "play.py").write_text(
        """
import asyncio
from shop import app, by_hand, ship

async def play() -> None:
    job = await ship.enqueue(8)
    await by_hand()
    async with app:
        print([line.message[:4] for line in await app.store.log_lines(job.id)])

asyncio.run(play())
""",
        encoding="utf-8",
    )
    assert run("play.py", cwd=tmp_path).splitlines() == [
        "shop.ship claimed ready → running",
        "shipped 8",
        "shop.ship succeeded running → succeeded",
        "True 0 ()",
        "['took']",
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_nothing_is_lost_in_the_first_job(tmp_path: Path) -> None:
    """Play the tutorial, with shorter jobs: enqueue, kill the worker at work, start another one."""
    shop, order, label = blocks("docs/tutorial/first-job.md")
    assert "asyncio.sleep(5)" in shop

    def write(duration: str) -> None:
        (tmp_path / "shop.py").write_text(
            f"{shop.replace('sleep(5)', f'sleep({duration})')}\n{label}", encoding="utf-8"
        )

    write("0.1 if order < 3 else 600")  # the last two are at work until the worker is killed
    (tmp_path / "order.py").write_text(order, encoding="utf-8")
    assert len(run("order.py", cwd=tmp_path).splitlines()) == 4

    with worker(tmp_path) as first:
        assert [next(first) for _ in range(6)][-2:] == ["order 3: packing", "order 4: packing"]
        until(lambda: states(tmp_path) == {"succeeded": 2, "running": 2})
    write("0.1")
    run("-m", "mainspring", "jobs", "enqueue", "shop:app", "shop.label", "1", cwd=tmp_path)
    with worker(tmp_path) as second:
        assert sorted(next(second) for _ in range(4)) == [
            "order 3: packed", "order 3: packing", "order 4: packed", "order 4: packing",
        ]  # fmt: skip
        until(lambda: states(tmp_path) == {"succeeded": 4, "failed": 1})


@contextmanager
def worker(folder: Path) -> Iterator[Iterator[str]]:
    """Run the worker of the tutorial, and kill it at the end of the block; gives what it prints, line by line."""
    command = [sys.executable, "-m", "mainspring", "worker", "shop:app", "--concurrency", "2"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        try:
            yield (line.rstrip("\n") for line in process.stdout)
        finally:
            process.kill()


def states(folder: Path) -> Counter[str]:
    with chdir(folder):
        done = cli("jobs", "list", "--app", "shop:app", "--json")
    assert done.exit_code == 0, done.output
    return Counter(json.loads(line)["state"] for line in done.stdout.splitlines())
