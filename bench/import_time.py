"""How long a program waits for `import mainspring`.

The three commands take turns, so that a machine that gets slower or faster meanwhile does so for all of them.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 31
COMMANDS = ("pass", "import asyncio", "import mainspring")


def main() -> None:
    for command in COMMANDS:  # the first run of each writes byte code and warms the disk cache
        measure(command)
    times: dict[str, list[float]] = {command: [] for command in COMMANDS}
    for _ in range(ROUNDS):
        for command, took in times.items():
            took.append(measure(command))
    medians = {command: statistics.median(took) for command, took in times.items()}
    print(f"Python {sys.version.split()[0]}, median of {ROUNDS} starts\n")
    print(f"{'python -c':<20}{'ms':>8}{'fastest':>10}{'× pass':>9}{'× asyncio':>12}")
    for command, median in medians.items():
        print(
            f"{command:<20}{median * 1000:>8.1f}{min(times[command]) * 1000:>10.1f}"
            f"{median / medians['pass']:>9.2f}{median / medians['import asyncio']:>12.2f}"
        )


def measure(command: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", command], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
