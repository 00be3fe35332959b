"""Arguments by example: which functions can be declared, how calls are stored, laid out again and refused."""

import functools
import inspect
import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import msgspec
import pydantic
import pytest

from mainspring.core.codec import Arguments, Value
from mainspring.core.payload.envelope import Envelope
from mainspring.errors import DeclarationError, PayloadError

if TYPE_CHECKING:
    from decimal import Context as OnlyForCheckers


class Colour(Enum):
    RED = "red"


class Ratio(Enum):
    HALF = 0.5


@dataclass
class Line:
    item: str
    price: float
    notes: Any = None


@dataclass
class Order:
    number: int
    lines: list[Line] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


class Address(TypedDict):
    street: str


class Row(msgspec.Struct):
    first: int


class Item(pydantic.BaseModel):
    name: str


def arguments_of(function: Callable[..., object], **options: Any) -> Arguments:
    return Arguments.of(function, subject="report", **options)


def stored(payload: bytes) -> Any:
    return json.loads(payload)["args"]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# What is stored


def test_arguments_are_stored_by_name_and_only_those_that_were_given() -> None:
    def report(user: int, title: str = "none", *, draft: bool = False) -> None: ...

    codec = arguments_of(report)
    assert codec.encode((7,), {"draft": True}) == b'{"v":1,"args":{"user":7,"draft":true}}'
    assert codec.decode(codec.encode((7,), {})) == ((), {"user": 7})


def test_stored_jobs_outlive_reordered_parameters_and_new_defaults() -> None:
    def before(user: int, title: str) -> None: ...
    def after(title: str, lang: str = "en", *, user: int) -> None: ...

    payload = arguments_of(before).encode((7, "x"), {})
    assert arguments_of(after).decode(payload) == ((), {"title": "x", "user": 7})


def test_lists_and_objects_keep_the_rest_of_the_arguments() -> None:
    def report(first: int, *others: int, **flags: bool) -> None: ...

    codec = arguments_of(report)
    payload = codec.encode((1, 2, 3), {"loud": True})
    assert stored(payload) == {"first": 1, "others": [2, 3], "flags": {"loud": True}}
    assert codec.decode(payload) == ((1, 2, 3), {"loud": True})
    assert codec.decode(codec.encode((1,), {})) == ((), {"first": 1})


# How calls are laid out again


def test_positional_only_parameters_come_back_by_position() -> None:
    def report(a: int, b: int = 2, /, c: int = 3) -> None: ...

    codec = arguments_of(report)
    assert codec.decode(codec.encode((1,), {"c": 5})) == ((1,), {"c": 5})
    assert codec.decode(codec.encode((1, 9), {})) == ((1, 9), {})


def test_what_was_left_out_before_a_given_position_is_filled_with_its_default() -> None:
    def report(a: int = 1, b: int = 2, /, c: int = 3, *rest: int) -> None: ...

    codec = arguments_of(report)
    assert codec.decode(b'{"v":1,"args":{"b":9}}') == ((1, 9), {})
    assert codec.decode(b'{"v":1,"args":{"rest":[7]}}') == ((1, 2, 3, 7), {})


def test_a_name_may_be_both_positional_only_and_an_option() -> None:
    def report(name: int, /, **options: int) -> None: ...

    codec = arguments_of(report)
    assert codec.decode(codec.encode((1,), {"name": 2})) == ((1,), {"name": 2})


def test_injected_parameters_are_no_part_of_the_payload_and_take_no_position() -> None:
    def report(context: "OnlyForCheckers", user: int, *, clock: object) -> None: ...

    codec = arguments_of(report, injected=["context", "clock"])
    payload = codec.encode((7,), {})
    assert stored(payload) == {"user": 7}
    assert codec.decode(payload) == ((), {"user": 7})


def test_an_option_that_became_a_parameter_is_not_passed_unchecked() -> None:
    def before(**options: str) -> None: ...
    def after(limit: int = 3, **options: str) -> None: ...
    def injecting(*, limit: object, **options: str) -> None: ...

    payload = arguments_of(before).encode((), {"limit": "x"})
    for codec in (arguments_of(after), arguments_of(injecting, injected={"limit"})):
        with pytest.raises(PayloadError, match="has become a parameter") as caught:
            codec.decode(payload)
        assert caught.value.path == "options['limit']"


# How calls are refused


@pytest.mark.parametrize(
    ("args", "kwargs", "path", "problem"),
    [
        ((), {}, "place", "missing argument"),
        ((1,), {}, "user", "missing argument"),
        ((1, 2, "t", 4), {}, "", "takes 3 by position, 4 given"),
        ((1, 2), {"user": 3}, "user", "given twice, by position and by keyword"),
        ((), {"place": 1, "user": 3}, "place", "it can be given by position only"),
        ((1, 2), {"titel": "x"}, "titel", "unknown argument; did you mean `title`?"),
        ((1, 2), {"zzz": "x"}, "zzz", "unknown argument"),
        ((1, 2), {"zz z": "x"}, "['zz z']", "unknown argument"),
        ((1, 2), {"title": "x", "zzz": "x"}, "zzz", "unknown argument"),
        ((1, 2), {"context": "x"}, "context", "it is supplied when the job runs; leave it out"),
        ((1, "2"), {}, "user", "expected `int`, got `str`"),
        ((1, 2), {"title": None}, "title", "expected `str`, got `None`"),
    ],
)
def test_a_call_that_python_would_refuse_is_refused_now(
    args: tuple[object, ...], kwargs: dict[str, object], path: str, problem: str
) -> None:
    def report(place: int, /, user: int, title: str = "", *, context: object) -> None: ...

    with pytest.raises(PayloadError) as caught:
        arguments_of(report, injected=["context"]).encode(args, kwargs)
    assert (caught.value.subject, caught.value.path, caught.value.problem) == ("report", path, problem)


def test_the_rest_of_the_arguments_is_checked_one_by_one() -> None:
    def report(*ids: int, **flags: bool) -> None: ...

    codec = arguments_of(report)
    with pytest.raises(PayloadError) as caught:
        codec.encode((1, "2"), {})
    assert caught.value.path == "ids[1]"
    with pytest.raises(PayloadError) as caught:
        codec.encode((), {"loud": 1})
    assert caught.value.path == "flags['loud']"


# Which functions can be declared


def test_any_kind_of_function_will_do() -> None:
    class Reporter:
        def report(self, user: "int", when: "date") -> None: ...

        async def __call__(self, user: "int", when: "date") -> None: ...

    def report(user: "int", when: "date") -> None: ...

    @functools.wraps(report)
    def decorated(*args: Any, **kwargs: Any) -> None: ...

    class Decorated:
        __call__ = decorated

    functions: list[Callable[..., object]] = [
        report,
        decorated,
        Reporter().report,
        Reporter(),
        functools.partial(Reporter.report, Reporter()),
        functools.partial(functools.partial(decorated)),
        functools.partial(report, when=date(2026, 1, 1)),
    ]
    for function in functions:
        codec = arguments_of(function)
        payload = codec.encode((7,), {"when": date(2026, 1, 2)})
        assert codec.decode(payload) == ((), {"user": 7, "when": date(2026, 1, 2)})
        with pytest.raises(PayloadError, match="expected `date`"):
            codec.encode((7,), {"when": "2026-01-02"})


def test_what_a_partial_has_filled_in_need_not_be_given() -> None:
    def report(user: int, title: str, lang: str) -> str:
        return f"{user} {title} {lang}"

    filled = functools.partial(report, 7, lang="en")
    codec = arguments_of(filled)
    args, kwargs = codec.decode(codec.encode(("x",), {}))
    assert filled(*args, **kwargs) == "7 x en"


def test_a_function_written_in_c_has_no_annotations_and_still_binds() -> None:
    codec = arguments_of(divmod)
    assert codec.decode(codec.encode((7, 2), {})) == ((7, 2), {})


def test_annotations_that_are_not_needed_are_not_resolved() -> None:
    def report(user: int, context: "Nowhere") -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821 - the point
        ...

    assert stored(arguments_of(report, injected=["context"]).encode((7,), {})) == {"user": 7}


def undeclarable(function: Callable[..., object], **options: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        arguments_of(function, **options)
    assert caught.value.subject == "report"
    return caught.value.problem


def test_every_bad_parameter_is_named_at_once() -> None:
    def report(good: int, sock: socket.socket, lines: list[Callable[[], None]], *, done: Ratio) -> None: ...

    problem = undeclarable(report)
    assert "parameter `sock`: `socket` cannot be carried; use a dataclass" in problem
    assert "parameter `lines[]`: `Callable` cannot be carried" in problem
    assert "parameter `done`: enums must contain either all str or all int values" in problem
    assert "good" not in problem


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def unknown(user: "OnlyForCheckers") -> None: ...
    def broken(user: "int[", other: "datetime.nope") -> None: ...  # type: ignore[name-defined, valid-type]  # noqa: F722 - the point

    problem = undeclarable(unknown)
    assert problem.startswith("parameter `user`: the name `OnlyForCheckers` in its annotation is not defined; import")
    problem = undeclarable(broken)
    assert "parameter `user`: its annotation cannot be resolved" in problem
    assert "parameter `other`: its annotation cannot be resolved" in problem


def test_a_field_whose_annotation_cannot_be_resolved_is_refused() -> None:
    @dataclass
    class Vague:
        what: "OnlyForCheckers"

    def report(vague: Vague) -> None: ...

    assert undeclarable(report) == (
        "parameter `vague`: the name `OnlyForCheckers` in one of its annotations is not defined"
    )


def test_a_function_without_a_readable_signature_is_refused() -> None:
    assert undeclarable(dict).startswith("its parameters cannot be read")


def test_unpacked_options_are_refused() -> None:
    def report(**options: Unpack[Address]) -> None: ...

    assert "parameter `options`" in undeclarable(report)


def test_an_injected_parameter_must_accept_a_keyword() -> None:
    def positional(context: object, /) -> None: ...
    def before_rest(context: object, *rest: int) -> None: ...
    def rest(*context: object) -> None: ...
    def absent() -> None: ...

    assert "its kind does not allow" in undeclarable(positional, injected=["context"])
    assert "cannot stand before `*`" in undeclarable(before_rest, injected=["context"])
    assert "its kind does not allow" in undeclarable(rest, injected=["context"])
    assert undeclarable(absent, injected=["context"]) == "there is no parameter `context` to inject"


# Which values can be given


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, datetime(2026, 1, 1, tzinfo=UTC), Decimal(1), b"x", Colour.RED, Line("a", 1.0), Item(name="x"), Row(1)],
)
def test_where_no_type_is_declared_only_plain_json_may_stand(value: object) -> None:
    def report(untyped, declared: object = None, lines: list[Line] | None = None) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the point
        ...

    codec = arguments_of(report)
    calls: list[tuple[str, dict[str, object]]] = [
        ("untyped", {"untyped": value}),
        ("untyped[0]['a']", {"untyped": [{"a": value}]}),
        ("declared", {"untyped": 1, "declared": value}),
        ("lines[1].notes", {"untyped": 1, "lines": [Line("a", 1.0), Line("b", 1.0, value)]}),
    ]
    for path, kwargs in calls:
        with pytest.raises(PayloadError, match="annotate it with its type") as caught:
            codec.encode((), kwargs)
        assert caught.value.path == path


def test_a_value_that_holds_itself_is_refused_at_its_argument() -> None:
    loop: list[Any] = []
    loop.append(loop)
    ring: dict[str, Any] = {}
    ring["again"] = [ring]
    tree = Tree("root")
    tree.children.append(tree)

    def report(plain: Any = None, tree: Tree | None = None, deep: tuple[Any, Any] | None = None) -> None: ...

    codec = arguments_of(report)
    calls: list[dict[str, object]] = [
        {"plain": loop},
        {"plain": ring},
        {"tree": tree},
        {"deep": (1, loop)},
        {"plain": nested(101)},
    ]
    for kwargs in calls:
        with pytest.raises(PayloadError, match="nested more than 100 levels deep, or holding itself") as caught:
            codec.encode((), kwargs)
        assert [caught.value.path] == list(kwargs)


def test_a_stack_that_is_nearly_used_up_is_no_recursion_error() -> None:
    def report(plain: Any) -> None: ...

    codecs = arguments_of(report), Value.of(list[Any], subject="result")
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        with pytest.raises(PayloadError) as of_arguments:
            codecs[0].encode((nested(95),), {})
        with pytest.raises(PayloadError) as of_value:
            codecs[1].encode(nested(95))
    finally:
        sys.setrecursionlimit(usual)
    assert of_arguments.value.path == "plain"
    assert of_value.value.path == ""
    assert "nested more than" in of_value.value.problem


# What is read


@pytest.mark.parametrize(
    ("content", "path", "problem"),
    [
        ("{}", "order", "missing argument"),
        ('{"order":{"number":"1"}}', "order.number", "expected `int`, got `str`"),
        ('{"order":{}}', "order.number", "missing field"),
        ('{"order":{"number":1,"nmber":1}}', "order.nmber", "unknown field; did you mean `number`?"),
        ('{"order":{"number":1},"coun":1}', "coun", "unknown argument; did you mean `count`?"),
        ('{"order":{"number":1},"count":null}', "count", "expected `int`, got `null`"),
        ("[]", "", "expected `object`, got `array`"),
    ],
)
def test_stored_arguments_that_do_not_fit_are_refused_at_their_place(content: str, path: str, problem: str) -> None:
    def report(order: Order, count: int = 1) -> None: ...

    with pytest.raises(PayloadError) as caught:
        arguments_of(report).decode(b'{"v":1,"args":%s}' % content.encode())
    assert (caught.value.subject, caught.value.path, caught.value.problem) == ("report", path, problem)


# Plain arguments, which are known to come back.


def test_only_short_plain_arguments_by_position_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(order: int, to: str) -> None: ...

    read: list[object] = []
    codec = Arguments.of(send, subject="send")
    monkeypatch.setattr(Envelope, "_rehearse", lambda *_: read.append(_))

    assert codec.encode((7, "me"), {}) == b'{"v":1,"args":{"order":7,"to":"me"}}'
    assert read == []
    codec.encode((7,), {"to": "me"})
    codec.encode((7, "m" * 1000), {})
    codec.encode((True, "me"), {})
    assert len(read) == 3


@pytest.mark.parametrize(
    ("kind", "is_plain"),
    [
        (int, True),
        (str, True),
        (bool, True),
        (float, False),
        (Any, False),
        (int | None, False),
        (Annotated[int, msgspec.Meta(gt=0)], False),
        (Annotated[int, []], False),
        (Colour, False),
    ],
)
def test_plain_is_what_json_loses_nothing_of(kind: Any, is_plain: bool) -> None:
    def send(order: int, to: object) -> None: ...

    send.__annotations__["to"] = kind

    assert (Arguments.of(send, subject="send").plain is not None) is is_plain


def test_plain_arguments_over_the_limit_are_refused() -> None:
    def send(to: str) -> None: ...

    codec = Arguments.of(send, subject="send", limit=40)

    assert codec.encode(("me",), {}) == b'{"v":1,"args":{"to":"me"}}'
    with pytest.raises(PayloadError, match="54 bytes of JSON, the limit is 40"):
        codec.encode(("m" * 30,), {})
