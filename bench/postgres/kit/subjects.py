"""Who is measured: each a program of its own in an environment of its own, asked for one action at a time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.postgres.kit.child import LONGEST
from bench.postgres.kit.environments import CHECKOUT, Environment, NotInstalled

OURS = "mainspring"

_VERSIONS = (
    "import json, sys; from importlib.metadata import version; print(json.dumps({n: version(n) for n in sys.argv[1:]}))"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A program that is measured."""

    name: str
    python: Path
    module: str
    versions: dict[str, str]
    checkout: Path | None = None
    """Whose package is imported; None: the one that is installed."""

    def ask(self, action: str, **options: object) -> Any:  # noqa: ANN401 - every action has its own answer
        """Have an action done in a fresh process."""
        with self.begin(action, **options) as child:
            return child.answer()

    @contextmanager
    def begin(self, action: str, **options: object) -> "Iterator[Child]":
        """Start an action that waits for a word in between."""
        command = [str(self.python), "-m", self.module, action, json.dumps(options)]
        child = Child(f"{self.name}: {action}", command, self.checkout)
        try:
            yield child
        finally:
            child.close()


class Child:
    """A process at its action."""

    def __init__(self, what: str, command: list[str], checkout: Path | None = None) -> None:
        self._what = what
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if checkout is not None:
            environment["PYTHONPATH"] = str(checkout / "src")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT, env=environment
        )

    def until_ready(self) -> None:
        if not self._process.stdout or self._process.stdout.readline() != "ready\n":
            sys.exit(f"{self._what} did not begin")

    def go_on(self) -> None:
        if self._process.stdin:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def answer(self) -> Any:  # noqa: ANN401 - every action has its own
        """Let it come to its end, and return what it has found."""
        out, _ = self._process.communicate(timeout=LONGEST + 60)
        if self._process.returncode:
            sys.exit(f"{self._what} failed")
        return json.loads(out.splitlines()[-1])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


def find(names: Iterable[str], *, only: Iterable[str] = ()) -> list[Subject]:
    """Return those subjects that can be had here, and say which cannot."""
    found = []
    for name in names:
        if only and name not in only:
            continue
        try:
            found.append(_MAKERS[name]())
        except NotInstalled as reason:
            print(f"{name} is left out: {reason}\n", flush=True)
    return found


def _raw() -> Subject:
    return Subject("raw", Path(sys.executable), "bench.postgres.peers.raw", _versions(sys.executable, "asyncpg"))


def _pgqueuer() -> Subject:
    python = Environment("pgqueuer-1.6", ("pgqueuer[asyncpg]==1.6.*",)).python()
    return Subject(
        "pgqueuer", python, "bench.postgres.peers.pgqueuer", _versions(python, "pgqueuer", "asyncpg", "uvloop")
    )


def _procrastinate() -> Subject:
    python = Environment("procrastinate-3", ("procrastinate==3.*", "psycopg[binary]")).python()
    return Subject(
        "procrastinate", python, "bench.postgres.peers.procrastinate", _versions(python, "procrastinate", "psycopg")
    )


def _ours() -> Subject:
    look = [sys.executable, "-c", "import mainspring; mainspring.Mainspring('postgresql://127.0.0.1/nowhere')"]
    done = subprocess.run(look, check=False, capture_output=True, text=True)
    if done.returncode:
        raise NotInstalled((done.stderr.strip().splitlines() or ["it cannot be imported"])[-1])
    return Subject(OURS, Path(sys.executable), "bench.postgres.kit.ours", _versions(sys.executable, OURS, "asyncpg"))


def _versions(python: str | Path, *names: str) -> dict[str, str]:
    done = subprocess.run([str(python), "-c", _VERSIONS, *names], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


_MAKERS = {"raw": _raw, "pgqueuer": _pgqueuer, "procrastinate": _procrastinate, OURS: _ours}
