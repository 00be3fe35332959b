"""Give a directory the environment that a target of the Makefile asks for: this package, editable, and some extras.

    python tools/environment.py DIRECTORY [EXTRAS]

An environment that fits is left alone, which takes a tenth of a second. One that does not is built anew: when the
requirements in pyproject.toml have changed, when its interpreter is gone or has become another one, when the checkout
has moved (scripts and the editable install hold absolute paths), or when PYTHON asks for another interpreter. What it
was built for stands in a stamp inside, which is written last, so that an interrupted build counts as none.

Says one line about what it does, and everything about what went wrong.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
STAMP = "mainspring-setup.json"

# A virtual environment's interpreter may be the one that runs this file; what it was made from outlives it.
BASE_PYTHON: str = getattr(sys, "_base_executable", sys.executable)
VERSION = sys.version.split()[0]

ASK_ITS_KIND = "import sys; print(sys.implementation.cache_tag + sys.abiflags)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What an environment was built for."""

    checkout: str
    requirements: str
    made_with: str
    """The interpreter that was asked for."""
    kind: str
    """What its own interpreter said it was, such as cpython-311; compiled packages fit no other."""
    extras: list[str]


class Failed(Exception):
    """A command failed; the argument is its complete output."""


def main(directory: Path, wanted: set[str]) -> None:
    stamp = read_stamp(directory)
    if stamp is None or not still_fits(directory, stamp):
        build(directory, wanted)
    elif missing := wanted - set(stamp.extras):
        install_more(directory, stamp, missing)


def still_fits(directory: Path, stamp: Stamp) -> bool:
    return (
        stamp.checkout == str(CHECKOUT)
        and stamp.requirements == requirements()
        and (not os.environ.get("PYTHON") or stamp.made_with == this_python())
        and stamp.kind == kind_of(directory)
    )


def build(directory: Path, wanted: set[str]) -> None:
    attempts: list[str] = []
    for installer in installers():
        again = ", because uv failed" if attempts else ""
        say(f"Setting up {directory} with Python {VERSION} ({installer}{again})")
        try:
            remove(directory)
            create(directory, installer)
            install(directory, installer, wanted)
        except Failed as failure:
            attempts.append(str(failure))
            continue
        write_stamp(directory, stamp_for(directory, wanted))
        return
    raise Failed("\n".join(attempts))


def install_more(directory: Path, stamp: Stamp, missing: set[str]) -> None:
    installer = "uv" if not (directory / "bin" / "pip").exists() else "pip"
    if installer not in installers():  # built with uv, which has been removed since
        build(directory, missing | set(stamp.extras))
        return
    say(f"Adding {' and '.join(sorted(missing))} to {directory} ({installer})")
    install(directory, installer, missing)
    write_stamp(directory, replace(stamp, extras=sorted(missing | set(stamp.extras))))


def installers() -> Iterator[str]:
    """Name what can install, the faster first; pip's configuration may know a mirror that uv's does not."""
    if runs("uv", "--version"):
        yield "uv"
    if runs(BASE_PYTHON, "-c", "import ensurepip, venv"):
        yield "pip"


def create(directory: Path, installer: str) -> None:
    if installer == "uv":
        run("uv", "venv", "--no-project", "--python", BASE_PYTHON, str(directory))
    else:
        run(BASE_PYTHON, "-m", "venv", str(directory))


def install(directory: Path, installer: str, extras: set[str]) -> None:
    python = str(directory / "bin" / "python")
    package = f".[{','.join(sorted(extras))}]" if extras else "."
    if installer == "uv":
        run("uv", "pip", "install", "--python", python, "--editable", package)
    else:
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--editable", package)


def requirements() -> str:
    """Return a digest of what pyproject.toml says about the package; the settings of tools are left out."""
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    text = json.dumps([settings["build-system"], settings["project"]])
    return hashlib.sha256(text.encode()).hexdigest()


def this_python() -> str:
    return f"{VERSION} in {Path(sys.base_prefix).resolve()}"


def kind_of(directory: Path) -> str | None:
    """Ask the environment's own interpreter what it is; None where it cannot answer."""
    try:
        return run(str(directory / "bin" / "python"), "-I", "-c", ASK_ITS_KIND).strip()
    except Failed:
        return None


def read_stamp(directory: Path) -> Stamp | None:
    try:
        return Stamp(**json.loads((directory / STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # not there, damaged, or from another version of this file
        return None


def stamp_for(directory: Path, extras: set[str]) -> Stamp:
    return Stamp(
        checkout=str(CHECKOUT),
        requirements=requirements(),
        made_with=this_python(),
        kind=kind_of(directory) or "",
        extras=sorted(extras),
    )


def write_stamp(directory: Path, stamp: Stamp) -> None:
    (directory / STAMP).write_text(json.dumps(asdict(stamp), indent=2) + "\n", encoding="utf-8")


def remove(directory: Path) -> None:
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        shutil.rmtree(directory)


def run(*command: str) -> str:
    # PIP_USER: some machines have `user = true` in pip.conf, which no environment allows.
    environment = os.environ | {"PIP_USER": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise Failed(f"$ {' '.join(command)}\n{done.stdout}")
    return done.stdout


def runs(*command: str) -> bool:
    try:
        run(*command)
    except Failed:
        return False
    return True


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    extras_asked_for = {extra for argument in sys.argv[2:] for extra in argument.split(",") if extra}
    try:
        # Two makes at once must not build the same environment; the second finds it built.
        with (CHECKOUT / "pyproject.toml").open() as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            main(Path(sys.argv[1]), extras_asked_for)
    except Failed as failure:
        sys.exit(f"{failure}\nThe environment in {sys.argv[1]} could not be set up; the reason stands above.")
    except KeyboardInterrupt:
        sys.exit(130)
