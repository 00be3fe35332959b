"""Packages as pip would have installed them: modules, and a folder that says what they offer."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import mainspring

SOURCE = Path(mainspring.__file__).parents[1]


class Packages:
    """A folder of packages, and programs that have it on their path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(exist_ok=True)

    def add(self, name: str, code: str, offers: str | None = None) -> None:
        """Install a module of that name; `offers` is its entry point, or the plugin in it under the module's name."""
        (self.folder / f"{name}.py").write_text(dedent(code), encoding="utf-8")
        self.offer(f"{name}-package", f"{name} = {name}:plugin" if offers is None else offers)

    def offer(self, package: str, points: str) -> Path:
        described = self.folder / f"{package.replace('-', '_')}-1.0.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        written = described / "entry_points.txt"
        written.write_text(f"[mainspring.plugins]\n{points}\n", encoding="utf-8")
        return written

    def run(self, *arguments: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run Python to its end in the folder, as a program that has these packages."""
        path = os.pathsep.join([str(self.folder), str(SOURCE)])
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def program(self, code: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        (self.folder / "program.py").write_text(dedent(code), encoding="utf-8")
        return self.run("-W", "error", "-m", "program", timeout=timeout)


GOOD = """
from mainspring import Context, Every, Plugin, Proceed, Sleep
from mainspring.plugins import BackgroundJobs, Schedules, Services

plugin = Plugin("good", "1.0", requires=[BackgroundJobs(), Schedules(), Services()])
seen = {"schedule": 0, "steps": 0}

@plugin.task
async def add(a: int, b: int) -> int:
    return a + b

@plugin.task(executor="process")
def add_apart(a: int, b: int) -> int:
    return a + b

@plugin.schedule(Every("1s"))
@plugin.task
async def sweep() -> None:
    seen["schedule"] += 1

@plugin.service
async def watch() -> Sleep:
    seen["steps"] += 1
    return Sleep("100ms")
"""
