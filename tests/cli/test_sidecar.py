"""Commands that meet a store in a JSON file: whatever is there, what they say to do is done, and then it is well."""

import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mainspring import Every, Mainspring
from tests.cli.conftest import cli

ROW = {
    "qname": "sweep",
    "status": "Pending",
    "consecutive_failures": 0,
    "schedule": {"Periodic": {"secs": 60, "nanos": 0}},
}
PROGRAM = """
from mainspring import Mainspring
app = Mainspring("sidecar:///{folder}")

@app.task(name="sweep")
async def sweep() -> None: ...
"""
FOUND = {
    "missing": (None, "there is no such file"),
    "empty": ("", "the file is empty"),
    "uni's": (json.dumps([ROW]), "rows as uni writes them"),
    "uni's, older": (json.dumps({"rows": [ROW]}), "rows as uni writes them"),
    "a list": ("[1, 2]", "nothing in it is a row"),
}
BROKEN = {
    "cut off": b'{"version": 1, "schedules": [',
    "binary": b"\x00\xff\x00\xff",
    "text": b'{"version": 1, "written_by": "\xff", "schedules": []}',
    "of another program": b'{"users": []}',
    "contradicts itself": b'{"version": 1, "schedules": [], "horizons": [{"name": "a", "known_since": "2030-01-01T00:00:00"}]}',
}


class Place:
    """A folder with a document."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sidecar:///{folder}"
        self.path = folder / "_system" / "background_jobs.json"

    def write(self, content: str | bytes | None) -> None:
        if content is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def fill(self) -> None:
        with self.opened() as app:
            app.schedules.add_sync("nightly", Every("1d"), app.task(name="sweep")(sweep).call())

    @contextmanager
    def opened(self) -> Iterator[Mainspring]:
        """Have a program that has the document open."""
        app = Mainspring(self.url)
        app.schedules.list_sync()
        try:
            yield app
        finally:
            app.close_sync()


async def sweep() -> None: ...


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "my data")


def advised(output: str) -> list[str]:
    """Read the command that is to be run off what was said."""
    (command,) = re.findall(r"mainspring (migrate .*)", output)
    return shlex.split(command)


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("command", [("schedules", "list"), ("doctor",)])
def test_what_is_no_document_yet_is_told_with_a_command_that_makes_it_one(
    place: Place, found: str, command: tuple[str, ...]
) -> None:
    content, says = FOUND[found]
    place.write(content)
    refused = cli(*command, "--url", place.url)
    assert refused.exit_code in {1, 3}
    assert says in refused.output
    assert (place.path.read_text() if place.path.exists() else None) == content  # nothing was changed by looking
    assert place.path.parent.exists() == (content is not None)

    assert cli(*advised(refused.output)).exit_code == 0
    assert cli(*command, "--url", place.url).exit_code == 0
    assert json.loads(place.path.read_bytes())["version"] == 1


@pytest.mark.parametrize("found", FOUND)
def test_migrate_writes_a_document_and_says_then_that_it_is_up_to_date(place: Place, found: str) -> None:
    place.write(FOUND[found][0])
    check = cli("migrate", "--check", "--url", place.url)
    assert (check.exit_code, "it has no document yet" in check.output) == (1, True)
    made = cli("migrate", "--url", place.url)
    assert (made.exit_code, "made, version 1" in made.output) == (0, True)
    assert made.output.count("a row is kept and does nothing") == {"a list": 2}.get(found, int("uni" in found))
    again = cli("migrate", "--url", place.url)
    assert (again.exit_code, "up to date, version 1" in again.output) == (0, True)


def test_migrate_with_the_app_takes_its_rows_over(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "uni_sweeper.py").write_text(PROGRAM.format(folder=place.folder), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    place.write(json.dumps([ROW, 7, {**ROW, "qname": "other"}]))
    done = cli("migrate", "--json", "--app", "uni_sweeper:app")
    assert done.exit_code == 0
    assert json.loads(done.output)["kept"] == 2
    assert "sweep" in cli("schedules", "list", "--url", place.url).output


def test_migrate_leaves_a_document_alone_that_a_program_has_open(place: Place) -> None:
    place.fill()
    with place.opened():
        done = cli("migrate", "--url", place.url)
        assert (done.exit_code, "up to date" in done.output) == (0, True)


@pytest.mark.parametrize("how", BROKEN)
def test_what_cannot_be_read_is_told_with_what_to_do_and_left_alone(place: Place, how: str) -> None:
    place.write(BROKEN[how])
    for command in (("schedules", "list"), ("migrate",), ("doctor",)):
        done = cli(*command, "--url", place.url)
        assert done.exit_code == (1 if command == ("doctor",) else 3)
        assert "left as it is" in done.output
        assert "put a copy of it back, or move it away to begin with nothing" in done.output
    assert place.path.read_bytes() == BROKEN[how]


def test_the_doctor_says_what_to_do_about_a_newer_document(place: Place) -> None:
    place.write('{"version": 2}')
    done = cli("doctor", "--url", place.url)
    assert done.exit_code == 1
    assert "it has version 2" in done.output
    assert "→ use a newer one" in done.output


def test_the_doctor_finds_a_read_only_file_and_a_folder_in_its_place(place: Place) -> None:
    place.fill()
    place.path.chmod(0o444)
    done = cli("doctor", "--url", place.url)
    assert (done.exit_code, "is read-only for this user" in done.output) == (1, True)
    assert "chmod u+w" in done.output

    place.path.unlink()
    place.path.mkdir()
    done = cli("doctor", "--url", place.url)
    assert (done.exit_code, "there is a folder where the file should be" in done.output) == (1, True)
    assert f"→ move {place.path} away" in done.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_doctor_finds_what_this_user_may_not_read_or_write(place: Place) -> None:
    place.fill()
    for folder in place.path.parents:
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    place.path.chmod(0o600)
    closed = as_nobody("doctor", "--url", place.url)
    assert "it cannot be opened: Permission denied" in closed
    assert f"→ give it the right to read and write {place.path.parent} and what is in it" in closed

    place.path.chmod(0o666)
    no_room = as_nobody("doctor", "--url", place.url)
    assert f"this user cannot write in {place.path.parent}" in no_room
    place.path.parent.chmod(0o777)
    place.path.with_suffix(".lock").chmod(0o644)
    locked = as_nobody("doctor", "--url", place.url)
    assert f"give it the right to read and write {place.path.parent} and what is in it" in locked


def as_nobody(*words: str) -> str:
    """Run a command in a child that has given up its rights."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.setgid(65534)
        os.setuid(65534)
        os.write(write, cli(*words).output.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        output = said.read().decode()
    os.waitpid(child, 0)
    return output


def test_the_doctor_looks_on_while_a_program_has_the_document(place: Place) -> None:
    place.fill()
    with place.opened():
        done = cli("doctor", "--url", place.url)
    assert done.exit_code == 0
    assert f"in use by this process ({os.getpid()})" in done.output


def test_the_doctor_tells_of_rows_that_do_nothing(place: Place) -> None:
    place.write(json.dumps([{**ROW, "schedule": "Sometimes"}]))
    cli("migrate", "--url", place.url)
    done = cli("doctor", "--url", place.url)
    assert done.exit_code == 0
    assert "1 row is kept and does nothing: there is no schedule 'Sometimes'" in done.output


def test_the_url_of_the_file_itself_is_told_with_the_folder(place: Place) -> None:
    place.fill()
    done = cli("schedules", "list", "--url", f"{place.url}/_system/background_jobs.json")
    assert done.exit_code == 3
    assert done.output.endswith(f"a URL names the folder that has _system in it: {place.folder}\n")
    assert place.path.exists()


def test_nobody_waits_for_a_job_that_only_this_process_could_run(place: Place) -> None:
    place.fill()
    done = cli("schedules", "run", "nightly", "--wait", "--url", place.url)
    assert done.exit_code == 2
    assert done.output.endswith("no worker could run the job while this one waits; leave out --wait\n")
    with place.opened() as app:
        assert not app.schedules.runs_sync("nightly").runs
