"""Fetch what the dashboard takes from others, and hold it against the sums that are kept beside it.

    python tools/vendor.py          fetch all of it again, with npm, and write it where it belongs
    python tools/vendor.py --check    fetch nothing, and say whether the files are the ones that the table names

The table is in src/mainspring/web/static/vendor/README.md. For a newer version, change its row, run this, look at the
difference, and put the sum that it prints into the row.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "src/mainspring/web/static/vendor"
ROW = re.compile(
    r"\| `(?P<file>[^`]+)` \| `(?P<package>[^:`]+):(?P<inside>[^`]+)` \| (?P<version>\S+) \| [^|]+ \| `(?P<sum>\w+)` \|"
)


def rows() -> list[dict[str, str]]:
    return [found.groupdict() for found in ROW.finditer((FOLDER / "README.md").read_text(encoding="utf-8"))]


def fetched(package: str, version: str, inside: str, folder: Path) -> bytes:
    archive = folder / f"{package}-{version}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{package}@{version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive) as opened:
        member = opened.extractfile(f"package/{inside}")
        if member is None:
            raise FileNotFoundError(f"{inside} in {archive.name}")
        return member.read()


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for row in rows():
            path = FOLDER / row["file"]
            if "--check" not in sys.argv[1:]:
                path.write_bytes(fetched(row["package"], row["version"], row["inside"], Path(folder)))
            found = sha256(path.read_bytes()).hexdigest()
            wrong += found != row["sum"]
            print(f"{row['file']}: {'as expected' if found == row['sum'] else f'its sum is {found}'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
