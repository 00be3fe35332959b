"""What the page about the mirror shows really runs, and what it lists is what there is."""

import re
from pathlib import Path

import pytest

from mainspring.plugins.mirror import WRITE, Mirror
from mainspring.plugins.mirrored import Status
from tests.project.test_docs_code import ROOT, blocks, run

PAGE = "docs/how-to/mirror-into-a-graph.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def first_column(heading: str) -> list[str]:
    """The names in the first column of the table whose first heading is this."""
    table = TEXT.split(f"| {heading} |")[1].split("\n\n")[0]
    return [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_every_property_and_every_status_is_listed() -> None:
    assert sorted(first_column("property")) == sorted(["qname", *re.findall(r"j\.(\w+) = row", WRITE)])
    shown = [status for status in Status if status is not Status.CANCELLED]  # which has no node
    assert first_column("status") == [status.value for status in shown]


def test_what_a_mirror_counts_is_listed() -> None:
    counted = {name for name in vars(Mirror(lambda: None, None)) if not name.startswith("_")}  # type: ignore[arg-type,return-value]  # neither is used
    assert counted - {"wake"} <= set(re.findall(r"`(\w+)`", TEXT))


@pytest.mark.needs("ladybug")
def test_the_how_to_works(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    end = """
import asyncio

app.mirror(MySink(), name="mine")

async def main() -> None:
    own = app.mirror(LadybugSink("own.lbug"), name="own")
    await driver.close()
    async with app.node():
        async with asyncio.timeout(30):
            while not own.passes:
                await asyncio.sleep(0.01)

asyncio.run(main())
connection = ladybug.Connection(ladybug.Database("own.lbug"))
print(connection.execute("MATCH (j:_BackgroundJob) RETURN j.qname, j.status, j.explained").get_all())
"""
    page.write_text("\n".join([*blocks(PAGE), end]), encoding="utf-8")
    assert "[['page.collect', 'idle', 'Every 15 minutes" in run("-W", "ignore", "page.py", cwd=tmp_path)
