"""What errors around PostgreSQL mean, and what its clock says."""

import logging
import socket
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from mainspring.errors import Conflict, NodeGone, StoreError, StoreUnavailable
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import Skew
from mainspring.stores.postgres.trouble import Kind, kind, translated
from tests.servers.postgres import Server
from tests.stores.postgres_wires import ask, lines, on_real_time, opened, settings

SETTINGS = settings("postgresql://user:secret@host/db")


def of_server(state: str) -> asyncpg.PostgresError:
    return asyncpg.PostgresError.new({"C": state, "M": "so it says", "D": "Key (a)=(private)", "S": "ERROR"})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((of_server(state), Kind.AGAIN) for state in ("40001", "40P01")),
        (asyncpg.InvalidCachedStatementError("cached plan must not change result type"), Kind.AGAIN),
        *((of_server(state), Kind.LOST) for state in ("08006", "08003", "57P01", "57P02", "57P03", "25006", "53300")),
        (TimeoutError(), Kind.LOST),
        (ConnectionResetError(), Kind.LOST),
        (socket.gaierror(), Kind.LOST),
        (asyncpg.InterfaceError("connection is closed"), Kind.LOST),
        (asyncpg.TargetServerAttributeNotMatched("none"), Kind.LOST),
        *((of_server(state), Kind.FINAL) for state in ("42P01", "23505", "22021", "28P01", "53100", "55P03", "57014")),
        (asyncpg.DataError("invalid input"), Kind.FINAL),
        (NodeGone("store", "it left"), Kind.FINAL),
        (KeyError(), Kind.FINAL),
    ],
    ids=str,
)
def test_what_can_be_done_about_it(error: Exception, expected: Kind) -> None:
    assert kind(error) is expected


@pytest.mark.parametrize(
    "state", ["53100", "53200", "53300", "55P03", "57014", "57P01", "25006", "40001", "08006", "58030"]
)
def test_what_may_pass_is_unavailable(state: str) -> None:
    error = of_server(state)
    ours = translated(SETTINGS, error)
    assert isinstance(ours, StoreUnavailable)
    assert ours.__cause__ is error
    assert "so it says" in str(ours)
    assert "private" not in str(ours)


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("42P01", "mainspring migrate"),
        ("3F000", "mainspring migrate"),
        ("42501", "role"),
        ("28P01", "password"),
        ("22021", "value"),
        ("23505", "value"),
        ("3D000", "database"),
        ("XX001", "so it says"),
    ],
)
def test_what_will_not_pass_comes_with_advice(state: str, advice: str) -> None:
    ours = translated(SETTINGS, of_server(state))
    assert isinstance(ours, StoreError)
    assert not isinstance(ours, StoreUnavailable)
    assert advice in str(ours)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("no answer within 1 s"),
        ConnectionRefusedError(),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("x"),
    ],
    ids=repr,
)
def test_what_has_to_do_with_the_network_may_pass(error: Exception) -> None:
    assert isinstance(translated(SETTINGS, error), StoreUnavailable)


@pytest.mark.parametrize("error", [Conflict("a", "b", "c"), KeyError("x"), NodeGone("store", "it left")], ids=repr)
def test_errors_of_ours_and_of_anybody_else_are_their_own(error: Exception) -> None:
    assert translated(SETTINGS, error) is error


@on_real_time
async def test_a_role_that_may_not_is_told_so(postgres: Server, new_schema: str) -> None:
    postgres.sql(f"CREATE SCHEMA {new_schema}; CREATE TABLE {new_schema}.numbers (n integer)")
    role = f"role_{new_schema}"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    async with opened(postgres.dsn(user=role), schema=new_schema) as connections:
        with pytest.raises(StoreError, match="role may not"):
            await connections.run(ask("SELECT n FROM mainspring.numbers"))
    postgres.sql(f"DROP ROLE {role}")


# The clock


class OwnClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.wall = datetime(2030, 1, 1, tzinfo=UTC)
        self.elapsed = 100.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.elapsed

    def pass_(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.elapsed += seconds


def measure(skew: Skew, clock: OwnClock, *, offset: float, there: float = 0.001, back: float = 0.001) -> None:
    """Ask a database for the time whose clock is ahead by so many seconds."""
    before = clock.now()
    clock.pass_(there)
    instant = clock.now() + timedelta(seconds=offset)
    clock.pass_(back)
    skew.sample(before, instant, clock.now())


@pytest.fixture
def clock() -> OwnClock:
    return OwnClock()


def skew_of(clock: OwnClock, *, own_time: bool = False) -> Skew:
    return Skew(Settings(dsn="", clock=clock, own_time=own_time))


def test_the_quickest_answer_counts(clock: OwnClock) -> None:
    skew = skew_of(clock)
    assert skew.now() == clock.now()
    measure(skew, clock, offset=0.25, there=0.001)
    for _ in range(5):
        measure(skew, clock, offset=0.25, there=0.9)  # half of that would be an error of 0.45 s
        assert skew.now() - clock.now() == timedelta(seconds=0.25)


def test_only_the_last_few_count(clock: OwnClock) -> None:
    skew = skew_of(clock)
    measure(skew, clock, offset=0.25)
    for _ in range(8):
        measure(skew, clock, offset=0.5, there=0.01, back=0.01)
    assert skew.now() - clock.now() == timedelta(seconds=0.5)


def test_a_clock_that_was_set_is_measured_anew(clock: OwnClock) -> None:
    skew = skew_of(clock)
    measure(skew, clock, offset=0.0)
    clock.wall += timedelta(seconds=30)
    measure(skew, clock, offset=-30.0, there=0.01, back=0.01)
    assert skew.now() - clock.now() == timedelta(seconds=-30)


@pytest.mark.parametrize("offset", [-60.0, 60.0])
def test_a_database_clock_that_was_set_is_measured_anew(clock: OwnClock, offset: float) -> None:
    skew = skew_of(clock)
    for _ in range(8):
        measure(skew, clock, offset=0.0)
    measure(skew, clock, offset=offset, there=0.5, back=0.5)
    assert skew.now() - clock.now() == timedelta(seconds=offset)


def test_a_clock_that_is_set_back_amid_a_statement_is_no_measure(clock: OwnClock) -> None:
    skew = skew_of(clock)
    skew.sample(clock.now(), clock.now() + timedelta(hours=1), clock.now() - timedelta(seconds=1))
    assert skew.now() == clock.now()


def test_a_clock_far_off_is_told_once_and_so_is_its_mending(clock: OwnClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    skew = skew_of(clock)
    for _ in range(10):
        measure(skew, clock, offset=0.9)
    assert lines(caplog, "clock") == []
    for _ in range(10):
        measure(skew, clock, offset=3.0)
    assert len(lines(caplog, "3.0 s behind the database's")) == 1
    for _ in range(10):
        measure(skew, clock, offset=0.1)
    assert len(lines(caplog, "right again")) == 1
    for _ in range(10):
        measure(skew, clock, offset=-2.0)
    assert len(lines(caplog, "2.0 s ahead of the database's")) == 1
    assert len(lines(caplog, "clock")) == 3


def test_a_slow_answer_is_no_reason_to_warn(clock: OwnClock, caplog: pytest.LogCaptureFixture) -> None:
    skew = skew_of(clock)
    measure(skew, clock, offset=0.0, there=4.0, back=0.0)
    assert lines(caplog, "clock") == []


def test_a_tests_own_time_is_left_alone(clock: OwnClock) -> None:
    skew = skew_of(clock, own_time=True)
    measure(skew, clock, offset=5.0)
    assert skew.now() == clock.now()
