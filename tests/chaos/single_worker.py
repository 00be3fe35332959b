"""A worker whose app has a singleton, for the tests beside this file: every step writes a line to the log that all share.

event  program  job  term  ns
ready  s0       -    -     …        the node has joined
step   s0       -    3     …        a step begins
end    s0       -    3     …        the same one ends, or is cancelled
"""

import argparse
import asyncio
import logging
import signal
from functools import cache
from pathlib import Path

from mainspring import Mainspring, Sleep
from mainspring.client.services import ServiceContext
from mainspring.runtime import process
from tests.chaos.worker import Log, end_with_the_parent


def an_app(url: str, log: Log, *, ttl: str, lasts: float) -> Mainspring:
    app = Mainspring(url)

    @app.service(name="sweep", singleton=True, ttl=ttl)
    async def sweep(ctx: ServiceContext) -> Sleep:
        log.write("step", lease=ctx.term)
        try:
            await asyncio.sleep(lasts)
        finally:
            log.write("end", lease=ctx.term)
        return Sleep(0.02)

    return app


async def work(app: Mainspring, log: Log) -> None:
    """Be a node until SIGTERM comes."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.node():
        log.write("ready")
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--url", required=True)
    parser.add_argument("--ttl", default="15s")
    parser.add_argument("--lasts", type=float, default=0.02)
    parser.add_argument("--host", help="pretend to be on a machine of that name, where nobody sees whether it lives")
    args = parser.parse_args()
    end_with_the_parent()
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    if args.host:
        process.host = cache(lambda: str(args.host))
    log = Log(args.folder, args.name)
    asyncio.run(work(an_app(args.url, log, ttl=args.ttl, lasts=args.lasts), log))


if __name__ == "__main__":
    main()
