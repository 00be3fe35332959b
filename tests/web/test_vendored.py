"""What the dashboard takes from others is what they have published, and goes with the wheel."""

import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src/mainspring/web"
VENDOR = WEB / "static/vendor"
ROWS = dict(re.findall(r"^\| `([^`]+)` \|.*\| `(\w{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE))


def test_the_table_names_every_file() -> None:
    assert set(ROWS) == {path.name for path in VENDOR.iterdir()} - {"README.md"}


@pytest.mark.parametrize("name", ROWS)
def test_each_file_has_its_sum(name: str) -> None:
    assert sha256((VENDOR / name).read_bytes()).hexdigest() == ROWS[name]


def test_each_comes_with_its_licence() -> None:
    makers = {name.partition(".")[0] for name in ROWS}
    assert {f"{maker}.LICENSE" for maker in makers} <= set(ROWS)


def test_the_tool_says_the_same() -> None:
    command = [sys.executable, "tools/vendor.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("as expected") == len(ROWS)


def test_our_own_scripts_stay_small() -> None:
    lines = {one.name: one.read_text(encoding="utf-8").count("\n") for one in (WEB / "static").glob("*.js")}
    assert len(lines) > 3
    assert max(lines.values()) < 300, lines


@pytest.mark.slow
def test_the_wheel_has_all_of_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {path for folder in ("static", "templates") for path in (WEB / folder).rglob("*") if path.is_file()}
    assert len(wanted) > 15
    assert {f"mainspring/web/{path.relative_to(WEB)}" for path in wanted} <= inside
