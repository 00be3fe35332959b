"""Run the tests on every Python from 3.11 up that this machine has, the newest patch release of each.

Looks on PATH, among the versions of pyenv and, where there is uv, among those it knows. Each gets an environment in
.venvs/ and a complete run; the list at the end says which passed. `--others` leaves out the release that runs this file,
which is the one that `make test` has tested. All other arguments go to pytest.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)

ASK = """
import importlib.util, json, sys
print(json.dumps([
    sys.implementation.name,
    sys.version_info[:3],
    sys.abiflags,
    importlib.util.find_spec("ensurepip") is not None,
    getattr(sys, "_base_executable", sys.executable),
]))
"""


@dataclass(frozen=True, slots=True, order=True)
class Python:
    """An interpreter that runs."""

    version: tuple[int, int, int]
    flags: str
    can_make_environments: bool
    path: str

    @property
    def line(self) -> str:
        """The release line, such as 3.13, or 3.13t for the one without the global lock."""
        return f"{self.version[0]}.{self.version[1]}{self.flags}"

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))}{self.flags}"


def main(arguments: list[str]) -> int:
    others_only = "--others" in arguments
    arguments = [argument for argument in arguments if argument != "--others"]
    pythons = newest_of_each(found())
    if others_only:
        pythons = [python for python in pythons if python.version[:2] != sys.version_info[:2]]
        if not pythons:
            print("This machine has no other Python from 3.11 up.")
            return 0
    if not pythons:
        sys.exit("No Python from 3.11 up can make environments here. Install its venv package, or uv.")
    print("Found " + ", ".join(f"{python} ({python.path})" for python in pythons))
    verdicts = {python: verdict(python, arguments) for python in pythons}
    print()
    for python, (passed, seconds) in verdicts.items():
        print(f"{python}: {'passed' if passed else 'FAILED'} in {seconds:.0f} s")
    return not all(passed for passed, _ in verdicts.values())


def verdict(python: Python, arguments: list[str]) -> tuple[bool, float]:
    start = time.monotonic()
    environment = Path(".venvs") / python.line
    print(f"\n{python}\n{'=' * len(str(python))}", flush=True)
    passed = step(python.path, "tools/environment.py", str(environment), "test,docs", PYTHON=python.path) and step(
        str(environment / "bin" / "python"), "-m", "pytest", "-q", "-n", "auto", *arguments
    )
    return passed, time.monotonic() - start


def step(*command: str, **variables: str) -> bool:
    return subprocess.run(command, cwd=CHECKOUT, env=os.environ | variables, check=False).returncode == 0


def newest_of_each(pythons: Iterator[Python]) -> list[Python]:
    # Debian's own Python may lack ensurepip; uv does without.
    usable = [python for python in pythons if python.can_make_environments or shutil.which("uv")]
    return list({python.line: python for python in sorted(usable)}.values())


def found() -> Iterator[Python]:
    for path in sorted(set(candidates())):
        answer = subprocess.run([path, "-c", ASK], capture_output=True, text=True, check=False)
        if answer.returncode:  # a shim of pyenv with nothing behind it, or too old to know the question
            continue
        name, version, flags, can_make_environments, base = json.loads(answer.stdout)
        if name == "cpython" and tuple(version) >= OLDEST:
            yield Python(tuple(version), flags, can_make_environments, base)


def candidates() -> Iterator[str]:
    names = ["python3", *(f"python3.{minor}{flag}" for minor in range(OLDEST[1], 20) for flag in ("", "t"))]
    for folder in os.get_exec_path():
        yield from filter(None, (shutil.which(name, path=folder) for name in names))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path("~/.pyenv").expanduser())
    yield from map(str, pyenv.glob("versions/3.*/bin/python3"))
    if shutil.which("uv"):
        listing = subprocess.run(
            ["uv", "python", "list", "--only-installed", "--output-format", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        if not listing.returncode:
            yield from (entry["path"] for entry in json.loads(listing.stdout))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
