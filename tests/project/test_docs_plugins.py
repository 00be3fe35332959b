"""What the page about plugins shows really runs, and what it lists is what there is."""

import inspect
import re
from pathlib import Path

from mainspring import Plugin, errors, plugins
from mainspring.core.outcome import HostNotReady
from mainspring.runtime import host
from tests.project.test_docs_code import ROOT, blocks, run

PAGE = "docs/how-to/embed-with-plugins.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")

END = """
import asyncio

async def main() -> None:
    with closing(sqlite3.connect("photos.db")) as photos:
        photos.execute("INSERT INTO thumbnails VALUES (7, 0), (8, 1)")
        photos.commit()
    async with app.node():
        assert await (await make.enqueue("cat", width=50)).result("10s") == "cat-50.jpg"
        assert await (await app.schedules.run("thumbnails:sweep")).result("10s") == DoneAndReschedule("10s")
        await (await report.enqueue()).result("10s")
        assert await (await report_in_a_thread.enqueue()).result("10s") == 0
        await take_out()
        app.host.withdraw()
        job = await report.enqueue()
        while await job.state() != "scheduled":
            await asyncio.sleep(0.01)
        print([str(attempt) for attempt in await app.store.attempts(job.id)])

asyncio.run(main())
"""


def column(heading: str) -> set[str]:
    table = TEXT.split(f"| {heading} |")[1].split("\n\n")[0]
    return {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)", line.split("|")[1])}


def test_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join([*blocks(PAGE), END]), encoding="utf-8")
    said = run("-W", "ignore", "page.py", cwd=tmp_path)
    assert "captions is not installed" in said
    assert "sent: done" in said
    assert "0xD21" in said


def test_every_capability_outcome_and_option_is_listed() -> None:
    kinds = {
        name for name, one in vars(plugins).items() if inspect.isclass(one) and issubclass(one, plugins.Capability)
    }
    assert column("capability") == kinds - {"Capability"}
    assert column("returned") == {"Done", "DoneAndReschedule", "Failed"}
    named = set(inspect.signature(Plugin.job).parameters) - {"self", "options"}
    assert column("option") == named | {"timeout", "retry"}


def test_every_code_is_listed_with_its_errors() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8").split("| code |")[1].split("\n\n")[0]
    told = {
        (int(code, 16), name)
        for code, names in re.findall(r"^\| (0x\w+) \| (.+?) \|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    missing = {
        (code, one.__name__)
        for code in (host.NOT_OFFERED, host.NOTHING_WIRED)
        for one in (errors.HostMissing, HostNotReady)
    }
    fixed = {
        (vars(one)["code"], name)
        for name, one in vars(errors).items()
        if inspect.isclass(one) and "code" in vars(one) and isinstance(vars(one)["code"], int)
    }
    assert told == missing | {one for one in fixed if one[1] != "HostError"}
