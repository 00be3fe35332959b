"""`core/` is pure: no I/O, no clock, no randomness. What it may import is a list, what it may call leaves some out."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "abc",
    "base64",
    "bisect",
    "calendar",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "inspect",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "string",
    "struct",
    "sys",  # for sys.modules and nothing else, see below
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "uuid",  # for the type; drawing one is refused below
    "zoneinfo",  # reads the rules of time zones, which are constants that happen to live in files
    "mainspring",  # which parts of it, test_layers.py says
    "msgspec",
    "pydantic",  # for its types; that it is not loaded, test_surface.py says
}
# A time and a chance that were handed in count too: a rule is told the moment and the roll, it does not ask for them.
MAY_NOT_CALL = {
    "now", "today", "utcnow", "monotonic", "time_ns", "perf_counter", "localtime", "gmtime",
    "uuid1", "uuid4", "uuid6", "uuid7", "random", "randint", "uniform", "choice", "shuffle", "urandom",
    "read_text", "read_bytes", "write_text", "write_bytes",
}  # fmt: skip
BUILTINS = {"open", "print", "input", "breakpoint", "exec", "eval", "__import__"}
# Handed over without being called: `field(default_factory=datetime.now)`.
MAY_NOT_NAME = {"datetime": {"now", "utcnow", "today"}, "date": {"today"}, "uuid": {"uuid1", "uuid4", "uuid6", "uuid7"}}


def violations(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if offence := refused(node):
                yield f"{path.relative_to(folder)}:{getattr(node, 'lineno', 0)}: {offence}"


def refused(node: ast.AST) -> str | None:
    """Say what a node does that a pure rule does not do."""
    match node:
        case ast.Import(names=names):
            modules = [alias.name.split(".")[0] for alias in names]
            return next((f"imports {module}" for module in modules if module not in MAY_IMPORT), None)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            if module.split(".")[0] not in MAY_IMPORT:
                return f"imports {module}"
            if module == "sys":
                return "imports from sys"
            banned = MAY_NOT_NAME.get(module, set())
            return next((f"imports {alias.name}" for alias in names if alias.name in banned), None)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in MAY_NOT_CALL:
            return f"calls {name}"
        case ast.Name(id=name) if name in BUILTINS:
            return f"names {name}"
        case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name != "modules":
            return f"names sys.{name}"
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if name in MAY_NOT_NAME.get(owner, set()):
            return f"names {owner}.{name}"
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            return "waits for something"
        case _:
            return None


def test_core_is_pure() -> None:
    assert list(violations(ROOT / "src" / "mainspring" / "core")) == []


@pytest.mark.parametrize(
    ("line", "offence"),
    [
        ("import time", "imports time"),
        ("import random", "imports random"),
        ("import os.path", "imports os"),
        ("from asyncio import sleep", "imports asyncio"),
        ("def f():\n    import sqlite3", "imports sqlite3"),
        ("from uuid import uuid4", "imports uuid4"),
        ("datetime.now(UTC)", "calls now"),
        ("clock.now()", "calls now"),
        ("date.today()", "calls today"),
        ("datetime.utcnow()", "calls utcnow"),
        ("time.monotonic()", "calls monotonic"),
        ("uuid.uuid4()", "calls uuid4"),
        ("dice.random()", "calls random"),
        ("field(default_factory=datetime.now)", "names datetime.now"),
        ("sys.stdout.write('done')", "names sys.stdout"),
        ("from sys import argv", "imports from sys"),
        ("open('jobs.db')", "names open"),
        ("listen(print)", "names print"),
        ("async def f(): ...", "waits for something"),
    ],
)
def test_whatever_reaches_outside_is_refused(tmp_path: Path, line: str, offence: str) -> None:
    (tmp_path / "rule.py").write_text(line, encoding="utf-8")

    assert any(found.endswith(offence) for found in violations(tmp_path))


def test_a_rule_that_is_told_the_time_and_the_roll_is_fine(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(
        "from datetime import datetime, timedelta\n"
        "from mainspring.core.job import Claim\n"
        "def due(claim: Claim, now: datetime, roll: float) -> datetime:\n"
        "    return envelope.open(now + timedelta(seconds=roll), claim.now.time())\n",
        encoding="utf-8",
    )

    assert list(violations(tmp_path)) == []
