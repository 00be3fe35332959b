"""Which store an app gets, and what it is told when there is none."""

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.app import Mainspring
from mainspring.client.urls import source_of
from mainspring.clock import SystemClock
from mainspring.errors import DeclarationError, StoreClosed
from mainspring.stores.memory import MemoryStore
from mainspring.stores.sqlite import SqliteStore


def test_a_relative_path_stays_where_the_program_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = source_of("sqlite:///jobs.db")
    monkeypatch.chdir("/")

    assert source.name == f"sqlite {tmp_path / 'jobs.db'}"
    assert isinstance(source.make(SystemClock()), SqliteStore)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/jobs.db", "/var/lib/jobs.db"),
        ("SQLite:////var/lib/jobs.db", "/var/lib/jobs.db"),
        ("sqlite:////var/my%20jobs%3F.db", "/var/my jobs?.db"),
        ("sqlite:////var/a#b.db", "/var/a#b.db"),
        ("sqlite:////var/jobs.db?durable=false", "/var/jobs.db"),
        ("sqlite:///~/jobs.db", str(Path.home() / "jobs.db")),
    ],
)
def test_paths_are_read_from_urls(url: str, path: str) -> None:
    assert source_of(url).name == f"sqlite {path}"


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("jobs.db", 'a file is written "sqlite:///jobs.db"'),
        ("/var/lib/jobs.db", 'a file is written "sqlite:////var/lib/jobs.db"'),
        ("", "it has no scheme"),
        ("postgres:/shop", 'write "postgresql://user@host/database"'),
        ("host=db user=ada password=secret dbname=jobs", 'write "postgresql://user@host/database"'),
        ("postgresql://ada:secret@db:port/jobs", "a port is a number"),
        ("postgresql://ada:sec#ret@db/jobs", "are written %2F"),
        ("sqlite://jobs.db", 'write "sqlite:///jobs.db", or four slashes for /jobs.db'),
        ("sqlite:///", 'it names no file; write "sqlite:///jobs.db"'),
        ("sqlite://", 'it names no file; write "sqlite:///jobs.db"'),
        ("sqlite:///:memory:", 'write "memory://"'),
        ("sqlite:///folder/", "add the name of the file"),
        ("sqlite:///jobs.db?durable=perhaps", "durable is true or false, not 'perhaps'"),
        ("sqlite:///jobs.db?durabel=true", "there is no option 'durabel'"),
        ("memory://mine", "each app has a store of its own"),
        ("postgresql://ada:sec/ret@db/jobs", "are written %2F"),
        ("postgresql://ada:secret@db/jobs?connections=1", "at least 2, not '1'"),
        ("postgresql://ada:secret@db/jobs?timeout=soon", "timeout is a length of time like 5s, not 'soon'"),
        ("postgresql://ada:secret@db/jobs?schema=public", "give Mainspring one of its own"),
        ("postgresql://ada:secret@db/jobs?schema=a'b", "letters, digits and _"),
        ("postgresql+asyncpg://ada:secret@db/jobs", 'write "postgresql://"'),
        ("redis://:secret@localhost", "no store is known for redis://; supported are"),
    ],
)
def test_a_wrong_url_says_what_would_be_right(url: str, advice: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        Mainspring(url)

    assert advice in str(raised.value)
    assert "secret" not in str(raised.value)


SPELLINGS = (
    "host=db user=app password={} dbname=jobs",
    "postgresql:/app:{}@db/jobs",
    "postgresql//app:{}@db/jobs",
    "postgresql:app:{}@db/jobs",
    "app:{}@db/jobs",
    "{}@db/jobs",
    "postgresql://app:{}@db/jobs",
    "postgresql://app:{}[x]y@db/jobs",
    "postgresql://app:x[{}]y@db/jobs",
    "postgresql://app:{}\N{FULLWIDTH COLON}x@db/jobs",
    "postgresql://app:{}#more@db/jobs",
    "postgresql://app:{}/more@db/jobs",
    "postgresql://app:{}?more@db/jobs",
    "postgresql://app:{}@more@db/jobs",
    "postgresql://app:{}/jobs",
    "postgresql://db:{}/jobs",
    "postgresql://one:5432,db:{}/jobs",
    "postgresql://app:{}@db:port/jobs",
    "postgresql://app:{}@[::1/jobs",
    "postgresql://db/jobs?user=app&password={}",
    "postgresql://db/jobs?user=app&password={}&timeout=soon",
    "postgresql+asyncpg://app:{}@db/jobs",
    "redis://app:{}@db/jobs",
    "app:{}@db://jobs",
    "sqlite://app:{}@db",
    "sidecar://app:{}@db",
)
PASSWORDS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=12).map("S3cret".__add__)


@given(spelling=st.sampled_from(SPELLINGS), password=PASSWORDS)
def test_no_password_of_a_url_is_printed(spelling: str, password: str) -> None:
    """In the name of the store or in an error, with its causes, however the URL is misspelt."""
    url = spelling.format(password)
    try:
        shown = source_of(url).name
    except DeclarationError as error:
        shown = "".join(traceback.format_exception(error))

    assert "S3cret" not in shown


class Dsn:
    """A URL object as settings libraries have it, with the password in its repr."""

    def __repr__(self) -> str:
        return "Dsn('postgresql://app:S3cret@db/jobs')"


@pytest.mark.parametrize(
    "given", [Dsn(), b"postgresql://app:S3cret@db/jobs", Path("postgresql://app:S3cret@db/jobs")], ids=type
)
def test_an_object_that_is_no_url_is_named_by_its_type(given: object) -> None:
    with pytest.raises(DeclarationError, match=f"not a {type(given).__name__}") as raised:
        Mainspring(given)  # type: ignore[arg-type]  # what the test is about

    assert "S3cret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://app:secret@db/jobs", "postgresql db/jobs"),
        ("postgresql://app:se@cret@db:5433/jobs", "postgresql db:5433/jobs"),
        ("postgresql://app@one,two:5433/jobs", "postgresql one,two:5433/jobs"),
        ("postgresql://app@[::1]:5433/jobs", "postgresql [::1]:5433/jobs"),
        ("postgresql:///jobs?host=/run/postgresql", "postgresql /jobs"),
        ("postgresql://%2Frun%2Fpostgresql/jobs", "postgresql %2Frun%2Fpostgresql/jobs"),
    ],
)
def test_a_store_on_postgresql_is_named_by_host_port_and_database(url: str, name: str) -> None:
    assert source_of(url).name == name


def test_several_problems_of_a_url_come_at_once() -> None:
    with pytest.raises(DeclarationError) as raised:
        Mainspring("sqlite://jobs.db?durable=perhaps&fast=yes")

    for problem in ("two slashes", "'perhaps'", "'fast'"):
        assert problem in str(raised.value)


def test_a_path_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r'not a \w+Path; write Mainspring\("sqlite:////.*/jobs\.db"\)'):
        Mainspring(tmp_path / "jobs.db")  # type: ignore[arg-type]  # what the test is about


def test_without_a_url_the_environment_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAINSPRING_URL", f"sqlite:///{tmp_path}/elsewhere.db")
    assert source_of(None).name == f"sqlite {tmp_path}/elsewhere.db"

    monkeypatch.setenv("MAINSPRING_URL", "elsewhere.db")
    with pytest.raises(DeclarationError, match=r"^\$MAINSPRING_URL: it has no scheme"):
        Mainspring()


@pytest.mark.parametrize("value", ["", None])
def test_without_either_it_is_a_file_beside_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAINSPRING_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("MAINSPRING_URL", value)

    assert source_of(None).name == f"sqlite {tmp_path / 'mainspring.db'}"
    assert list(tmp_path.iterdir()) == []


def test_a_store_can_be_given_in_either_way() -> None:
    store = MemoryStore()

    assert source_of(store).make(SystemClock()) is store
    Mainspring(store=store)
    with pytest.raises(DeclarationError, match="a URL and a store"):
        Mainspring("memory://", store=store)


def test_the_store_of_an_app_that_is_not_open_cannot_be_touched() -> None:
    with pytest.raises(StoreClosed, match="async with app"):
        _ = Mainspring("memory://").store


def test_an_app_loads_no_driver_before_it_needs_one() -> None:
    program = "from mainspring import Mainspring; Mainspring('sqlite:///jobs.db'); import sys; print(*sys.modules)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert not {"sqlite3", "mainspring.stores.memory", "mainspring.runtime.node"} & set(done.stdout.split())
