"""Research against a plain query: what the same questions to the same documents take, with a model
that is scripted and as short of words in each of them.

Calls and tokens (4 characters each) are those that the gateway reports. What a model makes of them
is not measured: the script reads nothing.
"""

import json
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.library import SETTINGS, TIMEOUT_S, WORDS, sent
from benchmarks.rig import Rig
from benchmarks.table import Row
from benchmarks.toolgate import installation, serving

DOCUMENTS = Path(__file__).parents[1] / "docs"
QUESTIONS = (
    "How long is a claim on a source kept when its reader dies?",
    "Which header carries the signature of a webhook?",
    "What limits the memory of a script?",
    "How are passages found without a model?",
    "Where are secrets stored, and with which key?",
    "What does a gateway do while the database is away?",
    "Which metrics tell how long calls wait?",
    "How is a new embedding model put to use?",
)
CODE = """```repl
hits = lib.search({question!r}, k=5)
asked = [f"What does this say of the question? {{hit['text']}}" for hit in hits]
print(*llm_query_batched(asked), sep="\\n")
```"""
FINAL = """```repl
words = hits[0]["text"].splitlines()[-1]
FINAL(f'It is written there [{hits[0]["path"]}:{hits[0]["lines"][1]} "{words}"].')
```"""
WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "query": ("query", {}),
    "research, mapreduce": ("research", {"strategy": "mapreduce"}),
    "research, recursive": ("research", {"strategy": "recursive"}),
}


def measure_recursion(rig: Rig) -> list[Row]:
    with _model() as url:
        strategy = {"url": url, "needs_key": False, "model": "m"}
        settings = {
            **SETTINGS, **WORDS,
            "models": {"strategies": {"scripted": strategy}, "strategy": "scripted"},
            "librarian": {
                "enabled": True,
                "query": {"model": "scripted"},
                "research": {"enabled": True, "model": "scripted"},
                "answers": {"answers": 0},
            },
        }  # fmt: skip
        with (
            installation(rig, "recursion", {}, settings) as site,
            serving(rig, site) as child,
            closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection,
        ):
            for path in sorted(DOCUMENTS.glob("*.md")):
                body = {"collection": "docs", "path": path.name, "text": path.read_text()}
                sent(connection, "POST", "/knowledge/v1/documents", msgspec.json.encode(body))
            return [row for way in WAYS for row in _rows(connection, way)]


def _rows(connection: HTTPConnection, way: str) -> Iterator[Row]:
    name, more = WAYS[way]
    bodies = [msgspec.json.encode({"question": question, **more}) for question in QUESTIONS]
    answers = [sent(connection, "POST", f"/librarian/v1/{name}", body) for body in bodies]
    spent = [answer["spent"] for answer in answers]
    incomplete = sum(bool(answer.get("incomplete")) for answer in answers)
    note = f"mean of {len(QUESTIONS)} questions to docs/, {incomplete} incomplete"
    requests = [budget["calls"] + budget["iterations"] for budget in spent]
    yield Row(f"{way}: requests of a model", statistics.mean(requests), "", note=note)
    yield Row(f"{way}: tokens", statistics.mean(budget["tokens"] for budget in spent), "")


def _said(messages: Sequence[Any]) -> str:
    """What the model says: code, findings, or a few words."""
    told, last = messages[0]["content"], messages[-1]["content"]
    if "writing Python" in told:
        question = messages[1]["content"].partition("\n")[0].removeprefix("Question: ")
        return CODE.format(question=question) if len(messages) == 2 else FINAL
    if "Choose the passages" in told:
        return json.dumps({"chosen": list(range(1, 11))})
    if "from these findings" in told:
        return json.dumps({"sentences": [{"text": "It is written there.", "findings": [1]}]})
    if "this passage" in told:
        quote = max(last.splitlines()[2:-1], key=len, default="")
        return json.dumps({"findings": [{"claim": "It is written there.", "quote": quote}]})
    return "It is written there."


@contextmanager
def _model() -> Iterator[str]:
    """The address of the model."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        text = _said(messages)
        size = sum(len(message["content"]) for message in messages)
        usage = {"prompt_tokens": size // 4, "completion_tokens": len(text) // 4 + 1}
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
