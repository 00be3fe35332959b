"""The parameters of a function as the payload of its jobs: which there are, how calls bind to them, how to call again.

Arguments are kept by name, so that parameters may change places or gain defaults while jobs wait. Injected parameters
are supplied by keyword when the job runs and are no part of the payload; positions are counted without them.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from types import GenericAlias, SimpleNamespace
from typing import Any, TypeAlias, get_type_hints

from mainspring.core.payload.misfit import Misfit, field_step, missing, unknown
from mainspring.errors import DeclarationError

Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""What stands in the brackets of a call: `function(*call[0], **call[1])`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What a function takes, without what is injected."""

    positional: tuple[str, ...]
    """Those that can be given by position, in order."""
    only_positional: tuple[str, ...]
    """Those that can be given in no other way: the first few of `positional`."""
    keywords: frozenset[str]
    """Those that can be given by keyword."""
    required: frozenset[str]
    defaults: Mapping[str, object]
    rest: str | None
    """The name behind `*`."""
    options: str | None
    """The name behind `**`."""
    injected: frozenset[str]
    hints: Mapping[str, object]
    """The type of each as the payload keeps it: `list[int]` for `*ids: int`."""

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Give each argument its name, or raise `Misfit`. `inspect.Signature.bind` takes four times as long."""
        bound: dict[str, object] = dict(zip(self.positional, args, strict=False))
        if len(args) > len(self.positional):
            if self.rest is None:
                raise Misfit(f"takes {len(self.positional)} by position, {len(args)} given")
            bound[self.rest] = list(args[len(self.positional) :])
        if kwargs:
            if kwargs.keys() <= self.keywords and bound.keys().isdisjoint(kwargs):
                bound.update(kwargs)
            else:
                self._bind_one_by_one(bound, kwargs)
        if len(bound) < len(self.hints) and not self.required <= bound.keys():
            raise missing("argument", next(name for name in self.hints if name in self.required - bound.keys()))
        return bound

    def _bind_one_by_one(self, bound: dict[str, object], kwargs: Mapping[str, object]) -> None:
        """Give keywords their names where some are options, or wrong."""
        options: dict[str, object] = {}
        for name, value in kwargs.items():
            if name in self.injected:
                raise Misfit("it is supplied when the job runs; leave it out", field_step(name))
            if name in self.keywords and name in bound:
                raise Misfit("given twice, by position and by keyword", field_step(name))
            if name in self.keywords:
                bound[name] = value
            elif self.options is not None:
                bound[self.options] = options
                options[name] = value
            elif name in self.only_positional:
                raise Misfit("it can be given by position only", field_step(name))
            else:
                raise unknown("argument", name, self.keywords)

    def call(self, given: dict[str, Any]) -> Call:
        """Lay out named arguments as a call, to which injected ones can be added by keyword."""
        if not self.only_positional and self.rest is None and self.options is None:
            return (), given
        rest = given.pop(self.rest, []) if self.rest is not None else []
        options = given.pop(self.options, {}) if self.options is not None else {}
        for name in options:
            if name in self.keywords or name in self.injected:
                raise Misfit("this name has become a parameter of its own since", f"{self.options}[{name!r}]")
        # Before `*rest` nothing may be left out, so what was not given is given with its default.
        leading = self.positional if rest else self._leading(given)
        args = [given.pop(name) if name in given else self.defaults[name] for name in leading]
        return (*args, *rest), {**given, **options}

    def _leading(self, given: Mapping[str, object]) -> Sequence[str]:
        """The positional-only parameters up to the last that was given."""
        count = max((place for place, name in enumerate(self.only_positional, 1) if name in given), default=0)
        return self.only_positional[:count]


def read_signature(function: Callable[..., object], *, subject: str, injected: Collection[str]) -> Signature:
    """Read what a function takes, or raise `DeclarationError` with everything that stands against it."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise DeclarationError(subject, f"its parameters cannot be read: {error}") from error
    problems = [problem for name in injected if (problem := _against_injecting(name, parameters))]
    own = [parameter for name, parameter in parameters.items() if name not in injected]
    hints: dict[str, object] = {}
    for parameter in own:
        try:
            hints[parameter.name] = _hint(parameter, function)
        except Misfit as misfit:
            problems.append(f"parameter `{parameter.name}`: {misfit.problem}")
    if problems:
        raise DeclarationError(subject, "; ".join(problems))
    return _signature(own, hints, frozenset(injected))


def _signature(parameters: Collection[Parameter], hints: Mapping[str, object], injected: frozenset[str]) -> Signature:
    only_positional = _of_kind(parameters, Parameter.POSITIONAL_ONLY)
    either = _of_kind(parameters, Parameter.POSITIONAL_OR_KEYWORD)
    keywords = frozenset(either + _of_kind(parameters, Parameter.KEYWORD_ONLY))
    named = keywords.union(only_positional)
    return Signature(
        positional=only_positional + either,
        only_positional=only_positional,
        keywords=keywords,
        required=frozenset(p.name for p in parameters if p.name in named and p.default is p.empty),
        defaults={p.name: p.default for p in parameters if p.default is not p.empty},
        rest=next(iter(_of_kind(parameters, Parameter.VAR_POSITIONAL)), None),
        options=next(iter(_of_kind(parameters, Parameter.VAR_KEYWORD)), None),
        injected=injected,
        hints=hints,
    )


def _of_kind(parameters: Collection[Parameter], kind: object) -> tuple[str, ...]:
    return tuple(parameter.name for parameter in parameters if parameter.kind is kind)


def _against_injecting(name: str, parameters: Mapping[str, Parameter]) -> str | None:
    if name not in parameters:
        return f"there is no parameter `{name}` to inject"
    kinds = {parameter.kind for parameter in parameters.values()}
    match parameters[name].kind:
        case Parameter.KEYWORD_ONLY:
            return None
        case Parameter.POSITIONAL_OR_KEYWORD if Parameter.VAR_POSITIONAL not in kinds:
            return None
        case Parameter.POSITIONAL_OR_KEYWORD:
            return f"parameter `{name}` is injected by keyword and cannot stand before `*`; move it behind"
        case _:
            return f"parameter `{name}` is injected by keyword, which its kind does not allow; make it keyword-only"


def _hint(parameter: Parameter, function: Callable[..., object]) -> object:
    """The type of a parameter as the payload keeps it. Only its own annotation is resolved.

    A return type, or the type of something injected, may well be importable for type checkers only.
    """
    if parameter.annotation is parameter.empty:
        hint: object = Any
    else:
        hint = _resolved(parameter.annotation, _written_in(function))
    match parameter.kind:
        case Parameter.VAR_POSITIONAL:
            return GenericAlias(list, (hint,))
        case Parameter.VAR_KEYWORD:
            return GenericAlias(dict, (str, hint))
        case _:
            return hint


def _resolved(annotation: object, source: object) -> object:
    names = getattr(source, "__globals__", {})
    type_parameters = {parameter.__name__: parameter for parameter in getattr(source, "__type_params__", ())}
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, names, type_parameters, include_extras=True)["it"]
    except NameError as error:
        advice = "import it outside `if TYPE_CHECKING`, or define it in the module"
        raise Misfit(f"the name `{error.name}` in its annotation is not defined; {advice}") from error
    except Exception as error:  # an annotation is code, which may raise anything
        raise Misfit(f"its annotation cannot be resolved: {error}") from error


def _written_in(function: object) -> object:
    """The function whose signature Python shows: behind partials and decorators, or the method of an object."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return function if hasattr(function, "__globals__") else type(function).__call__
