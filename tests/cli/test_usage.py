"""What every command has in common: one clear line for what is wrong, a code that says of which kind it is, quick help."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mainspring.cli import COMMANDS, main
from mainspring.cli.codes import Code, code_of
from mainspring.errors import (
    BadDuration,
    Conflict,
    DeclarationError,
    JobGone,
    MainspringError,
    NodeGone,
    PayloadError,
    SchemaError,
    StoreUnavailable,
    UnknownTask,
)
from tests.cli.conftest import Shop, cli, until


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command
        if isinstance(command, click.Group):
            found += [(name, inner) for inner in command.commands]
        else:
            found.append((name,))
    return found


def told(*arguments: str, code: int) -> str:
    """Run what is wrong; returns the one line that it is answered with."""
    done = cli(*arguments)
    assert done.exit_code == code, done.output
    assert done.output.count("\n") == 1, done.output
    return done.output.strip()


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_help_of_short_lines(words: tuple[str, ...]) -> None:
    done = cli(*words, "--help")
    assert done.exit_code == 0
    assert done.output.startswith(f"Usage: mainspring {' '.join(words)}")
    assert max(len(line) for line in done.output.splitlines()) <= 80


@pytest.mark.parametrize(("name", "later"), COMMANDS.items(), ids=list(COMMANDS))
def test_the_summaries_of_the_help_are_those_of_the_commands(name: str, later: tuple[str, str]) -> None:
    command = main.get_command(click.Context(main), name)
    assert command
    assert command.name == name
    assert command.get_short_help_str(limit=200) == later[1]


def test_a_command_that_is_not_there_is_told_in_one_line() -> None:
    assert re.match(r"mainspring: No such command 'jbos'\. Did you mean 'jobs'\?", told("jbos", code=2))
    assert re.match(r"mainspring: No such command 'xyz'\. \(", told("xyz", code=2))


def test_a_group_without_a_command_answers_with_its_help() -> None:
    done = cli("jobs")
    assert "Usage: mainspring jobs" in done.output
    assert "retry" in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("jobs", "list", "--limit", "0"), "mainspring jobs list: Invalid value for '--limit': 0 is not in the range"),
        (("jobs", "list", "--state", "done"), "Invalid value for '--state': 'done' is not one of 'scheduled'"),
        (("jobs", "show", "7"), "mainspring jobs show: Invalid value for 'ID': '7' is not a valid UUID"),
        (("jobs", "retry"), "mainspring jobs retry: Missing argument 'ID...'"),
        (("dashboard",), "mainspring dashboard: it needs the app: say MODULE:APP, or set $MAINSPRING_APP"),
        (("worker",), "mainspring worker: it needs the app: say MODULE:APP, or set $MAINSPRING_APP"),
        (("worker", "a:b", "--grace", "soon"), "Invalid value for '--grace': 'soon' is no valid duration"),
        (("worker", "a:b", "--processes", "0"), "Invalid value for '--processes': 0 is not in the range"),
        (("worker", "a:b", "--lease", "0.1s"), "a lease under half a second cannot be kept"),
        (("nodes", "concurrency", "n", "0"), "0 is not in the range"),
        (("jobs", "list", "--url", "a", "--app", "b:c"), "--url and --app both name a store"),
        (("jobs", "list", "--url", "jobs.db"), 'it has no scheme; a file is written "sqlite:///jobs.db"'),
        (("jobs", "list", "--url", "mysql://x"), "no store is known for mysql://"),
        (("jobs", "list", "--url", "memory://"), "cannot be seen from outside"),
        (("demo", "--seconds", "0"), "0.0 is not in the range"),
        (("jobs", "enqueue", "shop:app", "add", "--timeout", "1s"), "--timeout limits --wait"),
    ],
)
def test_wrong_usage_is_told_in_one_line_and_ends_with_2(shop: Shop, arguments: tuple[str, ...], says: str) -> None:
    assert shop.folder == Path.cwd()
    assert says in told(*arguments, code=2)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadDuration("x", "no"), Code.USAGE),
        (PayloadError("add", "a", "no"), Code.USAGE),
        (JobGone("1"), Code.FAILED),
        (Conflict("add", "k", "1"), Code.FAILED),
        (UnknownTask("ad"), Code.FAILED),
        (NodeGone("here", "gone"), Code.FAILED),
        (StoreUnavailable("here", "locked"), Code.STORE),
        (SchemaError("here", "newer"), Code.STORE),
    ],
)
def test_errors_have_codes_of_their_kind(error: MainspringError, code: Code) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize(
    "arguments",
    [("jobs", "list"), ("queues", "list"), ("nodes", "list", "--all"), ("jobs", "cancel", "0" * 32)],
    ids=" ".join,
)
def test_looking_at_a_file_that_is_not_there_makes_none(shop: Shop, arguments: tuple[str, ...]) -> None:
    line = told(*arguments, code=3)
    assert line.startswith(f"mainspring: sqlite {shop.folder}/mainspring.db: there is no such file; ")
    assert "say --app MODULE:APP or --url; else run a worker" in line
    assert sorted(path.name for path in shop.folder.iterdir()) == ["shop.py"]


def test_looking_at_a_file_without_our_tables_makes_none(shop: Shop) -> None:
    shop.path.touch()
    assert "there are no tables of ours in it" in told("jobs", "list", "--url", shop.url, code=3)
    assert shop.path.stat().st_size == 0


def test_the_url_of_the_environment_counts_where_none_is_given(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_URL", "sqlite:///elsewhere.db")
    assert "elsewhere.db: there is no such file" in told("jobs", "list", code=3)
    assert "shop.db: there is no such file" in told("jobs", "list", "--url", shop.url, code=3)


# Finding an app.


def test_the_app_is_looked_for_in_the_current_folder(shop: Shop) -> None:
    done = shop.run("migrate", "--app", "shop:app")
    assert (done.returncode, done.stderr) == (0, "")
    assert shop.path.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "target", "says"),
    [
        ("", "nowhere:app", "there is no module 'nowhere' in "),
        ("", "shop.tasks:app", "there is no module 'shop.tasks'"),
        ("", "shop:shop", "shop has no 'shop'. Found there: shop:app"),
        ("", "shop", "'shop' names no app; write MODULE:APP. Found there: shop:app"),
        ("", ":app", "':app' names no app; write MODULE:APP, as in myapp:app"),
        ("", "shop.py", "'shop.py' is a file; write MODULE:APP, as in shop:app"),
        ("", "sub/shop.py:jobs", "'sub/shop.py' is a file; write MODULE:APP, as in sub.shop:jobs"),
        ("", "shop:add", "shop:add is no Mainspring, but TaskFunction. Found there: shop:app"),
        ("", "os:path", "os:path is no Mainspring, but module. There is no Mainspring in os"),
        ("x = 1\nimport a_package_that_is_missing\n", "mine:app", "No module named 'a_package_that_is_missing'"),
        (
            "def f():\n    raise OSError('no\\nway')\n\nf()\n",
            "mine:app",
            "mine cannot be imported: OSError: no way (FOLDER/mine.py:2)",
        ),
        ("def f(:\n", "mine:app", "mine cannot be imported: SyntaxError: invalid syntax (FOLDER/mine.py:1)"),
        ("raise SystemExit(3)\n", "mine:app", "mine cannot be imported: SystemExit: 3 (FOLDER/mine.py:1)"),
        ("from mainspring import Mainspring\nMainspring('x')\n", "mine:app", "(FOLDER/mine.py:2)"),
    ],
)
def test_an_app_that_is_not_there_is_told_in_one_line(shop: Shop, module: str, target: str, says: str) -> None:
    (shop.folder / "mine.py").write_text(module, encoding="utf-8")
    done = cli("migrate", "--app", target)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert says.replace("FOLDER", str(shop.folder)) in done.stderr


def test_who_asks_for_it_gets_the_traceback(shop: Shop) -> None:
    (shop.folder / "mine.py").write_text("1 / 0\n", encoding="utf-8")
    done = shop.run("--debug", "migrate", "--app", "mine:app")
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("ZeroDivisionError: division by zero")
    with pytest.raises(ZeroDivisionError):
        cli("migrate", "--app", "mine:app", MAINSPRING_DEBUG="1")


def test_who_asks_for_it_gets_the_traceback_of_our_own_errors_too() -> None:
    with pytest.raises(DeclarationError):
        cli("--debug", "jobs", "list", "--url", "nonsense")


# Ends that are nobody's fault.


def test_a_reader_who_has_seen_enough_is_no_failure(shop: Shop) -> None:
    for number in range(3):
        shop.enqueue("add", number)
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "jobs", "list", "--url", shop.url, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


def test_ctrl_c_ends_a_command_quietly(shop: Shop) -> None:
    command = [sys.executable, "-m", "mainspring", "jobs", "enqueue", "shop:app", "add", "1", "--wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: shop.path.exists() and cli("jobs", "list", "--url", shop.url).output.count(" ready "))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "\n"), "the terminal has ^C on the line"
        assert process.returncode == 130


def test_help_loads_no_command_and_not_the_store() -> None:
    code = "import sys; from mainspring.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it loads sqlite3
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=plain
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    ours = {name for name in loaded if name.startswith("mainspring.cli.")}
    assert ours == {"mainspring.cli.codes", "mainspring.cli.echo", "mainspring.cli.lazy", "mainspring.cli.root"}
    assert not {"sqlite3", "rich", "mainspring.stores.sqlite", "mainspring.runtime.node"} & loaded


def test_it_says_what_it_is() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mainspring", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("mainspring, version ")
