"""From a checkout to a result with one command: what `make` offers, and how it sets itself up."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

pytestmark = pytest.mark.needs("make")

# Kept from the environment of the tests: how to reach a package index from here.
NETWORK = re.compile(r"(PIP|UV|SSL|REQUESTS|CURL)_.*|(https?|no|all)_proxy", re.IGNORECASE)
PYTHON: str = getattr(sys, "_base_executable", sys.executable)


def targets(root: Path) -> dict[str, str]:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z-]+):.*?## (.+)$", makefile, re.MULTILINE))


def commands(page: Path) -> list[list[str]]:
    """Find the commands in a page of Markdown: in code within a line, and in blocks that are not of another language."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`((?:make|mainspring) [^`\n]+)`", text)
    for language, block in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language in {"", "sh", "bash", "console", "shell"}:
            found += re.findall(r"^(?:\$ )?((?:make|mainspring)(?: .*)?)$", block, re.MULTILINE)
    return [line.split("#")[0].split() for line in found]


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands in a folder as someone would who has just arrived: an empty home, and a PATH of a few programs."""

    bin: Path
    home: Path

    def offers(self, name: str, program: str) -> None:
        (self.bin / name).symlink_to(program)

    def pretends(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def run(self, folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        network = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
        return subprocess.run(
            command,
            cwd=folder,
            env=network | {"PATH": str(self.bin), "HOME": str(self.home)} | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path / "bin", tmp_path / "home")
    shell.bin.mkdir()
    shell.home.mkdir()
    for program in ("make", "sh", "awk"):
        path = shutil.which(program)
        assert path
        shell.offers(program, path)
    return shell


def test_make_alone_names_every_target_and_what_it_does(root: Path, shell: Shell) -> None:
    printed = shell.run(root, "make").stdout

    for target, purpose in targets(root).items():
        assert re.search(rf"^  make {target} +{re.escape(purpose)}$", printed, re.MULTILINE)


def test_every_target_is_documented(root: Path) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    declared = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    phony = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)

    assert declared == list(targets(root)) == phony[0].split()
    assert {"demo", "test", "check", "bench", "docs", "test-all", "coverage", "format", "clean"} <= set(declared)


def test_the_commands_on_our_pages_exist(root: Path, committed: list[Path]) -> None:
    found = [command for page in committed if page.suffix == ".md" for command in commands(root / page)]

    assert ["make", "demo"] in found
    assert ["make", "test"] in found
    for program, *words in found:
        if program == "make":
            assert [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word) and word not in targets(root)] == []
        else:
            assert_command_exists(words)


def assert_command_exists(words: list[str]) -> None:
    found: click.Command = importlib.import_module("mainspring.cli").main
    for word in words:
        if not isinstance(found, click.Group) or not re.fullmatch(r"[a-z-]+", word):
            return
        subcommand = found.get_command(click.Context(found), word)
        assert subcommand, f"mainspring {' '.join(words)}: there is no {word}"
        found = subcommand


# How an interpreter is found. tools/environment.py is a stand-in that tells which one came to run it.


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    tools = tmp_path / "checkout" / "tools"
    tools.mkdir(parents=True)
    shutil.copy(root / "tools" / "setup", tools)
    (tools / "environment.py").write_text(
        "import os, sys; print('ran on', os.environ.get('NAME', 'Python'), *sys.argv[1:])", encoding="utf-8"
    )
    return tools.parent


def real(before: str = "") -> str:
    """Write a script that is a Python; `before` is run first, to make it other than it is."""
    return f"""
        if [ "$1" != -c ]; then exec {PYTHON} "$@"; fi
        exec {PYTHON} -c '{before}
import sys; exec(sys.argv[1])' "$2" """


OLD = real("import sys; sys.version_info = (3, 9, 2)")
BARE = real('import sys; sys.modules["ensurepip"] = None')
SHIM = "echo 'pyenv: python3: command not found' >&2; exit 127"


def test_the_first_python_that_fits_is_taken(shell: Shell, folder: Path) -> None:
    shell.pretends("python3", SHIM)
    shell.pretends("python3.14", OLD)
    shell.pretends("python3.13", f"NAME=python3.13; export NAME; {real()}")
    shell.pretends("python3.12", f"NAME=python3.12; export NAME; {real()}")

    assert shell.run(folder, "sh", "tools/setup", ".venv", "test").stdout == "ran on python3.13 .venv test\n"


def test_a_python_that_is_named_is_taken(shell: Shell, folder: Path) -> None:
    shell.pretends("python3", real())
    shell.pretends("my python", f"NAME=mine; export NAME; {real()}")

    assert shell.run(folder, "sh", "tools/setup", ".venv", PYTHON="my python").stdout == "ran on mine .venv\n"


def test_a_named_python_that_does_not_run_is_told(shell: Shell, folder: Path) -> None:
    shell.pretends("python3", real())
    done = shell.run(folder, "sh", "tools/setup", ".venv", PYTHON="python4")

    assert done.returncode == 1
    assert done.stdout == "PYTHON=python4 does not run. Leave it out, or name a Python from 3.11 up.\n"


def test_no_python_at_all_is_told_in_one_line(shell: Shell, folder: Path) -> None:
    done = shell.run(folder, "sh", "tools/setup", ".venv")

    assert done.returncode == 1
    assert done.stdout.startswith("No Python from 3.11 up was found that can make environments. Install one")
    assert done.stdout.count("\n") == 1


def test_a_python_that_is_too_old_is_told_in_one_line(shell: Shell, folder: Path) -> None:
    shell.pretends("python3", OLD)
    done = shell.run(folder, "sh", "tools/setup", ".venv")

    assert done.returncode == 1
    assert "(python3: Python 3.9.2 is too old). Install one" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_python_without_venv_is_told_in_one_line(shell: Shell, folder: Path) -> None:
    shell.pretends("python3", BARE)
    done = shell.run(folder, "sh", "tools/setup", ".venv")

    assert done.returncode == 1
    assert "cannot make environments). Install its venv package" in done.stdout
    assert done.stdout.count("\n") == 1


def test_with_uv_a_python_without_venv_will_do(shell: Shell, folder: Path) -> None:
    shell.pretends("python3", BARE)
    shell.pretends("uv", "exit 0")

    assert shell.run(folder, "sh", "tools/setup", ".venv").stdout == "ran on Python .venv\n"


# The whole way, for real.

WHERE = "ARGS=-c 'import mainspring; print(mainspring.__file__)'"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_newcomer_with_python_and_make_needs_nothing_else(
    checkout: Callable[[Path], Path], tmp_path: Path, shell: Shell
) -> None:
    shell.offers("python3", PYTHON)
    here = checkout(tmp_path / "a checkout")

    demo = shell.run(here, "make", "demo", "ARGS=--seconds 3")
    second = shell.run(here, "make", "python", WHERE)

    assert demo.returncode == 0
    assert demo.stdout.startswith(setting_up("pip"))
    assert "None is lost." in " ".join(demo.stdout.split())  # wherever the line was broken
    assert second.stdout.splitlines() == [imported_from(here)]


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.needs("uv")
def test_an_environment_that_no_longer_fits_is_built_anew(
    checkout: Callable[[Path], Path], tmp_path: Path, shell: Shell, uv: str
) -> None:
    shell.offers("python3", PYTHON)
    shell.offers("uv", uv)
    here = checkout(tmp_path / "checkout")
    there = tmp_path / "elsewhere"
    python = there / ".venv" / "bin" / "python"

    def outcome(folder: Path) -> list[str]:
        return shell.run(folder, "make", "python", WHERE).stdout.splitlines()

    assert outcome(here) == [setting_up("uv"), imported_from(here)]
    here.rename(there)
    assert outcome(there) == [setting_up("uv"), imported_from(there)], "the checkout has moved"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert outcome(there) == [setting_up("uv"), imported_from(there)], "its interpreter is gone"
    project = there / "pyproject.toml"
    project.write_text(project.read_text(encoding="utf-8").replace('"click', '"iniconfig", "click'), encoding="utf-8")
    assert outcome(there) == [setting_up("uv"), imported_from(there)], "the requirements have changed"
    assert outcome(there) == [imported_from(there)]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_failure_to_install_is_shown_in_full(checkout: Callable[[Path], Path], tmp_path: Path, shell: Shell) -> None:
    shell.offers("python3", PYTHON)
    here = checkout(tmp_path / "checkout")
    project = here / "pyproject.toml"
    project.write_text(
        project.read_text(encoding="utf-8").replace('"click', '"click==0.0.1", "click'), encoding="utf-8"
    )

    done = shell.run(here, "make", "python", WHERE)

    assert done.returncode == 2
    assert "pip install" in done.stdout
    assert "click==0.0.1" in done.stdout
    assert "could not be set up" in done.stdout
    assert not (here / ".venv" / "mainspring-setup.json").exists()


def setting_up(installer: str) -> str:
    return f"Setting up .venv with Python {sys.version.split()[0]} ({installer})"


def imported_from(folder: Path) -> str:
    return str(folder / "src" / "mainspring" / "__init__.py")
