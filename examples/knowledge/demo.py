"""Ten questions about a handbook and a repository, each answered with citations that are checked.

    .venv/bin/python examples/knowledge/demo.py [URL]

Then the three calls that bots make to LightRAG's server, unchanged but for the base URL.
"""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

URL = "http://127.0.0.1:8765"
HERE = Path(__file__).parent
EXCHANGE = (
    "Date: 2026-02-07 14:30\nSkill: devops\nUser: On which port did we configure Redis?\n"
    "Assistant: Redis listens on port 6380, as the handbook says; carts are kept for thirty days."
)


def call(url: str, method: str, body: Any = None) -> Any:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urlopen(request) as response:
        return json.load(response)


def store(url: str) -> None:
    for folder in ("handbook", "repository"):
        for file in sorted((HERE / folder).iterdir()):
            path = f"{url}/knowledge/files/handbook/{folder}/{file.name}"
            call(path, "PUT", file.read_bytes())


def is_there(url: str, evidence: Any) -> bool:
    """Whether a passage stands in the lines that it names."""
    first, last = evidence["lines"]
    place = f"{url}/knowledge/v1/documents/{evidence['document']}?first={first}&last={last}"
    read = call(place, "GET")
    return read["version"] == evidence["version"] and evidence["text"] in read["text"]


def ask(url: str) -> int:
    """Questions of which all documents were found, and all citations verified."""
    good = 0
    for line in (HERE / "questions.jsonl").read_text().splitlines():
        question = json.loads(line)
        body = {"query": question["query"], "collections": ["handbook"], "limit": 4}
        evidence = call(f"{url}/knowledge/v1/query", "POST", body)["evidence"]
        found = {one["path"] for one in evidence} >= set(question["paths"])
        verified = all(is_there(url, one) for one in evidence)
        good += found and verified
        best = evidence[0]
        place = f"{best['path']}:{best['lines'][0]}-{best['lines'][1]}"
        print(f"{'ok  ' if found and verified else 'miss'} {question['query']}  [{place}]")
    return good


def as_a_bot(url: str) -> str:
    """What a bot pastes into its prompt, from LightRAG's contract."""
    base = f"{url}/lightrag/bot"
    assert call(f"{base}/health", "GET")["status"] == "healthy"
    text = {"text": EXCHANGE, "file_source": "conv_20260207_143000.txt"}
    call(f"{base}/documents/text", "POST", text)
    query = {"query": "Which port has Redis?", "mode": "hybrid"}
    return str(call(f"{base}/query", "POST", query)["response"])


def main() -> None:
    url = sys.argv[1] if len(sys.argv) > 1 else URL
    store(url)
    print(f"{ask(url)} of 10 questions answered with citations that verify")
    print("# Relevant Memory", as_a_bot(url), sep="\n")


if __name__ == "__main__":
    main()
