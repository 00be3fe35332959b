"""Finding the app that a command is about: "MODULE:APP", imported as from a script in the current folder.

What a user's module does while it is imported is the user's own: its errors are shown as they are, in one line and with
the place in the user's code where they came from.
"""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

from mainspring.app import Mainspring
from mainspring.cli.codes import Code
from mainspring.cli.root import Refusal

_OURS: Final = Path(__file__).resolve().parents[1]


class NoApp(Refusal):
    """There is no app where one was said to be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Code.USAGE)


def load_app(target: str, *, debug: bool = False) -> Mainspring:
    """Import the module and return the app; raises `NoApp`, or with `debug` whatever the module raised."""
    name, colon, path = target.partition(":")
    if not name or (colon and not path):
        raise NoApp(f"{target!r} names no app; write MODULE:APP, as in myapp:app")
    if name.endswith(".py"):
        where = ".".join(Path(name).with_suffix("").parts)
        raise NoApp(f"{name!r} is a file; write MODULE:APP, as in {where}:{path or 'app'}")
    module = _imported(name, debug=debug)
    if not colon:
        raise NoApp(f"{target!r} names no app; write MODULE:APP. {_found(name, module)}")
    found = _within(module, path, lambda: _found(name, module))
    if not isinstance(found, Mainspring):
        raise NoApp(f"{target} is no Mainspring, but {type(found).__name__}. {_found(name, module)}")
    return found


def load_named(target: str) -> object:
    """Import the module and return whatever it has under that name; raises `NoApp`."""
    name, _, path = target.partition(":")
    if not name or not path:
        raise NoApp(f"{target!r} names nothing; write MODULE:NAME")
    return _within(_imported(name, debug=False), path, lambda: "Look how it is called there")


def _within(module: ModuleType, path: str, advice: Callable[[], str]) -> object:
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise NoApp(f"{module.__name__} has no {path!r}. {advice()}")
        found = getattr(found, part)
    return found


def _imported(name: str, *, debug: bool) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise NoApp(f"there is no module {error.name!r} in {here} or on Python's path") from None
        if debug:
            raise
        raise NoApp(f"{name} cannot be imported: {told(error)}") from error


def _found(name: str, module: ModuleType) -> str:
    apps = [f"{name}:{key}" for key, value in vars(module).items() if isinstance(value, Mainspring)]
    return f"Found there: {', '.join(sorted(apps))}" if apps else f"There is no Mainspring in {name}"


def told(error: BaseException) -> str:
    """Say an error in one line, with the place in the user's code where it came from."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    text = " ".join(f"{type(error).__name__}: {said}".rstrip(": ").split())
    if isinstance(error, SyntaxError):
        return f"{text} ({error.filename}:{error.lineno})"
    return f"{text}{place_of(error)}"


def place_of(error: BaseException) -> str:
    """Say where in the user's code an error came from, in brackets; nothing, if it came from elsewhere."""
    places = [place for place in traceback.extract_tb(error.__traceback__) if not _is_machinery(place.filename)]
    return f" ({places[-1].filename}:{places[-1].lineno})" if places else ""


def _is_machinery(filename: str) -> bool:
    return filename.startswith("<frozen") or Path(filename).resolve().is_relative_to(_OURS) or "importlib" in filename
