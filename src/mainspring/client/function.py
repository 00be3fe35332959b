"""What a function says about itself: its name, where another process finds it, what it is given and what it returns."""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Never, NoReturn, get_args, get_type_hints

from mainspring.core.names import Name
from mainspring.errors import DeclarationError
from mainspring.runtime.context import Context
from mainspring.runtime.executors.reference import main_module
from mainspring.runtime.reported import Done, DoneAndReschedule, Failed

_HERE: Final = "<locals>"
_MAIN: Final = ("__main__", "__mp_main__")  # the second is what the first is called in a child of multiprocessing


def default_name(function: Callable[..., object]) -> Name:
    """Name a task after its function: `module.function`.

    A script that is started by its path has the module name `__main__`, here and nowhere else. Its tasks are named by
    its file instead, as they are where a worker imports it; one started with `-m` is named by its real module.
    """
    module, path = _module_of(function), getattr(function, "__qualname__", "")
    if not path or "<lambda>" in path:
        raise DeclarationError(repr(function), "it has no name of its own; give it one: name='mail.send'")
    return Name("", f"{module}.{path.replace(f'.{_HERE}', '')}")


def reference_of(function: Callable[..., object]) -> tuple[str | None, str]:
    """Say where another process finds a function, "module:qualified.name"; or None, and why it cannot."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not path or "<lambda>" in path or isinstance(function, functools.partial):
        return None, "it has no name to import it by; write it as a function of its own at the top of a module"
    if _HERE in path:
        return None, f"`{path}` is made inside of another function; move it to the top of its module"
    if module in _MAIN:
        main = main_module()
        if main is None:
            return None, "a script that is started by its path cannot be imported; start it with `python -m`"
        if main.endswith("__main__"):
            return None, f"importing {main} would start the program again; move the task to a module of its own"
        module = main
    return f"{module}:{path}", ""


def context_parameters(function: Callable[..., object]) -> list[str]:
    """List the parameters that are given the attempt's `Context`: those annotated with it, or with it or None."""
    _check(function)
    parameters = _parameters(function)
    found = [name for name, parameter in parameters.items() if _is_context(parameter.annotation, function)]
    first = next(iter(parameters), None)
    if first == "self" and parameters["self"].annotation is inspect.Parameter.empty:
        raise DeclarationError(repr(function), "a method has no object to be called on; make it a function")
    return found


def result_type(function: Callable[..., object]) -> object:
    """Return the type of what a function returns; anything if it does not say."""
    try:
        annotation = getattr(_written(function), "__annotations__", {}).get("return", Any)
        hint = _resolved(annotation, function)
    except NameError as error:
        advice = "import it outside `if TYPE_CHECKING`, or define it in the module"
        raise DeclarationError(repr(function), f"the name `{error.name}` is not defined; {advice}") from error
    except Exception as error:  # an annotation is code, which may raise anything
        raise DeclarationError(repr(function), f"its annotation cannot be resolved: {error}") from error
    return None if hint in (Never, NoReturn) else hint


def returns_outcome(function: Callable[..., object]) -> bool:
    """Say whether a function declares that it returns what only job definitions are asked for."""
    hint = result_type(function)
    return any(kind in (Done, DoneAndReschedule, Failed) for kind in (hint, *get_args(hint)))


def _check(function: Callable[..., object]) -> None:
    """Refuse what can be called and still is no function that a job could run."""
    problem = ""
    if not callable(function) or isinstance(function, type):
        problem = "a task is a function; decorate a `def` or an `async def`"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        problem = "a generator runs nothing by being called; return a value instead of yielding"
    if problem:
        raise DeclarationError(repr(function), problem)


def _parameters(function: Callable[..., object]) -> "dict[str, inspect.Parameter]":
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # told by the codec, which reads them too
        return {}


def _is_context(annotation: object, function: Callable[..., object]) -> bool:
    try:
        hint = _resolved(annotation, function)
    except NameError:  # imported for type checkers only, as its name says
        return str(annotation).strip("'\"").removesuffix("| None").rstrip().rpartition(".")[2] == Context.__name__
    except Exception:  # noqa: BLE001 - an annotation is code, which may raise anything; the codec tells of it
        return False
    return hint is Context or Context in get_args(hint)


def _resolved(annotation: object, function: Callable[..., object]) -> object:
    names = getattr(_written(function), "__globals__", {})
    return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names, include_extras=True)["it"]


def _written(function: object) -> object:
    """The function as it is written, behind partials and decorators, or the method of an object that can be called."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return function if hasattr(function, "__globals__") else type(function).__call__


def _module_of(function: Callable[..., object]) -> str:
    module = getattr(function, "__module__", None) or "__main__"
    if module not in _MAIN:
        return str(module)
    if main := main_module():
        return main.removesuffix(".__main__")
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).stem if file else "__main__"
