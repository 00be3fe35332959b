"""The front of the package: a few names, no code, and nothing heavy behind them."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import mainspring

FRONT = Path(mainspring.__file__)
MOST_NAMES = 30

# What `import mainspring` must not bring: it is paid by every program, also by one that only enqueues.
HEAVY = {
    "aiosqlite", "asyncpg", "click", "django", "fastapi", "httpx", "hypothesis", "jinja2", "opentelemetry",
    "prometheus_client", "psycopg", "pydantic", "pytest", "rich", "sqlalchemy", "sqlite3", "starlette", "uvicorn",
    "uvloop",
    "mainspring.cli", "mainspring.integrations", "mainspring.testing", "mainspring.web",
}  # fmt: skip


def statements() -> list[ast.stmt]:
    return ast.parse(FRONT.read_text(encoding="utf-8")).body


def exported() -> list[str]:
    return list(getattr(mainspring, "__all__", []))


def imported() -> list[str]:
    return [
        alias.asname or alias.name for node in statements() if isinstance(node, ast.ImportFrom) for alias in node.names
    ]


def test_the_front_holds_a_docstring_imports_and_all_and_nothing_else() -> None:
    docstring, *rest = statements()

    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    for node in rest:
        match node:
            case ast.ImportFrom():
                pass
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                assert node is rest[-1]
            case _:
                raise AssertionError(f"{FRONT}:{node.lineno}: {ast.unparse(node)}")


def test_all_names_what_is_imported() -> None:
    names = exported()

    assert len(names) == len(set(names)) <= MOST_NAMES
    assert sorted(names) == sorted(imported())
    assert names in (sorted(names), imported())
    for name in names:
        assert getattr(mainspring, name) is not None


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import mainspring")

    assert "mainspring" in loaded
    assert heavy_among(loaded) == set()


def test_the_check_for_heavy_modules_can_fail() -> None:
    assert heavy_among(loaded_by("import sqlite3, mainspring.testing")) >= {"sqlite3", "mainspring.testing"}


def loaded_by(statement: str) -> set[str]:
    """Run a statement in a fresh interpreter and return the modules it added."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    # A process that is measured for coverage has loaded sqlite3 before it begins.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def heavy_among(modules: set[str]) -> set[str]:
    return {name for name in HEAVY if name in modules}
