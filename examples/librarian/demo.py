"""A repository is stored from a directory, asked, and mapped.

.venv/bin/python examples/librarian/demo.py [--url URL] [--directory DIRECTORY] [QUESTION]
"""

import argparse
import asyncio
import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from gateway.client.librarian import Librarian, UploadSource

URL = "http://127.0.0.1:8765"
DIRECTORY = Path(__file__).parents[2] / "registry" / "search"
QUESTION = "How are the scores of words and of vectors fused into one ranking?"
COLLECTION = "repository"
WAIT_S = 60


def archive(directory: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for file in sorted(directory.rglob("*.py")):
            tar.add(file, str(file.relative_to(directory)))
    return buffer.getvalue()


def await_gateway(url: str) -> None:
    """Its first start makes a database, which takes some seconds."""
    for _ in range(WAIT_S):
        try:
            with urlopen(f"{url}/ready"):
                return
        except OSError:
            time.sleep(1)


def call(url: str, operation: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    request = Request(f"{url}/librarian/v1/{operation}", json.dumps(body).encode(), headers)
    with urlopen(request) as response:
        return json.load(response)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--url", default=URL)
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    given = parser.parse_args()
    await_gateway(given.url)
    async with Librarian(given.url) as librarian:
        source = UploadSource("source.tar.gz", archive(given.directory))
        stored = await librarian.ingest(source=source, collection=COLLECTION)
        print(f"stored: {stored['added']} new, {stored['unchanged']} as they were\n")
        found = await librarian.query(collection=COLLECTION, question=given.question)
    print(f"{given.question}\n\n{found.answer}\n")
    for one in found.sources:
        first, last = one.lines
        text = call(given.url, "read", collection=COLLECTION, path=one.path, first=first,
                    last=last)["text"]  # fmt: skip
        print(f"{one.path}:{first}-{last}  {text.strip().splitlines()[0][:80]}")
    print(f"confidence {found.confidence:.2f}\n")
    best = call(given.url, "map", collection=COLLECTION, tokens=400)["text"]
    print(f"The map:\n{best}\n")
    name = best.partition(" def ")[2].partition("(")[0]
    places = call(given.url, "references", symbol=name, collections=[COLLECTION])["symbols"]
    print(f"{name} is referred to {len(places)} times, first in {places[0]['path']}.")


if __name__ == "__main__":
    asyncio.run(main())
