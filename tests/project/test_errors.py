"""The tree of errors: drawn as it is, kept in one file, and fit to travel between processes."""

import ast
import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

from mainspring import errors

PACKAGE = Path(errors.__file__).parent
ELSEWHERE = {
    "core/outcome.py",  # what a handler raises to steer its own job is an exception to Python and no error to us
    "core/payload/misfit.py",  # never leaves the codec, which turns it into the error that callers see
    "stores/sqlite/writer.py",  # never leaves the writer, which does each of a spoilt group alone
    "stores/sidecar/commit.py",  # never leaves the writer, which does each of such a group alone
    "stores/sidecar/foreign.py",  # never leaves the adoption, which keeps the row and tells of it
    "cli/supervisor.py",  # never leaves the supervisor, whose service backs off for it
    "testing/contract/verbs/transactions.py",  # stands in for an error of the user's own
}

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.MainspringError)
]
SAMPLES = {
    str: "some text",
    int: 7,
    float: 0.5,
    bool: True,
    object: "anything",
    Sequence[str]: ("one", "two"),
}


def parents_as_drawn(drawing: str) -> dict[str, str | None]:
    """Read the tree in a docstring: each name and the name it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        if found := re.match(r"(?P<branch>(?:│   |    )*(?:├── |└── ))?(?P<name>[A-Z][A-Za-z]+)(?:  |$)", line):
            depth = len(found["branch"] or "") // 4
            path[depth:] = [found["name"]]
            parents[found["name"]] = path[depth - 1] if depth else None
    return parents


def parents_as_declared(classes: Iterable[type]) -> dict[str, str | None]:
    own = set(classes)
    return {cls.__name__: next((base.__name__ for base in cls.__bases__ if base in own), None) for cls in own}


def test_the_drawing_is_the_tree() -> None:
    assert parents_as_drawn(errors.__doc__ or "") == parents_as_declared(CLASSES)


def test_a_wrong_drawing_is_noticed() -> None:
    drawing = "Root\n├── One    text\n│   ├── Two    text\n│   └── Three  text\n└── Four   text\n\nSome words."

    assert parents_as_drawn(drawing) == {"Root": None, "One": "Root", "Two": "One", "Three": "One", "Four": "Root"}


def exceptions_defined_in(package: Path) -> Iterator[str]:
    """Find every class that derives, by name, from an exception of Python or from another such class of the package."""
    classes = [
        (path.relative_to(package).as_posix(), node)
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    known = {
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
    }
    while True:
        exceptions = [
            (file, node)
            for file, node in classes
            if known & {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        ]
        names = {node.name for _, node in exceptions}
        if names <= known:
            return iter(f"{file}: {node.name}" for file, node in exceptions)
        known |= names


def test_errors_are_defined_in_one_file() -> None:
    files = {found.split(":")[0] for found in exceptions_defined_in(PACKAGE)}

    assert files - ELSEWHERE == {"errors.py"}


def test_an_error_defined_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "class Plain: ...\n"
        "class Own(errors.NameTaken): ...\n"
        "def f():\n    class Hidden(Own): ...\n"
        "class Group(ExceptionGroup[Exception]): ...\n",
        encoding="utf-8",
    )
    (tmp_path / "errors.py").write_text("class NameTaken(Exception): ...\n", encoding="utf-8")

    assert set(exceptions_defined_in(tmp_path)) == {
        "errors.py: NameTaken",
        "one.py: Own",
        "one.py: Hidden",
        "one.py: Group",
    }


def sample(cls: type[Exception]) -> tuple[Exception, dict[str, object]]:
    """Make an error with an argument for each parameter; return it with what was given."""
    _self, *parameters = inspect.signature(cls.__init__).parameters.values()
    parameters = [parameter for parameter in parameters if not parameter.kind.name.startswith("VAR_")]
    hints = get_type_hints(cls.__init__) if parameters else {}
    given = {parameter.name: SAMPLES[hints[parameter.name]] for parameter in parameters}
    by_name = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    positional = [value for name, value in given.items() if name not in by_name]
    return cls(*positional, **{name: given[name] for name in by_name}), given


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_carries_what_it_was_given(cls: type[Exception]) -> None:
    error, given = sample(cls)

    assert {name: getattr(error, name) for name in given} == given


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_pickling_and_copying(cls: type[Exception]) -> None:
    error, _ = sample(cls)
    error.add_note("seen on the way")

    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is cls
        assert vars(twin) == vars(error)
        assert twin.args == error.args
        assert str(twin) == str(error)
