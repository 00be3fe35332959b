"""Imports point down only, from the edges to the ground.

The rules are the table below. The second half of this file shows that the checker sees each kind of import and that
each rule can fail.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "mainspring"


@dataclass(frozen=True, slots=True)
class Layer:
    """Parts of equal height: modules and packages right under the package."""

    parts: tuple[str, ...]
    together: bool = False
    """Whether they may import one another."""


LAYERS = (  # from the bottom to the top
    Layer(("clock", "duration", "errors", "ids", "settings"), together=True),
    Layer(("core",)),
    Layer(("stores",)),
    Layer(("supervise",)),
    Layer(("runtime",)),
    Layer(("outbox", "plugins")),
    Layer(("app", "client", "handle", "sync", "task"), together=True),
    Layer(("cli", "integrations", "testing", "web")),
    Layer(("__init__", "__main__")),
)
ALSO_ALLOWED = {
    # The command line is where the other edges are started from.
    ("cli", "integrations"),
    ("cli", "testing"),
    ("cli", "web"),
}
ALSO_FORBIDDEN = {
    # Supervision is usable alone, without a store.
    ("supervise", "stores"),
}
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer.parts}


def violations(package: Path) -> Iterator[str]:
    """Say what is wrong with the imports of the files under `package`, one line each."""
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        part = inside.parts[0].removesuffix(".py")
        if part not in HEIGHT:
            yield f"{inside}: give it a layer: {part} stands in none of them (tests/project/test_layers.py)"
            continue
        for line, target in imports(path, inside):
            if target not in HEIGHT:
                yield f"{inside}:{line}: imports {target}: give it a layer"
            elif not allowed(part, target):
                yield f"{inside}:{line}: {part} may not import {target}"


def allowed(part: str, target: str) -> bool:
    if part == target or (part, target) in ALSO_ALLOWED:
        return True
    if (part, target) in ALSO_FORBIDDEN:
        return False
    if HEIGHT[part] == HEIGHT[target]:
        return LAYERS[HEIGHT[part]].together
    return HEIGHT[part] > HEIGHT[target]


def imports(path: Path, inside: Path) -> Iterator[tuple[int, str]]:
    """Name the part behind every import of our own package, wherever in the file it stands."""
    here = [PACKAGE, *inside.parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                start = here[: len(here) - level + 1] if level else []
                stem = ".".join([*start, *([module] if module else [])])
                modules = [f"{stem}.{alias.name}" for alias in names]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                modules = [module]
            case _:
                continue
        for module in modules:
            if module.split(".")[0] == PACKAGE:
                yield node.lineno, part_of(module)


def part_of(module: str) -> str:
    """Return the part that a dotted name leads to; a name that is no part is taken from the package's own front."""
    match module.split("."):
        case [_]:
            return "__init__"
        case [_, name] if name not in HEIGHT:
            return "__init__"
        case [_, part, *_]:
            return part
        case _:
            raise AssertionError(module)


def test_imports_point_down() -> None:
    assert list(violations(ROOT / "src" / PACKAGE)) == []


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "statement",
    [
        "import mainspring.web",
        "import os, mainspring.web.pages as pages",
        "from mainspring.web import pages",
        "from mainspring import web",
        "from .. import web",
        "from ..web import pages",
        "from ..web.pages import index",
        "def later() -> None:\n    from mainspring import web",
        "if TYPE_CHECKING:\n    from mainspring.web import Page",
        "import importlib\nimportlib.import_module('mainspring.web')",
        "from importlib import import_module\nimport_module('mainspring.web')",
        "__import__('mainspring.web')",
    ],
)
def test_every_way_to_import_is_seen(tmp_path: Path, statement: str) -> None:
    (found,) = violations(tree(tmp_path, {"core/job.py": statement}))

    assert found.endswith("core may not import web")


@pytest.mark.parametrize(
    ("file", "statement", "verdict"),
    [
        ("errors.py", "from mainspring.core import job", "errors may not import core"),
        ("core/job.py", "from mainspring.stores import port", "core may not import stores"),
        ("stores/port.py", "from mainspring.supervise import service", "stores may not import supervise"),
        ("supervise/service.py", "from mainspring.runtime import node", "supervise may not import runtime"),
        ("supervise/service.py", "from mainspring.stores import port", "supervise may not import stores"),
        ("runtime/node.py", "from mainspring.outbox import topic", "runtime may not import outbox"),
        ("outbox/topic.py", "from mainspring.plugins import host", "outbox may not import plugins"),
        ("plugins/host.py", "from mainspring.app import Mainspring", "plugins may not import app"),
        ("task.py", "from mainspring.testing import VirtualClock", "task may not import testing"),
        ("web/pages.py", "from mainspring.cli import main", "web may not import cli"),
        ("testing/asserts.py", "from mainspring.web import pages", "testing may not import web"),
        ("core/job.py", "import mainspring", "core may not import __init__"),
        ("core/job.py", "from mainspring import Retry", "core may not import __init__"),
        ("core/__init__.py", "from .. import Retry", "core may not import __init__"),
        ("cli/main.py", "from mainspring import __main__", "cli may not import __main__"),
    ],
)
def test_an_import_that_points_up_or_aside_is_refused(tmp_path: Path, file: str, statement: str, verdict: str) -> None:
    assert list(violations(tree(tmp_path, {file: statement}))) == [f"{file}:1: {verdict}"]


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("duration.py", "from mainspring.errors import BadDuration"),
        ("core/job.py", "from mainspring.core.names import Name"),
        ("core/job.py", "from .names import Name"),
        ("core/__init__.py", "from . import names"),
        ("stores/sqlite/store.py", "from ...core import job"),
        ("app.py", "from mainspring.task import Task"),
        ("cli/demo.py", "from mainspring.web import dashboard"),
        ("__init__.py", "from mainspring.app import Mainspring"),
        ("__main__.py", "from .cli import main"),
        ("core/job.py", "import mainspring_elsewhere, msgspec"),
    ],
)
def test_an_import_that_points_down_is_fine(tmp_path: Path, file: str, statement: str) -> None:
    assert list(violations(tree(tmp_path, {file: statement}))) == []


def test_a_new_part_has_to_be_given_a_layer(tmp_path: Path) -> None:
    found = list(violations(tree(tmp_path, {"gadgets/one.py": "", "app.py": "import mainspring.gadgets.one"})))

    assert len(found) == 2
    assert all("give it a layer" in line for line in found)
