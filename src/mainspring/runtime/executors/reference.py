"""Finding by name what another process has: "module:qualified.name"."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, get_type_hints

from mainspring.core.codec import Arguments, Value
from mainspring.core.names import Name
from mainspring.errors import DeclarationError
from mainspring.runtime.definition import Definition, ExecutorKind

_MAIN: Final = "__main__"


def importable(reference: str) -> str:
    """Give what lives in `__main__` the name by which another process can import it, or raise `DeclarationError`."""
    module, _, path = reference.partition(":")
    if module != _MAIN:
        return reference
    real = main_module()
    if real is None:
        problem = "a script that was started by its path cannot be imported; start it with `python -m`"
        raise DeclarationError(reference, problem)
    return f"{real}:{path}"


def main_module() -> str | None:
    """The real name of the module that was started with `python -m`; None if the program was not."""
    spec = getattr(sys.modules[_MAIN], "__spec__", None)
    return None if spec is None else str(spec.name)


def loaded(name: str) -> object:
    """Look for something in the modules that are loaded already; None if it is not there. Nothing is imported."""
    module, _, path = name.partition(":")
    found: object = sys.modules.get(_MAIN if module == main_module() else module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def find(reference: str, context: str | None) -> Definition:
    """Import a task, or a function that was made one elsewhere; `context` is the parameter that takes the context."""
    module, _, path = reference.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    definition = getattr(found, "definition", None)
    if isinstance(definition, Definition):
        return definition
    if not callable(found):
        raise DeclarationError(reference, f"a process slot finds no function of that name in {module}")
    return _plain(found, reference, context)


def _plain(function: Callable[..., object], reference: str, context: str | None) -> Definition:
    injected = [context] if context else []
    return Definition(
        name=Name("", reference.replace(":", ".")),
        function=function,
        arguments=Arguments.of(function, subject=reference, injected=injected),
        result=Value.of(get_type_hints(function).get("return", Any), subject=f"result of {reference}"),
        executor=ExecutorKind.PROCESS,
        context=context,
    )
