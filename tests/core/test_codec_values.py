"""Values by example: what fits which type, what is refused and where, and what is said of stored JSON that does not fit."""

import json
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from msgspec import UNSET, Meta, UnsetType

from mainspring.core.codec import Value
from mainspring.errors import DeclarationError, PayloadError

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Rights(Flag):
    READ = 1
    WRITE = 2


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
    shipped: datetime | None = None


@dataclass
class RushOrder(Order):
    pass


@dataclass
class Tree:
    name: str
    children: "list[Tree]" = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    left: int
    right: int


class Point(NamedTuple):
    x: int
    y: int = 0
    line: Line | None = None


class Address(TypedDict):
    street: str
    zip_code: NotRequired[str]
    lines: NotRequired[list[Line]]


Odd = TypedDict("Odd", {"unit price": NotRequired[int], "a.b": NotRequired[dict[str, int]]})


class Renamed(msgspec.Struct, rename="camel", omit_defaults=True):
    unit_price: int = 0
    inner_line: Line | None = None


class Sometimes(msgspec.Struct):
    always: int
    maybe: int | UnsetType = UNSET


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    size: int


class Row(msgspec.Struct, array_like=True):
    first: int
    second: Line | None = None


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[Line]


class North(msgspec.Struct, tag="north", array_like=True):
    miles: int


class South(msgspec.Struct, tag="south", array_like=True):
    lines: list[Line]


class Box(msgspec.Struct, Generic[T]):
    content: T


@dataclass
class Page(Generic[T]):
    items: list[T]


class Item(pydantic.BaseModel):
    name: str
    price: float | None = None
    seen: datetime | None = None
    extra: Any = None


class Basket(pydantic.BaseModel):
    items: list[Item] = []


class Picky(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="allow", validate_by_name=False)

    day: date = pydantic.Field(alias="Day")
    tags: frozenset[str] = frozenset()


class Leaky(pydantic.BaseModel):
    kept: int = 0
    secret: int = pydantic.Field(default=0, exclude=True)


@dataclass
class Parcel:
    items: dict[str, Item]


@dataclass
class Guarded:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("Low is above high")
        if self.low < 0:
            raise LookupError("nothing is below zero")


def refusal(codec: Value[Any], value: object) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        codec.encode(value)
    return caught.value


def reading(codec: Value[Any], content: str) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        codec.decode(b'{"v":1,"value":%s}' % content.encode())
    return caught.value


def value_of(kind: object) -> Value[Any]:
    return Value.of(kind, subject="result of report")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


# Which types can be declared


@dataclass
class Locked:
    lock: socket.socket


@dataclass
class Shelf:
    places: dict[str, tuple[int, list[Locked]]]


@pydantic.dataclasses.dataclass
class Hybrid:
    size: int = pydantic.Field(default=3)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Shelf, "places[][1][].lock: `socket` cannot be carried"),
        (set[complex], "[]: `complex` cannot be carried"),
        (memoryview, "`memoryview` cannot be carried; use `bytes`"),
        (list[msgspec.Raw], "[]: `raw` cannot be carried"),
        (dict[tuple[int, int], int], "keys of this type cannot be carried"),
        (dict[int | str, int], "keys of this type cannot be carried"),
        (dict[bool, int], "keys of this type cannot be carried"),
        (dict[Literal["a", 1], int], "keys of this type cannot be carried"),
        (Order | Line, "type unions may not contain more than one dataclass or attrs type"),
        (Order | Address, "type unions may not contain more than one dict-like type"),
        (datetime | str, "type unions may not contain more than one str-like type"),
        (Item | int, "type unions containing a custom type"),
        (Hybrid, "`Hybrid` is a pydantic dataclass"),
        ("int", "type "),
    ],
)
def test_a_type_that_cannot_be_carried_is_refused_with_the_way_to_it(kind: object, problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        value_of(kind)
    assert caught.value.problem.startswith(problem)


# Which values fit


def test_a_value_is_stored_beside_the_version() -> None:
    assert value_of(list[int]).encode([1, 2]) == b'{"v":1,"value":[1,2]}'


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (float, 3),
        (float | None, 2**53),
        (int | float, 3.0),
        (int, 2**2048 - 1),
        (str, "grüße 🎉 \x00"),
        (Literal[1, "a", True] | None, True),
        (Literal["a"] | str, "b"),  # noqa: PYI051 - redundant, and allowed
        (Literal[1] | float, 2.5),
        (Level | float, 2.5),
        (Decimal | float, 2.5),
        (Decimal | float, Decimal("2.5")),
        (Decimal | int, 2),
        (datetime | int, 2),
        (Rights, Rights.READ | Rights.WRITE),
        (dict[Level, Colour], {Level.LOW: Colour.RED}),
        (dict[Literal["a", "b"], int], {"a": 1}),
        (dict[float, int], {1: 1, 2.5: 1}),
        (set[tuple[float]], {(1,)}),
        (dict, {"a": [1, {}]}),
        (Sequence[int], [1]),
        (Mapping[str, int], {"a": 1}),
        (Any | int, "x"),
        (object, {"a": None}),
        (list[object | None], [1, None]),
        (Annotated[list[int], Meta(max_length=2)], [1, 2]),
        (Annotated[int, Meta(title="the size")], 3),
        (Box[int], Box(3)),
        (Page[int], Page([3])),
        (Box, Box("any")),
        (Renamed, Renamed(unit_price=3, inner_line=Line("a", 1.0))),
        (Renamed, Renamed()),
        (Sometimes, Sometimes(1)),
        (Sometimes, Sometimes(1, 2)),
        (list[Cat | Dog | None], [Cat(9), Dog([Line("sit", 0.0)]), None]),
        (list[North | South], [North(9), South([Line("sit", 0.0)])]),
        (Row, Row(1)),
        (Row, Row(1, Line("a", 1.0))),
        (Point, Point(1)),
        (tuple[int, Line], (1, Line("a", 1.0))),
        (tuple[()], ()),
        (frozenset[time], frozenset({time(1)})),
        (Address, {"street": "x"}),
        (Odd, {"unit price": 3}),
        (Tree, Tree("a", [Tree("b"), Tree("c", [Tree("d")])])),
        (Item, Item(name="x", price=1.5, seen=datetime(2026, 1, 1, tzinfo=UTC), extra={"a": [1]})),
        (dict[str, list[Item | None]], {"a": [Item(name="x"), None]}),
        (Parcel, Parcel({"a": Item(name="x")})),
        (Picky, Picky(Day=date(2026, 1, 1), tags=frozenset({"a"}), more=3)),  # type: ignore[call-arg]  # an extra field
        (Leaky, Leaky(kept=1)),
        (pydantic.RootModel[list[int]], pydantic.RootModel[list[int]]([1, 2])),
        (Any, nested(100)),
        (list[int], list(range(1000))),
        (dict[str, float], {"a": 1.5, "b": 2.5}),
    ],
)
def test_what_goes_in_comes_out(kind: object, value: object) -> None:
    codec = value_of(kind)
    back = codec.decode(codec.encode(value))
    assert back == value
    assert type(back) is type(value) or (type(value), type(back)) == (int, float)


def test_an_aware_datetime_keeps_its_instant_and_offset() -> None:
    codec = value_of(datetime)
    summer = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert codec.decode(codec.encode(summer)).isoformat() == "2026-07-01T12:00:00+02:00"


@pytest.mark.parametrize(
    ("kind", "value", "path", "problem"),
    [
        (int, True, "", "expected `int`, got `bool`"),
        (int, 1.0, "", "expected `int`, got `float`"),
        (int, Level.LOW, "", "expected `int`, got `Level`, which would come back as a mere `int`; convert it first"),
        (float, True, "", "expected `float`, got `bool`"),
        (bool, 1, "", "expected `bool`, got `int`"),
        (str, Colour.RED, "", "expected `str`, got `Colour`; convert it, or annotate it with its type"),
        (str, None, "", "expected `str`, got `None`"),
        (None, 0, "", "expected `None`, got `int`"),
        (datetime, "2026-01-01T00:00:00", "", "expected `datetime`, got `str`"),
        (
            date,
            datetime(2026, 1, 1, tzinfo=UTC),
            "",
            "expected `date`, got `datetime`, which would come back as a mere `date`; convert it first",
        ),
        (time, "12:00", "", "expected `time`, got `str`"),
        (UUID, "0" * 32, "", "expected `UUID`, got `str`"),
        (Decimal, 1, "", "expected `Decimal`, got `int`"),
        (Decimal, 1.5, "", "expected `Decimal`, got `float`"),
        (bytes, "eA==", "", "expected `bytes`, got `str`"),
        (Colour, "red", "", "expected `Colour`, got `str`"),
        (int | None, "1", "", "expected `int | None`, got `str`"),
        (Level | float, 2, "", "expected `Level`, got `int`"),
        (Literal[1, 2], True, "", "expected `int`, got `bool`"),
        (Literal["a", "b"], "c", "", "invalid enum value 'c', from a `str`"),
        (Literal[1] | float, 2, "", "invalid enum value 2, from a `int`"),
        (list[int], (1, 2), "", "expected `list`, got `tuple`; convert it, or annotate it with its type"),
        (Sequence[int], (1, 2), "", "expected `list`, got `tuple`; convert it, or annotate it with its type"),
        (list[int], [1, "2"], "[1]", "expected `int`, got `str`"),
        (list[int], [1, 2**3000], "[1]", "an int of 3001 bits; the limit is 2048"),
        (list[bool], [True, 1], "[1]", "expected `bool`, got `int`"),
        (list[str], ["a", "é", "\udc00"], "[2]", "character 0 is half of a surrogate pair, which UTF-8 cannot hold"),
        (tuple[int, ...], [1], "", "expected `tuple`, got `list`"),
        (tuple[int, str], [1, "a"], "", "expected `tuple`, got `list`"),
        (tuple[int, str], (1,), "", "expected `array` of length 2"),
        (tuple[int, str], (1, 2), "[1]", "expected `str`, got `int`"),
        (set[int], frozenset({1}), "", "expected `set`, got `frozenset`"),
        (set[int], {"a"}, "", "a member: expected `int`, got `str`"),
        (dict[str, int], [("a", 1)], "", "expected `object`, got `list`"),
        (dict[str, int], {"a": 1, "b": "2"}, "['b']", "expected `int`, got `str`"),
        (dict[int, int], {"1": 1}, "", "a key: expected `int`, got `str`"),
        (
            dict[date, list[int]],
            {date(2026, 1, 1): ["x"]},
            "[datetime.date(2026, 1, 1)][0]",
            "expected `int`, got `str`",
        ),
        (Order, {"number": 1}, "", "expected `Order`, got `dict`"),
        (
            Order,
            RushOrder(1),
            "",
            "expected `Order`, got `RushOrder`, which would come back as a mere `Order`; convert it first",
        ),
        (Order, Order(1, [Line("a", 1.0), Line("b", "2")]), "lines[1].price", "expected `float`, got `str`"),  # type: ignore[arg-type]  # the point
        (Address, [], "", "expected `object`, got `list`"),
        (Address, {}, "street", "missing field"),
        (Address, {"street": 1}, "street", "expected `str`, got `int`"),
        (Address, {"street": "x", "zipcode": "1"}, "zipcode", "unknown field; did you mean `zip_code`?"),
        (Address, {"street": "x", 3: "1"}, "[3]", "unknown field"),
        (Odd, {"unit price": "x"}, "['unit price']", "expected `int`, got `str`"),
        (Point, (1, 2), "", "expected `Point`, got `tuple`"),
        (Point, Point(1, y="2"), "y", "expected `int`, got `str`"),  # type: ignore[arg-type]  # the point
        (Renamed, Renamed(unit_price=1.5), "unit_price", "expected `int`, got `float`"),  # type: ignore[arg-type]  # the point
        (Sometimes, Sometimes(UNSET), "always", "missing field"),  # type: ignore[arg-type]  # the point
        (Annotated[int, Meta(ge=5)], 3, "", "expected `int` >= 5"),
        (Annotated[float, Meta(lt=5)], 6, "", "expected `float` < 5.0"),
        (Annotated[list[int], Meta(max_length=1)], [1, 2], "", "expected `array` of length <= 1"),
        (list[Annotated[str, Meta(pattern="^a")]], ["b"], "[0]", "expected `str` matching regex '^a'"),
        (Annotated[datetime, Meta(tz=True)], datetime(2026, 1, 1), "", "expected `datetime` with a timezone component"),  # noqa: DTZ001 - the point
        (Item, {"name": "x"}, "", "expected `Item`, got `dict`"),
    ],
)
def test_a_value_of_another_type_is_refused_at_its_place(kind: object, value: object, path: str, problem: str) -> None:
    error = refusal(value_of(kind), value)
    assert (error.subject, error.path, error.problem) == ("result of report", path, problem)


INFINITE = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("number", INFINITE)
def test_numbers_that_json_does_not_have_are_found_wherever_they_hide(number: float) -> None:
    error = refusal(value_of(Any), [{"a": number}])
    assert (error.path, error.problem) == ("[0]['a']", f"JSON has no {number}")
    assert refusal(value_of(float), number).path == ""
    assert refusal(value_of(list[float]), [1.0, number]).path == "[1]"
    assert refusal(value_of(list[float | None]), [None, number]).path == "[1]"
    assert refusal(value_of(dict[str, float]), {"a": number}).path == "['a']"
    assert refusal(value_of(dict[float, str]), {number: "a"}).problem == f"a key: JSON has no {number}"
    assert refusal(value_of(Order), Order(1, [Line("a", number)])).path == "lines[0].price"
    assert refusal(value_of(Order), Order(1, [Line("a", 1.0, {"b": number})])).path == "lines[0].notes['b']"
    assert refusal(value_of(Basket), Basket(items=[Item(name="a", price=number)])).path == "items[0].price"
    assert refusal(value_of(Decimal), Decimal(number)).problem.endswith("is no number")


@pytest.mark.parametrize(
    ("kind", "value", "path", "problem"),
    [
        (float, 2**53 + 1, "", "an int that no float can hold without loss"),
        (float, 10**400, "", "number out of range"),
        (int, 2**2048, "", "an int of 2049 bits; the limit is 2048"),
        (tuple[int], (10**5000,), "[0]", "an int of 16610 bits; the limit is 2048"),
        (dict[int, int], {10**5000: 1}, "", "a key: an int of 16610 bits; the limit is 2048"),
        (str, "a\ud800", "", "character 1 is half of a surrogate pair, which UTF-8 cannot hold"),
        (
            datetime,
            datetime(1880, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
            "",
            "its time zone or `fold` would be lost: JSON has an offset in whole minutes, or nothing",
        ),
        (
            time,
            time(1, tzinfo=timezone(timedelta(seconds=7))),
            "",
            "its time zone or `fold` would be lost: JSON has an offset in whole minutes, or nothing",
        ),
        (
            time,
            time(1, tzinfo=ZoneInfo("Europe/Berlin")),
            "",
            "its time zone or `fold` would be lost: JSON has an offset in whole minutes, or nothing",
        ),
        (Any, socket.socket, "", "a `type` cannot be written as JSON"),
        (Any, len, "", "a `builtin_function_or_method` cannot be written as JSON"),
        (Any, {"a": Ratio.HALF}, "['a']", "expected `float`, got `Ratio`; convert it, or annotate it with its type"),
        (Any, {1: 2}, "", "a key: expected `str`, got `int`"),
        (Any, {"\ud800": 2}, "", "a key: character 0 is half of a surrogate pair, which UTF-8 cannot hold"),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused(kind: object, value: object, path: str, problem: str) -> None:
    error = refusal(value_of(kind), value)
    assert (error.path, error.problem) == (path, problem)


@dataclass(eq=False)
class Unequal:
    size: int
    rest: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    levels: tuple[Level, ...] = ()


@dataclass
class Growing:
    size: int

    def __post_init__(self) -> None:
        self.size += 1


class Moon(tzinfo):
    def utcoffset(self, _moment: datetime | None) -> timedelta:
        raise LookupError("no such place")

    dst = tzname = utcoffset  # type: ignore[assignment]  # never asked


class Quarrel(Enum):
    A = "a"

    def __eq__(self, other: object) -> bool:
        raise LookupError("equal to nobody")

    __hash__ = None  # type: ignore[assignment]  # the point


class Hoarder(pydantic.BaseModel):
    things: dict[str, int] = {}

    @pydantic.field_validator("things")
    @classmethod
    def one_more(cls, things: dict[str, int]) -> dict[str, int]:
        return {**things, str(len(things)): 1}


class Sealed(pydantic.BaseModel):
    places: deque[Path] = deque()
    number: complex = 0j
    by_name: dict[str, int] = {}

    @pydantic.field_serializer("by_name")
    def in_order(self, by_name: dict[str, int]) -> dict[str, int]:
        return dict(sorted(by_name.items()))


BERLIN = ZoneInfo("Europe/Berlin")
AMBIGUOUS = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (datetime, AMBIGUOUS),
        (datetime, AMBIGUOUS.replace(fold=1)),
        (dict[datetime, int], {AMBIGUOUS: 1}),
        (set[datetime], {AMBIGUOUS}),
        (Unequal, Unequal(1, [2])),
        (set[Frozen], {Frozen((Level.LOW,)), Frozen()}),
        (Quarrel, Quarrel.A),
        (Sealed, Sealed(places=deque([Path("a")]), number=1j, by_name={"b": 1, "a": 2})),
        (dict[float, int], {-0.0: 1}),
        (list[list[int]], [[1000]] * 2),
        (set[tuple[float]], {(1.0,)}),
    ],
)
def test_a_value_need_not_be_equal_to_what_comes_back(kind: object, value: object) -> None:
    codec = value_of(kind)
    payload = codec.encode(value)
    assert codec.encode(codec.decode(payload)) == payload


@pytest.mark.parametrize(
    ("kind", "value", "path", "problem"),
    [
        (datetime, datetime(2026, 10, 25, 2, 30, fold=1), "", "its time zone or `fold` would be lost"),  # noqa: DTZ001 - the point
        (datetime, datetime(2026, 1, 1, tzinfo=Moon()), "", "cannot be written as JSON: no such place"),
        (Growing, Growing(1), "size", "does not come back from JSON as it went in"),
        (Unequal, Unequal(1, [(2,)]), "rest[0]", "expected `list`, got `tuple`"),
        (set[tuple[Level]], {(1,)}, "", "a member: expected `Level`, got `int`"),
        (dict[int, int], {Level.LOW: 1}, "", "a key: expected `int`, got `Level`, which would come back as a mere"),
        (dict[int, int], {date(2026, 1, 1): 1}, "", "a key: expected `int`, got `date`"),
        (Any, {True: 1}, "", "a key: a `bool` cannot be written as JSON"),
        (Any, {1: 2, "1": 3}, "[1]", "unknown field"),
        (list[Row], [Row("x")], "[0].first", "expected `int`, got `str`"),  # type: ignore[arg-type]  # the point
        (South, South([Line("a", "b")]), "lines[0].price", "expected `float`, got `str`"),  # type: ignore[arg-type]  # the point
        (Sealed, Sealed.model_construct(by_name={"a": True}), "by_name['a']", "expected `int`, got `bool`"),
        (Sealed, Sealed.model_construct(number=True), "number", "Input should be a valid python complex"),
        (Hoarder, Hoarder(things={"a": 1}), "things", "does not come back from JSON as it went in"),
        (UUID, "x", "", "invalid UUID, from a `str`"),
        (datetime, type("Moment", (datetime,), {})(2026, 1, 1), "", "expected `datetime`, got `Moment`, which would"),
        (dict[str, int], type("Names", (dict,), {})(a=1), "", "expected `dict`, got `Names`, which would come back"),
        (list[Guarded], [Guarded(1, 2), Guarded.__new__(Guarded)], "[1].low", "missing field"),
        (Any, msgspec.Raw(b"1}"), "", "cannot be read back and compared: DecodeError"),
        (Any, deque([1]), "", "a `deque` cannot be written as JSON"),
    ],
)
def test_what_would_not_come_back_is_refused(kind: object, value: object, path: str, problem: str) -> None:
    error = refusal(value_of(kind), value)
    assert (error.path, error.problem[: len(problem)]) == (path, problem)


def test_a_key_that_cannot_be_shown_is_left_out_of_the_path() -> None:
    assert refusal(value_of(dict[int, list[int]]), {2**2000: ["x"], 1: []}).path == f"[{2**2000}][0]"
    assert refusal(value_of(Any), {10**5000: socket.socket}).problem.startswith("a key: an int of 16610 bits")


def test_what_cannot_be_written_is_too_deep_where_it_lies_too_deep() -> None:
    deep: Any = len
    for _ in range(100):
        deep = [deep]
    assert refusal(value_of(Any), deep).problem == "a `builtin_function_or_method` cannot be written as JSON"
    assert refusal(value_of(Any), [deep]).problem.startswith("nested more than 100 levels deep")


def test_a_default_does_not_stand_in_for_a_field_that_was_deleted() -> None:
    bare = Frozen()
    object.__delattr__(bare, "levels")
    assert refusal(value_of(list[Frozen]), [bare]).problem == "missing field"
    assert refusal(value_of(list[Frozen]), [bare]).path == "[0].levels"


def test_a_field_that_was_deleted_is_missing() -> None:
    broken = Slotted(1, 2)
    del broken.right
    error = refusal(value_of(list[Slotted]), [broken])
    assert (error.path, error.problem) == ("[0].right", "missing field")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[int], [1]),
        (tuple[int], (1,)),
        (set[int], {1}),
        (dict[str, int], {"a": 1}),
        (Address, {"street": "x"}),
        (Slotted, Slotted(1, 2)),
    ],
)
def test_every_container_counts_its_level(kind: object, value: object) -> None:
    for _ in range(99):
        value, kind = [value], GenericAlias(list, (kind,))
    assert value_of(kind).encode(value)
    error = refusal(value_of(GenericAlias(list, (kind,))), [value])
    assert error.problem == "nested more than 100 levels deep, or holding itself"


def test_a_payload_over_the_limit_is_refused_with_both_sizes() -> None:
    codec = Value.of(str, subject="note", limit=100)
    assert len(codec.encode("x" * 82)) == 100
    with pytest.raises(PayloadError) as caught:
        codec.encode("x" * 83)
    assert caught.value.path == ""
    assert caught.value.problem.startswith("101 bytes of JSON, the limit is 100;")


# Pydantic models


def test_a_model_that_would_not_come_back_the_same_is_refused() -> None:
    unvalidated = Item(name="x")
    unvalidated.seen = "2026-01-01T00:00:00"  # type: ignore[assignment]  # pydantic does not look at assignments
    assert refusal(value_of(Item), unvalidated).path == "seen"
    assert refusal(value_of(list[Leaky]), [Leaky(secret=3)]).path == "[0].secret"
    incomplete = Basket.model_construct(items=[Item.model_construct(price=1.0)])
    error = refusal(value_of(Parcel), Parcel({"a": Item.model_construct(name=3)}))
    assert (error.path, error.problem) == ("items['a'].name", "Input should be a valid string")
    error = refusal(value_of(Basket), incomplete)
    assert (error.path, error.problem) == ("items[0].name", "Field required")
    assert refusal(value_of(Item), Item(name="x", extra=(1, 2))).path == "extra"
    itself = Item(name="x")
    itself.extra = itself
    assert "Circular reference" in refusal(value_of(Item), itself).problem


def test_a_model_whose_own_code_fails_is_refused() -> None:
    moods: list[int] = []
    failures = 99

    class Moody(pydantic.BaseModel):
        mood: int

        @pydantic.field_serializer("mood")
        def show(self, mood: int) -> int:
            moods.append(mood)
            if len(moods) <= failures:
                raise RuntimeError("not today")
            return mood

    codec = value_of(list[Moody])
    error = refusal(codec, [Moody(mood=1)])
    assert error.path == "[0]"
    assert error.problem.startswith("cannot be written as JSON: ")
    moods, failures = [], 1  # it fails when it is written, and not again when the culprit is looked for
    error = refusal(codec, [Moody(mood=1)])
    assert error.path == ""
    assert error.problem.startswith("cannot be written as JSON: ")


def test_a_model_says_where_stored_json_does_not_fit_it() -> None:
    error = reading(value_of(Parcel), '{"items":{"a":{"name":"x"},"b":{"name":3}}}')
    assert (error.path, error.problem) == ("items['b'].name", "Input should be a valid string")
    error = reading(value_of(dict[str, Basket]), '{"a":{"items":[{"name":"x"},{}]}}')
    assert (error.path, error.problem) == ("['a'].items[1].name", "Field required")


def test_the_codec_does_not_import_pydantic() -> None:
    program = "import sys, mainspring.core.codec as c; c.Value.of(list[int], subject='x'); assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


# What is read


@pytest.mark.parametrize(
    ("payload", "path", "problem"),
    [
        (b"", "", "this is no JSON: Input data was truncated"),
        (b"\x80\x04K\x01.", "", "this is no JSON: JSON is malformed"),
        (b'{"v":1,"value":"\xff"}', "", "this is no JSON: 'utf-8' codec"),
        (b'{"v":1,"value":NaN}', "", "this is no JSON: JSON is malformed"),
        (b'{"v":1,"value":"\\ud800 and more"}', "", "this is no JSON: JSON is malformed"),
        (b"[]", "", 'this is no payload: expected {"v":1,"value":…}'),
        (b'{"value":1}', "", "this is no payload"),
        (b'{"v":1}', "", "this is no payload"),
        (b'{"v":1,"args":{}}', "", "this is no payload"),
        (b'{"v":1,"value":1,"more":1}', "", "this is no payload"),
        (b'{"v":0,"value":1}', "", "this is no payload"),
        (b'{"v":"2","value":1}', "", "this is no payload"),
        (b'{"v":2,"content":1}', "", "a newer version of Mainspring wrote this (format 2); this one reads format 1"),
        (b"[" * 100_000, "", "nested more than 100 levels deep"),
        (b'{"v":1,"value":3}', "", "expected `str`, got `int`"),
    ],
)
def test_what_is_no_envelope_is_refused(payload: bytes, path: str, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        value_of(str).decode(payload)
    assert caught.value.path == path
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("kind", "content", "path", "problem"),
    [
        (int, "true", "", "expected `int`, got `bool`"),
        (float, "1e999", "", "number out of range"),
        (list[int], "[1,1%s]" % ("0" * 5000), "[1]", "integer value out of range"),
        (dict[str, list[Any]], '{"a":[1e999]}', "[...][0]", "number out of range"),
        (list[int], '[1,"2"]', "[1]", "expected `int`, got `str`"),
        (dict[int, int], '{"a":1}', "", "a key: expected `int`, got `str`"),
        (dict[str, list[int]], '{"a":[],"b":[1,"x"],"c":["y"]}', "['b'][1]", "expected `int`, got `str`"),
        (dict[str, dict[str, int]], '{"a":{"b":1},"c":{"d":1,"e":null}}', "['c']['e']", "expected `int`, got `null`"),
        (dict[str, list[Guarded]], '{"a":[],"b":[{"low":2,"high":1}]}', "['b'][0]", "Low is above high"),
        (dict[str, list[Guarded]], '{"a":[],"b":[{"low":-1,"high":1}]}', "", "cannot be read: LookupError: nothing"),
        (Order, '{"lines":[]}', "number", "missing field"),
        (Order, '{"number":1,"lines":[{"item":"a"}]}', "lines[0].price", "missing field"),
        (Order, '{"number":1,"lines":[{"item":"a","price":"1"}]}', "lines[0].price", "expected `float`, got `str`"),
        (Order, '{"number":1,"line":[]}', "line", "unknown field; did you mean `lines`?"),
        (Order, '{"number":1,"lines":[{"item":"a","price":1,"x":1}]}', "lines[0].x", "unknown field"),
        (Order, '{"number":1,"lines":{}}', "lines", "expected `array`, got `object`"),
        (Order, "[]", "", "expected `object`, got `array`"),
        (dict[str, Order], '{"a":{"number":1,"x":1}}', "['a'].x", "unknown field"),
        (dict[str, Order], "[]", "", "expected `object`, got `array`"),
        (set[Point], "[[1,2],[1,2,null,4]]", "[1][3]", "unknown field"),
        (Point, '[1,2,{"item":"a","price":1,"x":1}]', "[2].x", "unknown field"),
        (Row, '[1,{"item":"a","price":1,"x":1}]', "[1].x", "unknown field"),
        (Row, "[1,null,3]", "[2]", "unknown field"),
        (Row, '{"first":1}', "", "expected `array`, got `object`"),
        (tuple[int, Line], '[1,{"item":"a","price":1,"x":1}]', "[1].x", "unknown field"),
        (Address, '{"street":"x","town":"y"}', "town", "unknown field"),
        (Address, '{"street":"x","lines":[{"item":"a","price":1,"x":1}]}', "lines[0].x", "unknown field"),
        (Strict, '{"size":1,"sise":1}', "sise", "unknown field; did you mean `size`?"),
        (Renamed, '{"unit_price":1}', "unit_price", "unknown field; did you mean `unitPrice`?"),
        (Renamed, '{"innerLine":{"item":"a","price":1,"x":1}}', "innerLine.x", "unknown field"),
        (Cat, '{"lives":9,"type":"cat","x":1}', "x", "unknown field"),
        (Cat, '{"lives":9,"x":1}', "x", "unknown field"),
        (Cat | Dog, '{"type":"dog","tricks":[{"item":"a","price":1,"x":1}]}', "tricks[0].x", "unknown field"),
        (Cat | Dog, '{"type":"cow"}', "type", "invalid value 'cow'"),
        (North | South, '["south",[{"item":"a","price":1,"x":1}]]', "[1][0].x", "unknown field"),
        (North | South, '["north",1,2]', "[2]", "unknown field"),
        (Odd, '{"unit price":"x"}', "['unit price']", "expected `int`, got `str`"),
        (Odd, '{"a.b":{"c":"x"}}', "a.b[...]", "expected `int`, got `str`"),
        (Tree, '{"name":"a","children":[{"name":"b","x":1}]}', "children[0].x", "unknown field"),
    ],
)
def test_stored_json_that_does_not_fit_is_refused_at_its_place(
    kind: object, content: str, path: str, problem: str
) -> None:
    error = reading(value_of(kind), content)
    assert (error.subject, error.path) == ("result of report", path)
    assert error.problem.startswith(problem)


def test_json_nested_too_deeply_for_the_search_is_no_recursion_error() -> None:
    content = '{"name":"a","children":[' * 400 + "]}" * 400
    error = reading(value_of(Tree), content)
    assert error.problem == "nested more than 100 levels deep, or holding itself"


def test_the_entry_to_blame_is_found_among_many() -> None:
    entries = {f"key{number}": number for number in range(5000)}
    content = json.dumps({**entries, "key3210": "x", "key4000": "y"})
    assert reading(value_of(dict[str, int]), content).path == "['key3210']"


def test_where_a_list_of_records_may_be_none_none_has_no_strangers() -> None:
    orders: Value[Any] = Value.of(list[Order] | None, subject="orders")
    assert orders.decode(orders.encode(None)) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order | list[Order], Order(1)),
        (Order | list[Order], [Order(1), Order(2)]),
        (list[Address] | dict[str, dict[str, int]], {"k": {"n": 1}}),
    ],
)
def test_what_is_searched_is_what_is_there_and_not_another_member_of_the_union(kind: object, value: object) -> None:
    codec: Value[Any] = Value.of(kind, subject="either")
    assert codec.decode(codec.encode(value)) == value


def test_members_of_a_set_find_their_twins_in_an_ambiguous_hour() -> None:
    hours = frozenset((datetime(2026, 10, 25, 2, minute, tzinfo=BERLIN), minute) for minute in range(0, 60, 7))
    codec: Value[Any] = Value.of(frozenset[tuple[datetime, int]], subject="hours")
    assert len(codec.decode(codec.encode(hours))) == len(hours)


def test_a_model_that_comes_back_with_more_than_it_had_is_refused() -> None:
    class Loose(pydantic.BaseModel, extra="allow"):
        some: int = pydantic.Field(default=1, serialization_alias="out")

    with pytest.raises(PayloadError):
        Value.of(Loose, subject="loose").encode(Loose())
