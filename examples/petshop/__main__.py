"""`python -m examples.petshop`: serves the pet shop, and prints its URL when it does."""

import argparse
import os
import socket

import uvicorn

from examples.petshop.app import build_app
from examples.petshop.store import Store

HOST = "127.0.0.1"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.petshop", description=__doc__)
    parser.add_argument("--port", type=int, default=8766, help="0 takes a free one")
    parser.add_argument("--database", default=":memory:", help="an SQLite file, to keep the state")
    arguments = parser.parse_args()
    try:
        listener = socket.create_server((HOST, arguments.port))
    except OSError as error:
        parser.exit(1, f"{HOST}:{arguments.port}: {os.strerror(error.errno or 0)}. Try --port 0.\n")
    store = Store(arguments.database)
    server = uvicorn.Server(uvicorn.Config(build_app(store), log_level="warning"))
    # It listens already: who connects from now on is served as soon as the loop runs.
    print(f"http://{HOST}:{listener.getsockname()[1]}", flush=True)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        store.close()


if __name__ == "__main__":
    main()
