"""The programs in examples/ run, and do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_library_of_photos_has_two_plugins(tmp_path: Path) -> None:
    assert run("photo_library.py", str(tmp_path)) == [
        "refused: HostWrite",
        "digest: 7 of 7 photos have a thumbnail",
        "stopped: plugin digest was not granted HostWrite",
        "uninstalled: plugin thumbnails is not installed",
        "photos left: 7",
    ]
