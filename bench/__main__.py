"""Run every benchmark of this folder, each in a process of its own, or those whose names are given.

python bench                              all of them
python bench drain postgres/drain         these two
python bench postgres --quick             all that are measured on PostgreSQL, with few jobs, in about two minutes
python bench --list                       their names

--quick shows that a benchmark works; benchmarks outside of folders, except claims, do not have it and run in full.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = ("postgres",)  # with what they share in folders below
QUICK = "--quick"
HAVE_QUICK = ("claims",)  # of those outside of folders


def main(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        sys.exit(__doc__)
    scripts = [name_of(path) for path in paths()]
    if "--list" in words:
        print("\n".join(scripts))
        return 0
    names = [word for word in words if word != QUICK]
    chosen = list(dict.fromkeys(script for name in names for script in scripts if name in {script, folder_of(script)}))
    if unknown := set(names) - set(scripts) - set(map(folder_of, scripts)):
        sys.exit(f"There is no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(scripts)}.")
    failed = []
    for name in chosen or scripts:
        print(f"\n{name}\n{'=' * len(name)}", flush=True)
        # As a module, found from the checkout: those in folders share code, some of it with the tests.
        command = [sys.executable, "-m", f"bench.{name.replace('/', '.')}", *options(name, words)]
        if subprocess.run(command, cwd=HERE.parent, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nFailed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def paths() -> list[Path]:
    found = [path for path in sorted(HERE.glob("*.py")) if path.stem != "__main__"]
    return found + [path for folder in FOLDERS for path in sorted((HERE / folder).glob("*.py"))]


def name_of(path: Path) -> str:
    return path.relative_to(HERE).with_suffix("").as_posix()


def folder_of(name: str) -> str:
    return name.rpartition("/")[0]


def options(name: str, words: list[str]) -> list[str]:
    return [QUICK] if QUICK in words and (folder_of(name) or name in HAVE_QUICK) else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
