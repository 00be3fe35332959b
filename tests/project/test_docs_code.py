"""What the README and the pages show as code really runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_idea_in_the_readme_is_about_twenty_lines_and_works(tmp_path: Path) -> None:
    idea = blocks("README.md")[0]
    assert len(idea.splitlines()) <= 22
    script = tmp_path / "idea.py"
    script.write_text(idea, encoding="utf-8")
    assert run(str(script)) == "sent: hello\n"


def test_the_test_in_the_readme_passes_and_would_fail_without_its_interval(tmp_path: Path) -> None:
    idea, test = blocks("README.md")[:2]
    without_main = idea.replace("asyncio.run(main())", "")
    page = tmp_path / "test_readme.py"
    page.write_text(without_main + test, encoding="utf-8")
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(page))
    page.write_text((without_main + test).replace(', every("30s")', ""), encoding="utf-8")
    with pytest.raises(AssertionError, match="1 failed"):
        run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(page))


def test_the_tests_in_the_how_to_pass(tmp_path: Path) -> None:
    page = tmp_path / "test_how_to.py"
    page.write_text("\n".join(blocks("docs/how-to/virtual-time.md")[:2]), encoding="utf-8")
    assert "2 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(page))


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    step, main, waking = blocks("docs/tutorial/first-service.md")[:3]
    script = tmp_path / "tutorial.py"
    script.write_text(f"{step}\n{main}\n{waking}\nasyncio.run(main())", encoding="utf-8")
    assert run(str(script)) == "sent: one\nsent: two\nsent: three\nsent: four\n"


def test_the_payload_on_its_page_is_the_one_that_is_made(tmp_path: Path) -> None:
    example = blocks("docs/explanation/payloads.md")[0]
    script = tmp_path / "payloads.py"
    script.write_text(example, encoding="utf-8")
    assert run(str(script)).strip() in example
