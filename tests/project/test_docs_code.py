"""What the README and the pages show as code really runs."""

import re
import signal
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


def pytest_on(page: Path) -> str:
    return run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(page))


def test_the_test_in_the_readme_passes_and_would_fail_with_a_longer_interval(tmp_path: Path) -> None:
    idea, test = blocks("README.md")[:2]
    page = tmp_path / "test_readme.py"
    page.write_text(f"{idea}\n{test}", encoding="utf-8")
    assert "1 passed" in pytest_on(page)
    for wrong in (', every("60s")', ""):
        page.write_text(f"{idea}\n{test}".replace(', every("30s")', wrong), encoding="utf-8")
        with pytest.raises(AssertionError, match="1 failed"):
            pytest_on(page)


def test_what_fails_in_the_readme_is_tried_again_with_the_same_letter(tmp_path: Path) -> None:
    failing = 'print("sent:", inbox[0])'
    idea = blocks("README.md")[0]
    assert failing in idea
    script = tmp_path / "idea.py"
    script.write_text(
        "failures = [OSError(1), OSError(2)]\n"
        + idea.replace(failing, f"if failures: raise failures.pop()\n    {failing}"),
        encoding="utf-8",
    )
    assert run(str(script)) == "sent: hello\n"


def test_the_tests_in_the_how_to_pass(tmp_path: Path) -> None:
    page = tmp_path / "test_how_to.py"
    page.write_text("\n".join(blocks("docs/how-to/virtual-time.md")), encoding="utf-8")
    assert "2 passed" in pytest_on(page)


def test_the_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(blocks("docs/tutorial/first-service.md")), encoding="utf-8")
    assert run(str(script)) == "sent: one\nsent: two\nsent: three\nsent: four\n"


def test_the_program_that_runs_until_sigterm_does(tmp_path: Path) -> None:
    script = tmp_path / "service.py"
    script.write_text(blocks("docs/how-to/run-until-sigterm.md")[0], encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "looked\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_the_payload_on_its_page_is_the_one_that_is_made(tmp_path: Path) -> None:
    example = blocks("docs/explanation/payloads.md")[0]
    script = tmp_path / "payloads.py"
    script.write_text(example, encoding="utf-8")
    assert run(str(script)).strip() in example
