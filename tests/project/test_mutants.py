"""Every fault of tests/mutants/ can be applied to the code as it is, and names tests that exist."""

import tomllib
from pathlib import Path


def test_every_fault_can_be_applied_and_names_its_tests(root: Path) -> None:
    faults = [
        fault
        for path in sorted((root / "tests" / "mutants").glob("*.toml"))
        for fault in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]
    counts = {fault["name"]: (root / fault["file"]).read_text(encoding="utf-8").count(fault["old"]) for fault in faults}
    missing = {fault["name"]: test for fault in faults for test in fault["tests"] if not (root / test).exists()}

    assert len(faults) == len(counts) >= 50, "each has a name of its own"
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert missing == {}
