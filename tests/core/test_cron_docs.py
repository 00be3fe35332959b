"""What docs/reference/cron.md shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

from mainspring.core.cron.expression import MACROS
from mainspring.core.rules import Cron
from tests.core.cron_by_hand import utc

PAGE = (Path(__file__).parents[2] / "docs/reference/cron.md").read_text(encoding="utf-8")


def blocks(language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


def test_the_code_prints_what_the_page_says() -> None:
    done = subprocess.run([sys.executable, "-c", blocks("python")], capture_output=True, text=True, check=True)
    assert done.stdout == blocks("text")


def test_every_macro_is_there() -> None:
    rows = re.findall(r"^\| (`@.+) \| `(.+)` \|$", PAGE, re.MULTILINE)
    told = {macro.strip("`").upper(): same for macros, same in rows for macro in macros.split(", ")}
    assert told == MACROS


def test_the_table_of_changes_is_true() -> None:
    counts = {"not at all": 0, "once": 1, "twice": 2, "four times": 4}
    rows = re.findall(
        r"^\| `([^`]+ \* \* \*)` \| (once|not at all)\b.* \| (once|twice|four times)\b", PAGE, re.MULTILINE
    )
    assert len(rows) == 3
    for text, spring, autumn in rows:
        rule = Cron(text, tz="Europe/Berlin")
        assert len(list(rule.between(utc("2026-03-29T00:00+01:00"), utc("2026-03-29T12:00+02:00")))) == counts[spring]
        assert len(list(rule.between(utc("2026-10-25T00:00+02:00"), utc("2026-10-25T12:00+01:00")))) == counts[autumn]
