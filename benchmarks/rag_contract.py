"""LightRAG's REST contract beside LightRAG's own server: the same requests to both, with scripted
chat models, and where statuses or the members of answers differ.

    python -m benchmarks.rag_contract --python ENVIRONMENT/bin/python

The environment has `lightrag-hku[api]==1.5.7`, which the product does not need. Calls with a reason
are intended to differ (docs/knowledge.md); any other difference is an error.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

from benchmarks.processes import free_port
from benchmarks.rag_server import ANSWER, KEY

READY_S = 120.0
SERVER = Path(__file__).with_name("rag_server.py")
TEXT = "Deploy using Docker Compose. Redis has port 6380."
ASKED = "Which port has Redis?"
FREE = frozenset({"metadata", "created_at", "truncate", "history_messages", "engines", "keywords"})
APPENDED = "another text under one file_source is appended, the same one is known"
LABELS = "a file_source is a label, and none is needed"
NAMES = "names come from rules too, without sources of chunks"
EDITS = "edits of the graph are documents"
NOTHING = "nothing found: an empty response"
IDLE = "texts are stored at once: no pipeline runs"
OFF = "deleting all documents is off"
TYPES = "other kinds of files are read"
SETTINGS = """\
auth: {{mode: none}}
server: {{port: {port}}}
database: {{data_dir: {data}, system_user: {user}}}
embedding: {{provider: disabled}}
disclosure: {{when_down: lexical}}
models:
  strategy: scripted
  strategies: {{scripted: {{url: "{url}", needs_key: false, model: m}}}}
knowledge: {{enabled: true, model: auto}}
"""


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    body: Any = None
    intended: str = ""  # why the answers differ
    waits: bool = False  # until what was stored has been read


def asking(path: str = "/query", intended: str = "", **body: Any) -> Call:
    return Call("POST", path, body, intended)


def getting(path: str, intended: str = "") -> Call:
    return Call("GET", path, None, intended)


def texting(intended: str = "", *, waits: bool = False, **body: Any) -> Call:
    return Call("POST", "/documents/text", body, intended, waits)


REDIS = {"source_entity": "Docker Compose", "target_entity": "Redis"}
MADE = {"entity_name": "Tesla", "entity_data": {"description": "A maker.", "entity_type": "firm"}}
CALLS = (
    asking(query=ASKED, mode="hybrid", intended=NOTHING),
    texting(text=TEXT, file_source="conv_1.txt", waits=True),
    texting(APPENDED, text=TEXT, file_source="conv_1.txt"),
    texting(APPENDED, text="Other.", file_source="conv_1.txt"),
    texting(LABELS, text="No name."),
    texting(text=" ", file_source="x.txt"),
    texting(text="x", file_source="../x.txt"),
    texting(),
    *(asking(query=ASKED, mode=one) for one in ("naive", "local", "global", "hybrid", "mix")),
    asking(query="hello", mode="bypass"),
    asking(query="Which port?", mode="HYBRID"),
    asking(query="x"),
    asking(query=""),
    asking(query="端口"),
    asking(query="Redis", top_k=0),
    asking(query="Redis", top_k=1001),
    asking(query="Redis", unknown=1),
    asking(),
    asking(query="Redis port", include_references=False),
    asking(query="Redis port", include_chunk_content=True),
    asking(query="Redis port", only_need_context=True),
    asking(query="Redis port", only_need_prompt=True),
    asking("/query/data", query="Redis port"),
    asking("/query/stream", query="ports of Redis"),
    asking("/query/stream", query="Redis port", stream=False),
    getting("/documents/status_counts"),
    getting("/documents/pipeline_status", IDLE),
    asking("/documents/paginated", page=1, page_size=10),
    asking("/documents/paginated", page_size=5),
    getting("/documents/track_status/none"),
    getting("/documents/supported_file_types"),
    getting("/graph/label/list"),
    getting("/graph/label/popular?limit=5"),
    getting("/graph/label/search?q=Red"),
    getting("/graph/label/search"),
    getting("/graph/entity/exists?name=Redis"),
    getting("/graph/entity/exists"),
    getting("/graphs?label=Redis", NAMES),
    getting("/graphs?label=Nothing"),
    getting("/graphs"),
    Call("POST", "/graph/entity/create", MADE),
    Call("POST", "/graph/entity/create", MADE),
    asking("/graph/entity/edit", entity_name="Tesla", updated_data={"description": "Of Texas."}),
    asking("/graph/entity/edit", entity_name="Nope", updated_data={"description": "x"}),
    asking("/graph/relation/create", **REDIS, relation_data={"description": "x", "keywords": "x"},
           intended=EDITS),
    asking("/graph/relation/edit", source_id="Nope", target_id="Redis", updated_data={}),
    asking("/graph/entities/merge", entities_to_change=["Tesla"], entity_to_change_into="Redis"),
    asking("/graph/entities/merge", entities_to_change=[], entity_to_change_into="Redis"),
    *(Call("POST", "/query", {"query": "Redis port", **one}) for one in (
        {"top_k": "40"}, {"top_k": 40.0}, {"top_k": 40.5}, {"top_k": "forty"}, {"top_k": True},
        {"chunk_top_k": " 7 "}, {"include_references": "true"}, {"include_references": 1},
        {"include_references": "perhaps"}, {"only_need_context": "no"}, {"query": 7},
        {"response_type": ""}, {"response_type": "x" * 257}, {"max_total_tokens": 0},
        {"max_total_tokens": 1_000_001}, {"max_entity_tokens": 0}, {"hl_keywords": "x"},
        {"conversation_history": [{"content": "x"}]}, {"conversation_history": "x"},
        {"conversation_history": [{"role": "user", "content": "Hello?"}]},
    )),
    asking("/documents/paginated", page="1", page_size=10.0),
    asking("/documents/paginated", page=0),
    asking("/documents/paginated", status_filter="done"),
    asking("/documents/paginated", status_filter="failed"),
    asking("/documents/paginated", status_filters=["processed", "nope"]),
    asking("/documents/paginated", sort_field="name"),
    getting("/documents/track_status/%20"),
    getting("/graphs?label=Redis&max_depth=0"),
    getting("/graphs?label=*&max_depth=1000&max_nodes=5000", NAMES),
    getting("/graph/label/popular?limit=5.0"),
    getting("/graph/label/popular?limit=1001"),
    getting("/graph/label/search?q="),
    getting("/graph/entity/exists?name="),
    texting(text=["x"], file_source="x.txt"),
    asking("/graph/entity/edit", entity_name="Redis", updated_data={}),
    asking("/graph/entity/edit", entity_name=" ", updated_data={}),
    asking("/graph/entity/edit", entity_name="Redis", updated_data={"nope": "x"}),
    asking("/graph/entity/edit", entity_name="Redis", updated_data={"description": 7}),
    asking("/graph/entity/edit", entity_name="Redis", updated_data={"description": "x"},
           allow_rename="true"),
    asking("/graph/entity/create", entity_name="Volvo", entity_data={}, intended=EDITS),
    asking("/graph/entity/create", entity_name=" ", entity_data={"description": "x"}),
    asking("/graph/relation/create", source_entity="Redis", target_entity="Nope",
           relation_data={"description": "x"}),
    asking("/graph/relation/create", **REDIS, relation_data={"weight": "x", "description": "x"}),
    Call("DELETE", "/graph/relation/delete", {"source_entity": "Redis", "target_entity": "Nope"}),
    Call("DELETE", "/graph/relation/delete", REDIS),
    Call("DELETE", "/graph/relation/delete", {"source_entity": "Redis"}),
    Call("DELETE", "/graph/entity/delete", {"entity_name": "Nope"}),
    Call("DELETE", "/graph/entity/delete", {"entity_name": " "}),
    Call("DELETE", "/graph/entity/delete", {"entity_name": "Docker Compose"}),
    getting("/graph/entity/exists?name=Docker%20Compose"),
    Call("DELETE", "/documents/delete_document", {"doc_ids": []}),
    Call("DELETE", "/documents/delete_document", {"doc_ids": ["a", "a "]}),
    Call("DELETE", "/documents/delete_document", {"doc_ids": [" "]}),
    Call("DELETE", "/documents/delete_document", {"doc_ids": ["a"], "delete_file": "false"}),
    Call("DELETE", "/documents/delete_document", {"doc_ids": ["nope"]}),
    asking("/documents/texts", texts=["One text.", "Two text."], file_sources=["a.txt", "b.txt"]),
    asking("/documents/texts", texts=[], file_sources=[]),
    asking("/documents/texts", texts=["x", "y"], file_sources=["a"]),
    asking("/documents/texts", texts=["x", " "], file_sources=["c.txt", "d.txt"]),
    asking("/documents/texts", texts=["x", "y"], file_sources=["c.txt", "c.txt"],
           intended=APPENDED),
    asking("/documents/scan"),
    Call("POST", "/documents/reprocess_failed"),
    asking("/documents/clear_cache"),
    Call("POST", "/documents/cancel_pipeline", None, IDLE),
    Call("DELETE", "/documents", None, OFF),
)  # fmt: skip


def shape(value: Any) -> Any:
    """The members of an answer and their types."""
    if isinstance(value, dict):
        return {name: shape(value[name]) for name in sorted(value) if name not in FREE}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) else type(value).__name__


def alike(left: Any, right: Any) -> bool:
    """Whether shapes are equal; a list where the other found nothing is."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return not left or not right or all(map(alike, left, right))
    return bool(left == right)


def answered(base: str, call: Call) -> tuple[int, Any]:
    data = None if call.body is None else json.dumps(call.body).encode()
    headers = {"Content-Type": "application/json", "X-API-Key": KEY}
    asked = urllib.request.Request(base + call.path, data, headers, method=call.method)
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            status, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    if not text.startswith(("{", "[")):
        return status, text
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    return status, lines[0] if len(lines) == 1 else lines


class Scripted(BaseHTTPRequestHandler):
    """The chat model of the gateway: says what LightRAG's says, in the gateway's formats."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(asked)

    def reply(self, request: Any) -> None:
        said = self.said(request["messages"])
        choice = {"index": 0, "finish_reason": "stop"}
        if request.get("stream"):
            event = {"choices": [{**choice, "delta": {"content": said}}]}
            kind, body = "text/event-stream", f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
        else:
            message = {"role": "assistant", "content": said}
            answer = {"choices": [{**choice, "message": message}]}
            kind, body = "application/json", json.dumps(answer)
        self.answer(kind, body)

    def said(self, messages: list[dict[str, str]]) -> str:
        return _said(messages)

    def answer(self, kind: str, body: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


def _said(messages: list[dict[str, str]]) -> str:
    if "JSON lines" in messages[0]["content"]:
        quotes = [{"passage": 1, "quote": "Redis has port 6380"}]
        return json.dumps({"text": ANSWER, "quotes": quotes}) + "\n"
    if messages[0]["role"] != "system":
        return ANSWER
    entities = [{"name": "Redis", "type": "software", "description": "A store."},
                {"name": "Docker Compose", "type": "software"}]  # fmt: skip
    return json.dumps({"entities": entities, "relations": []})


@contextlib.contextmanager
def started(command: list[str], port: int, path: str, directory: str) -> Iterator[str]:
    """The base URL of a server, once it answers."""
    child = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)  # fmt: skip
    base, until = f"http://127.0.0.1:{port}", time.monotonic() + READY_S
    try:
        while True:
            with contextlib.suppress(OSError):
                if answered(base, Call("GET", path))[0] == 200:
                    break
            if child.poll() is not None or time.monotonic() > until:
                raise click.ClickException(f"{command[0]} does not answer")
            time.sleep(0.1)
        yield base
    finally:
        child.terminate()
        child.wait(30)


@contextlib.contextmanager
def gateway(
    handler: type[BaseHTTPRequestHandler] = Scripted, template: str = SETTINGS
) -> Iterator[str]:
    model = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as directory:
        port, url = free_port(), f"http://127.0.0.1:{model.server_port}/v1"
        data = Path(directory, "data")
        user = "nobody" if os.geteuid() == 0 else '""'
        Path(directory).chmod(0o711)  # PostgreSQL may run as another user
        settings = template.format(port=port, url=url, data=data, user=user)
        Path(directory, "toolgate.yaml").write_text(settings)
        command = [sys.executable, "-m", "gateway", "serve"]
        with started(command, port, "/ready", directory) as base:
            yield base
    model.shutdown()


def differences(theirs: str, ours: str) -> Iterator[tuple[Call, Mapping[str, Any]]]:
    for call in CALLS:
        shapes = {"lightrag": answered(theirs, call), "toolgate": answered(ours, call)}
        told = {name: (status, shape(answer)) for name, (status, answer) in shapes.items()}
        if not alike(told["lightrag"], told["toolgate"]):
            yield call, told
        while call.waits and not _read(theirs, Call("GET", "/documents/status_counts")):
            time.sleep(0.1)


def _read(base: str, call: Call) -> bool:
    return bool(answered(base, call)[1]["status_counts"]["processed"])


@click.command()
@click.option("--python", required=True, help="Python of an environment with lightrag-hku.")
def main(python: str) -> None:
    """Compare LightRAG's contract with LightRAG's own server."""
    port, others, intended = free_port(), 0, 0
    with tempfile.TemporaryDirectory() as directory:
        command = [python, str(SERVER), str(port)]
        with started(command, port, "/documents/status_counts", directory) as theirs, \
                gateway() as ours:  # fmt: skip
            for call, told in differences(theirs, f"{ours}/lightrag/bot"):
                intended, others = intended + bool(call.intended), others + (not call.intended)
                body = json.dumps(call.body, ensure_ascii=False)[:80]
                click.echo(f"{call.method} {call.path} {body}  {call.intended or 'DIFFERENT'}")
                for name, value in told.items() if not call.intended else ():
                    click.echo(f"    {name}: {json.dumps(value)[:600]}")
    equal = len(CALLS) - others - intended
    click.echo(f"{len(CALLS)} calls: {equal} equal, {intended} intended, {others} different")
    raise SystemExit(1 if others else 0)


if __name__ == "__main__":
    main()
