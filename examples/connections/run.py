"""What the first terminal of README.md runs: three services and the gateway, until Ctrl-C.

    python run.py

Both are child processes, which end with this one.
"""

import asyncio
import sys
from pathlib import Path

from examples.run import announce, child, first_line, main, step, until_one_ends

FOLDER = Path(__file__).resolve().parent
SERVICES = (sys.executable, str(FOLDER / "services.py"))
GATEWAY = (sys.executable, "-m", "gateway", "serve", "-c", str(FOLDER / "toolgate.yaml"))
TRY = """
In another terminal:
  toolgate users add ann

Ctrl-C stops both.
"""


async def serve() -> None:
    """Serve until a child ends; Stopped says which."""
    step("Starting three services, and the gateway ...")
    async with child(*SERVICES) as services:
        print(await first_line(services, "program of the services"))
        async with child(*GATEWAY, *sys.argv[1:]) as gateway:
            announcing = asyncio.ensure_future(announce(gateway, TRY))
            await until_one_ends({"program of the services": services, "gateway": gateway})
        await announcing


if __name__ == "__main__":
    sys.exit(main(serve))
