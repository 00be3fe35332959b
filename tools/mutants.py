"""Apply the faults of tests/mutants/ one at a time, and list which tests find them.

    python tools/mutants.py [NAME|FILE ...] [--tier subject|check|test] [--sample N] [--seed S] [--list]

Each fault is a small change of one source file (`old` is replaced by `new`), with the tests of its subject. `--sample N`
adds N faults that are drawn from src/mainspring/core by a seed: an operator, a number or a condition is changed.

The tests run in a copy of the checkout, never in the checkout itself: first those of the subject, then, for faults that
they do not find, the tests of `make check`, and at last those of `make test`. `--tier` names the last tier that is tried.
Names of faults or of files in tests/mutants/ (`core`) select faults; `sample` selects the drawn ones.

Before the first fault, the tests of all subjects have to pass without one. The result is written to
.cache/mutants/results.json as well, after each fault.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FAULTS = CHECKOUT / "tests" / "mutants"
SAMPLED = "src/mainspring/core"
WORK = CHECKOUT / ".cache" / "mutants"
TIERS = ("subject", "check", "test")
TESTS_FAILED, NO_TESTS = 1, 5
TIME_LIMIT_S = {"subject": 900, "check": 1800, "test": 7200}
"""A fault may make tests hang: a tier that exceeds this limit counts as having found the fault."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, and the tests of its subject."""

    subject: str
    name: str
    fault: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    start: int | None = None
    """Where `old` is in the file, if it occurs more than once."""

    def applied_to(self, text: str) -> str:
        if self.start is not None:
            return text[: self.start] + self.new + text[self.start + len(self.old) :]
        count = text.count(self.old)
        if count != 1:
            sys.exit(f"{self.name}: `old` occurs {count} times in {self.file}, not once; correct tests/mutants/")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Result:
    """Which tier found a fault; None: no tier that was tried."""

    name: str
    subject: str
    fault: str
    found_by: str | None
    first_failure: str
    seconds: float


# Faults: written down, or drawn.


def read_mutants() -> list[Mutant]:
    mutants: list[Mutant] = []
    for path in sorted(FAULTS.glob("*.toml")):
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
        mutants += [Mutant(subject=path.stem, **one | {"tests": tuple(one["tests"])}) for one in entries]
    names = [mutant.name for mutant in mutants]
    if twice := {name for name in names if names.count(name) > 1}:
        sys.exit(f"names that occur twice in tests/mutants/: {', '.join(sorted(twice))}")
    return mutants


def draw_mutants(size: int, seed: int) -> list[Mutant]:
    """Draw faults from all places in the pure rules where an operator, a number or a condition can be changed."""
    possible = [mutant for path in sorted((CHECKOUT / SAMPLED).rglob("*.py")) for mutant in changes_of(path)]
    chosen = random.Random(seed).sample(possible, min(size, len(possible)))  # noqa: S311 - not for secrets
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.start or 0))


OPERATORS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
    ast.And: (" and ", " or "),
    ast.Or: (" or ", " and "),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Not: ("not ", ""),
}


def changes_of(path: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    rows = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        """Return the place in the text; columns of the parser are bytes."""
        return sum(map(len, rows[: line - 1])) + len(rows[line - 1].encode()[:column].decode())

    def operator(kind: ast.AST, after: ast.expr, before: ast.expr) -> tuple[int, str, str] | None:
        """Find an operator between two operands."""
        if type(kind) not in OPERATORS or after.end_lineno is None or after.end_col_offset is None:
            return None
        old, new = OPERATORS[type(kind)]
        start, end = offset(after.end_lineno, after.end_col_offset), offset(before.lineno, before.col_offset)
        place = text.find(old, start, end)
        return None if place < 0 else (place, old, new)

    for node in executed(ast.parse(text)):
        found: list[tuple[int, str, str] | None] = []
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                operands = [left, *others]
                found = [operator(op, operands[i], operands[i + 1]) for i, op in enumerate(ops)]
            case ast.BinOp(left=left, op=op, right=right):
                found = [operator(op, left, right)]
            case ast.BoolOp(op=op, values=values):
                found = [operator(op, values[i], values[i + 1]) for i in range(len(values) - 1)]
            case ast.UnaryOp(op=ast.Not()):
                found = [(offset(node.lineno, node.col_offset), *OPERATORS[ast.Not])]
            case ast.Constant(value=bool() as value):
                found = [(offset(node.lineno, node.col_offset), str(value), str(not value))]
            case ast.Constant(value=int() as value):
                literal = ast.get_source_segment(text, node) or ""
                found = [(offset(node.lineno, node.col_offset), literal, str(value + 1))]
            case _:
                pass
        for start, old, new in filter(None, found):
            row = text.count("\n", 0, start)
            column = start - (text.rfind("\n", 0, start) + 1)
            file = str(path.relative_to(CHECKOUT))
            fault = f"{old.strip()} → {new.strip() or 'nothing'} in: {text.splitlines()[row].strip()}"
            yield Mutant("sample", f"{file}:{row + 1}:{column}", fault, file, old, new, ("tests/core",), start)


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk all nodes but annotations, decorators and options of classes, in which a change is no fault."""
    passed_over = {"annotation", "returns", "decorator_list", *(["keywords"] if isinstance(tree, ast.ClassDef) else [])}
    for name, value in ast.iter_fields(tree):
        if name in passed_over:
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield node
                yield from executed(node)


def selected(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    if unknown := set(words) - {mutant.name for mutant in mutants} - {mutant.subject for mutant in mutants}:
        sys.exit(f"no fault or file of tests/mutants/: {', '.join(sorted(unknown))}; --list prints all")
    return [mutant for mutant in mutants if not words or mutant.name in words or mutant.subject in words]


# Tests.


def copy_checkout() -> Path:
    """Copy all files that git tracks or would add."""
    tree = WORK / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        source, target = CHECKOUT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return tree


def run_tests(tree: Path, tier: str, *tests: str) -> tuple[bool, str]:
    """Run tests until one fails; return whether one did, and which."""
    selection = {"subject": list(tests), "check": ["-m", "not slow"], "test": []}[tier]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "auto", "--no-header", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *selection],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S[tier],
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True, f"no end within {TIME_LIMIT_S[tier]} s"
    if done.returncode == NO_TESTS:
        sys.exit(f"no tests in {' '.join(tests)}; correct tests/mutants/")
    lines = done.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in {0, TESTS_FAILED} and not failures:
        # A fault that prevents the import of the package ends pytest before any test.
        return True, next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "pytest ended early")
    return done.returncode != 0, failures[0] if failures else ""


def measure(tree: Path, mutant: Mutant, tiers: Sequence[str]) -> Result:
    began = time.monotonic()
    path = tree / mutant.file
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied_to(original), encoding="utf-8")
    found_by, failure = None, ""
    try:
        for tier in tiers:
            found, failure = run_tests(tree, tier, *mutant.tests)
            if found:
                found_by = tier
                break
    finally:
        path.write_text(original, encoding="utf-8")
    seconds = round(time.monotonic() - began, 1)
    return Result(mutant.name, mutant.subject, mutant.fault, found_by, failure, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME|FILE", help="faults, or files of tests/mutants/ (core)")
    parser.add_argument("--tier", choices=TIERS, default="test", help="last tier that is tried")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="add faults that are drawn from core/")
    parser.add_argument("--seed", type=int, help="of the sample; printed if it is left out")
    parser.add_argument("--list", action="store_true", help="print the faults")
    args = parser.parse_args()
    drawn = []
    if args.sample:
        seed = random.randrange(10_000) if args.seed is None else args.seed  # noqa: S311 - not for secrets
        drawn = draw_mutants(args.sample, seed)
        print(f"A sample of {len(drawn)} faults; to repeat it: --sample {args.sample} --seed {seed}", flush=True)
    mutants = selected(read_mutants() + drawn, args.words)
    if args.list:
        for mutant in mutants:
            print(f"{mutant.subject:<10} {mutant.name:<50} {mutant.fault}")
        return 0
    tiers = TIERS[: TIERS.index(args.tier) + 1]
    tree = copy_checkout()
    for mutant in mutants:
        mutant.applied_to((tree / mutant.file).read_text(encoding="utf-8"))
    print(f"{len(mutants)} faults; first their tests without a fault", flush=True)
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    failed, failure = run_tests(tree, "subject", *tests)
    if failed:
        sys.exit(f"A test fails without a fault: {failure}")
    results: list[Result] = []
    for number, mutant in enumerate(mutants, start=1):
        result = measure(tree, mutant, tiers)
        results.append(result)
        (WORK / "results.json").write_text(json.dumps([asdict(one) for one in results], indent=1), encoding="utf-8")
        verdict = result.found_by or "NOT FOUND"
        print(f"{number:>4}  {verdict:<10}{result.seconds:>7.1f} s  {mutant.subject:<10} {mutant.name}", flush=True)
    missed = [result for result in results if result.found_by is None]
    counts = ", ".join(f"{tier} {sum(result.found_by == tier for result in results)}" for tier in tiers)
    print(f"\nFound by: {counts}; not found: {len(missed)}")
    for result in missed:
        print(f"    {result.name}: {result.fault}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
