"""Apply each fault of tests/mutants/ to a copy of the checkout, and list which tests find it.

    python tools/mutants.py [NAME|FILE ...] [--tier check|test|full] [--subject-only] [--jobs N] [--sample N] [--seed S]
                            [--list]

Each fault is a small change of one source file (`old` is replaced by `new`), with the tests of its subject (`tests`). `--sample N`
adds N faults that are drawn from src/mainspring/core by a seed: an operator, a number or a condition is changed.

The tests run in copies of the checkout, never in the checkout itself: first those of the subject that are part of `make
check`, then all of the subject that are part of `make test`. For faults that these do not find, all tests of `make check`
follow, then all of `make test`, and at last the tests of the subject that only `make test-full` runs. `--tier` names the
last tier that is tried, `--subject-only` leaves out all other tests. Names of faults or of files in tests/mutants/ (`core`)
select faults; `sample` selects the drawn ones.

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
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from queue import SimpleQueue

CHECKOUT = Path(__file__).resolve().parent.parent
FAULTS = CHECKOUT / "tests" / "mutants"
SAMPLED = "src/mainspring/core"
WORK = CHECKOUT / ".cache" / "mutants"
BEGAN = int(time.time())
EDITS = count(1)
"""Numbers of changes of files, which become their times: bytecode is kept by whole seconds and sizes of files."""
TIERS = ("check", "test", "full")
TESTS_FAILED, NO_TESTS = 1, 5
TIERS_TO = {"check": ("check",), "test": ("check", "test"), "full": TIERS}
OPTIONS = {"check": ["-m", "not slow"], "test": [], "full": []}
SUBJECT_LIMIT_S, WHOLE_LIMIT_S = 900, 3600
"""A fault may make tests hang: tests that exceed this limit count as having found the fault."""


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
    """Which tests found a fault."""

    name: str
    subject: str
    fault: str
    tier: str | None
    """None: no tier that was tried has found it."""
    by_subject: bool
    """Whether only the tests of the subject were run last; else all tests of the tier."""
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


def copy_checkout(tree: Path) -> Path:
    """Copy all files that git tracks or would add, to a repository of their own: some tests list the files of git."""
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
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    return tree


def run_tests(tree: Path, tier: str, *tests: str, spread: bool) -> tuple[bool, str]:
    """Run tests of a tier, all by default, until one fails; return whether one did, and which.

    `spread`: in as many processes as the tests of a checkout, instead of one.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "auto" if spread else "0"]
    limit = WHOLE_LIMIT_S if spread else SUBJECT_LIMIT_S
    variables = {
        "PYTHONPATH": str(tree / "src"),
        "MAINSPRING_TESTS": "full" if tier == "full" else "",
        "MAINSPRING_SEED": "1",
    }
    try:
        done = subprocess.run(
            [*command, "--no-header", "-p", "no:cacheprovider", *OPTIONS[tier], *tests],
            cwd=tree,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True, f"no end within {limit} s"
    lines = done.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if done.returncode not in {0, TESTS_FAILED, NO_TESTS} and not failures:
        # A fault that prevents the import of the package ends pytest before any test.
        return True, next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "pytest ended early")
    return done.returncode not in {0, NO_TESTS}, failures[0] if failures else ""


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    time_ = BEGAN + next(EDITS)
    os.utime(path, (time_, time_))


def measure(tree: Path, mutant: Mutant, tiers: Sequence[str], *, by_subject: bool) -> Result:
    """Apply a fault, and run the tests of its subject, or all; return the first tier that finds it."""
    began = time.monotonic()
    path = tree / mutant.file
    original = path.read_text(encoding="utf-8")
    write(path, mutant.applied_to(original))
    found_by, failure = None, ""
    try:
        for tier in tiers:
            found, failure = run_tests(tree, tier, *(mutant.tests if by_subject else ()), spread=not by_subject)
            if found:
                found_by = tier
                break
    finally:
        write(path, original)
    seconds = round(time.monotonic() - began, 1)
    return Result(mutant.name, mutant.subject, mutant.fault, found_by, by_subject, failure, seconds)


class Report:
    """Results so far, which are printed and written to a file as they come."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        (WORK / "results.json").write_text(
            json.dumps([asdict(one) for one in self.results.values()], indent=1), encoding="utf-8"
        )
        tests = "subject" if result.by_subject else "all"
        verdict = f"{result.tier or 'not found'} ({tests})"
        print(
            f"{len(self.results):>4}  {verdict:<20}{result.seconds:>7.1f} s  {result.subject:<10} {result.name}",
            flush=True,
        )

    def summary(self) -> list[Result]:
        """Print how many faults each tier finds; return those that none does."""
        results = self.results.values()
        print(f"\nFirst tier that finds a fault, {len(results)} in all:")
        for tier in TIERS:
            found = [result for result in results if result.tier == tier]
            print(
                f"    {tier:<6}{len(found):>5}, of which {sum(one.by_subject for one in found)} by tests of the subject"
            )
        missed = [result for result in results if result.tier is None]
        print(f"    not found {len(missed)}")
        for result in missed:
            print(f"        {result.name}: {result.fault}")
        return missed


def by_tests_of_subjects(trees: Sequence[Path], mutants: Sequence[Mutant], last: str, report: Report) -> list[Mutant]:
    """Try all faults, several at a time, with the tests of their subjects; return those that these do not find."""
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutant: Mutant) -> Result:
        tree = free.get()
        try:
            return measure(
                tree, mutant, [tier for tier in ("check", "test") if tier in TIERS_TO[last]], by_subject=True
            )
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as threads:
        pending = {threads.submit(one, mutant): mutant for mutant in mutants}
        for future in as_completed(pending):
            report.add(future.result())
    return [mutant for mutant in mutants if report.results[mutant.name].tier is None]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="NAME|FILE",
        help="names of faults, or of files in tests/mutants/ (core); default: all",
    )
    parser.add_argument("--tier", choices=TIERS, default="test", help="last tier to run (default: test)")
    parser.add_argument("--subject-only", action="store_true", help="run only the tests that are listed with a fault")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of faults to try in parallel (default: number of cores)",
    )
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="add faults that are drawn from core/")
    parser.add_argument("--seed", type=int, help="seed of --sample; default: drawn and printed")
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
    WORK.mkdir(parents=True, exist_ok=True)
    with ExitStack() as folders:
        trees = [
            copy_checkout(Path(folders.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-mutants-"))))
            for _ in range(args.jobs)
        ]
        return run(mutants, trees, args.tier, subject_only=args.subject_only)


def run(mutants: Sequence[Mutant], trees: Sequence[Path], last: str, *, subject_only: bool) -> int:
    """Try all faults, and print what was found."""
    for mutant in mutants:
        mutant.applied_to((trees[0] / mutant.file).read_text(encoding="utf-8"))
    print(f"{len(mutants)} faults; first their tests without a fault", flush=True)
    tiers = [tier for tier in ("check", "test") if tier in TIERS_TO[last]]
    check_without_fault(trees[0], tiers[-1], *sorted({test for mutant in mutants for test in mutant.tests}))
    report = Report()
    survivors = by_tests_of_subjects(trees, mutants, last, report)
    if survivors and not subject_only:
        print(f"{len(survivors)} faults are left; first all tests without a fault", flush=True)
        check_without_fault(trees[0], tiers[-1])
    for mutant in survivors:
        if not subject_only:
            report.add(measure(trees[0], mutant, tiers, by_subject=False))
        if report.results[mutant.name].tier is None and last == "full":
            report.add(measure(trees[0], mutant, ["full"], by_subject=True))
    return 1 if report.summary() else 0


def check_without_fault(tree: Path, tier: str, *tests: str) -> None:
    failed, failure = run_tests(tree, tier, *tests, spread=True)
    if failed:
        sys.exit(f"a test fails without a fault: {failure}; correct it first")


if __name__ == "__main__":
    sys.exit(main())
