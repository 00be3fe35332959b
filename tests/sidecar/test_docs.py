"""What the page about the file shows really runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "keep-schedules-in-a-file.md"


@pytest.mark.slow
def test_the_program_of_the_page_sweeps_and_leaves_its_file(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    quick = block.replace('Every("15m")', 'Every("200ms")').replace("asyncio.Event().wait()", "asyncio.sleep(1.5)")
    (tmp_path / "shop.py").write_text(quick, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.count("swept") >= 3
    assert (tmp_path / "data" / "_system" / "background_jobs.json").exists()
