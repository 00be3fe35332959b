"""`mainspring plugins`: what is installed, what could be, and what would come of it."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mainspring.cli.plugins_check import loaded_apart
from tests.cli.conftest import cli
from tests.plugins.packages import GOOD, Packages

pytestmark = pytest.mark.slow

SHOP = """
from mainspring import Mainspring, Plugin
from mainspring.plugins import BackgroundJobs

app = Mainspring("memory://")
own = Plugin("own", "0.1", requires=[BackgroundJobs()], docs="pictures and such")

@own.task
async def draw() -> None: ...

app.install(own, grant=[BackgroundJobs(3)])
app.plugins.discover(allow=["good", "raises"])
plain = Mainspring("memory://")
upkept = Mainspring("memory://", upkeep=True)
without = Mainspring("memory://", upkeep=False)
without.install(Plugin("bare", "1"))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    packages = Packages(tmp_path / "packages")
    packages.add("good", GOOD)
    packages.add("raises", "1 / 0")
    packages.add("stranger", "import os; os._exit(9)")
    (packages.folder / "shop.py").write_text(SHOP, encoding="utf-8")
    return packages


def answered(packages: Packages, *arguments: str, code: int) -> Result:
    with chdir(packages.folder):
        done = cli("plugins", *arguments)
    assert done.exit_code == code, done.stderr
    return done


def said(packages: Packages, *arguments: str, code: int = 0) -> str:
    done = answered(packages, *arguments, code=code)
    return done.stdout if code == 0 else done.stdout + done.stderr


def lines(packages: Packages, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answered(packages, *arguments, "--json", code=code).stdout.splitlines()]


def test_plugins_are_listed_with_what_they_may_and_bring(packages: Packages) -> None:
    done = packages.run("-W", "error", "-m", "mainspring", "plugins", "list", "shop:app")
    assert done.returncode == 0, done.stderr
    heading, own, good, upkeep, raises, stranger = done.stdout.splitlines()
    assert heading.split() == ["NAME", "STATE", "VERSION", "GRANTED", "TASKS", "SCHEDULES", "SERVICES", "NOTE"]
    assert own.split(maxsplit=7)[:7] == ["own", "installed", "0.1", "BackgroundJobs(max_concurrent=3)", "1", "0", "0"]
    assert own.endswith("pictures and such")
    assert good.split()[:3] == ["good", "installed", "1.0"]
    assert good.split()[-3:] == ["3", "1", "1"]
    assert upkeep.split()[:2] == ["mainspring", "built-in"]
    assert "ZeroDivisionError: division by zero" in raises
    assert stranger.split(maxsplit=2) == ["stranger", "refused", "the app does not allow it: stranger:plugin"]


def test_plugins_are_listed_for_programs(packages: Packages) -> None:
    own, good, upkeep, raises, stranger = lines(packages, "list", "shop:app")
    assert own["granted"] == ["BackgroundJobs(max_concurrent=3)"]
    assert (own["tasks"], own["entry_point"]) == (["own:draw"], None)
    assert (good["schedules"], good["services"], good["entry_point"]) == (["good:sweep"], ["good:watch"], "good:plugin")
    assert upkeep["schedules"] == [f"mainspring:{name}" for name in ("retention_sweep", "statistics", "compaction")]
    states = [one["state"] for one in (own, good, upkeep, raises, stranger)]
    assert states == ["installed", "installed", "built-in", "broken", "refused"]


def test_an_app_that_looks_for_none_shows_what_there_is_and_loads_none_of_it(packages: Packages) -> None:
    assert {(one["name"], one["state"]) for one in lines(packages, "list", "shop:plain")} == {
        ("mainspring", "built-in"),
        ("good", "found"),
        ("raises", "found"),
        ("stranger", "found"),
    }


def test_the_app_is_named_as_for_other_commands(packages: Packages, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = said(packages, "list", "shop:app")
    assert said(packages, "list", "--app", "shop:app") == whole
    assert "named twice" in said(packages, "list", "shop:app", "--app", "shop:plain", code=2)
    assert "say --app MODULE:APP, or set $MAINSPRING_APP" in said(packages, "list", code=2)
    monkeypatch.setenv("MAINSPRING_APP", "shop:app")
    assert said(packages, "list") == whole


def test_an_app_without_any_says_so(tmp_path: Path) -> None:
    packages = Packages(tmp_path / "none")
    (packages.folder / "shop.py").write_text(
        "from mainspring import Mainspring\napp = Mainspring('memory://', upkeep=False)\n"
    )
    assert said(packages, "list", "shop:app").startswith("There are no plugins")


@pytest.mark.parametrize("target", ["good", "good:plugin"])
def test_a_plugin_that_can_be_installed_is_shown_whole(packages: Packages, target: str) -> None:
    shown = said(packages, "install-check", target)
    assert "plugin     good" in shown
    assert "requires   BackgroundJobs(max_concurrent=None), Schedules(), Services()" in shown
    assert "tasks      good:add, good:add_apart, good:sweep" in shown
    assert shown.endswith("result     it can be installed\n")


def test_what_is_not_granted_is_named_and_the_code_says_so(packages: Packages) -> None:
    shown = said(packages, "install-check", "good", "--grant", "BackgroundJobs=2", code=1)
    assert "plugin good needs Schedules, which is not granted" in shown
    (found,) = lines(packages, "install-check", "good", "--grant", "BackgroundJobs=2", "--grant", "Services", code=1)
    assert found["missing"] == ["Schedules"]
    assert found["granted"] == ["BackgroundJobs(max_concurrent=2)", "Services()"]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("raises", "it cannot be loaded: ZeroDivisionError"),
        ("stranger", "it ended the process that loaded it, with exit code 9"),
        (
            "nobody",
            "no package offers a plugin of that name; there are: good, raises, stranger; one in a module is named as MODULE:PLUGIN",
        ),
        ("good:seen", "it is no Plugin and makes none, but dict"),
    ],
)
def test_a_plugin_that_cannot_be_installed_is_told_of(packages: Packages, target: str, problem: str) -> None:
    assert problem in said(packages, "install-check", target, code=1)


FACTORIES = """
import os, sys

def raises():
    raise KeyError("no settings")

def ends():
    sys.exit("not today")

def takes(path): ...

def dies():
    print("out of file handles", file=sys.stderr, flush=True)
    os._exit(7)
"""


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("raises", "calling it to make the plugin raised KeyError: 'no settings' ({file}:5)"),
        ("ends", "calling it to make the plugin raised SystemExit: not today ({file}:8)"),
        ("takes", "calling it to make the plugin raised TypeError: takes() missing 1 required positional argument"),
        (
            "dies",
            "with exit code 7: a program that installs it would end, too. The last that it said: out of file handles",
        ),
    ],
)
def test_what_goes_wrong_in_a_function_that_makes_the_plugin_is_shown(
    packages: Packages, factory: str, problem: str
) -> None:
    file = packages.folder / "makers.py"
    file.write_text(FACTORIES, encoding="utf-8")
    assert problem.format(file=file) in said(packages, "install-check", f"makers:{factory}", code=1)
    (found,) = lines(packages, "install-check", f"makers:{factory}", code=1)
    assert found["plugin"] is None
    assert problem.format(file=file) in found["problems"][0]


def test_where_a_plugin_of_a_package_raised_is_shown(packages: Packages) -> None:
    shown = said(packages, "install-check", "raises", code=1)
    assert f"ZeroDivisionError: division by zero ({packages.folder / 'raises.py'}:1)" in shown


@pytest.mark.parametrize(
    "arguments", [("nowhere:plugin",), ("good:nothing",), ("good", "--grant", "Everything"), (":",)]
)
def test_what_makes_no_sense_is_an_error_of_usage(packages: Packages, arguments: tuple[str, ...]) -> None:
    assert "mainspring" in said(packages, "install-check", *arguments, code=2)


def test_a_plugin_that_blocks_while_it_is_loaded_is_given_up(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.add("sleeper", "import time; time.sleep(600)")
    monkeypatch.chdir(packages.folder)
    assert "still being loaded after 2 s" in loaded_apart("sleeper:plugin", (), patience=2)["problems"][0]


@pytest.mark.parametrize(("app", "has"), [("upkept", True), ("without", False), ("plain", True)])
def test_what_mainspring_brings_itself_is_listed_where_workers_bring_it(
    packages: Packages, app: str, has: bool
) -> None:
    assert any(one["name"] == "mainspring" for one in lines(packages, "list", f"shop:{app}")) == has
