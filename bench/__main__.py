"""Run every benchmark of this folder, each in a process of its own, or those whose names are given."""

import subprocess
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    if {"-h", "--help"} & set(names):
        sys.exit(__doc__)
    scripts = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.py")) if path.stem != "__main__"}
    if unknown := set(names) - set(scripts):
        sys.exit(f"There is no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(scripts)}.")
    failed = []
    for name in names or scripts:
        print(f"\n{name}\n{'=' * len(name)}", flush=True)
        if subprocess.run([sys.executable, scripts[name]], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nFailed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
