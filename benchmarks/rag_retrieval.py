"""What LightRAG's own server finds, and what the gateway finds, in the same chunks, by the same
vectors and the same extraction of scripted models.

    python -m benchmarks.rag_retrieval --python ENVIRONMENT/bin/python

The environment is that of benchmarks.rag_contract. By meaning alone (`naive`) the gateway has to
return LightRAG's chunks in its order; `mix` has to have at least its entities and relations.
"""

import asyncio
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import click

from benchmarks.processes import free_port
from benchmarks.rag_contract import (
    READY_S,
    SERVER,
    SETTINGS,
    Call,
    Scripted,
    answered,
    gateway,
    started,
)
from benchmarks.rag_server import NAMES, named, vectors

SHOWN = 5  # entities, relations and, where nothing else is found, chunks
ALL = 1000  # names of ours, where rules find more than the model
CHUNKS = 20  # whose entities and relations are told
THINGS = (
    *("mill", "harbour", "quarry", "orchard", "market", "forge", "chapel", "bridge", "vineyard"),
    *("library", "granary", "lighthouse", "brewery"),
)
DEEDS = ("buys flour", "sells wool", "repairs sails", "burns charcoal", "rings bells", "keeps bees",
         "weaves cloth")  # fmt: skip
TEXTS = tuple(
    f"{NAMES[n % len(NAMES)]} has a {THINGS[n % len(THINGS)]} on its {n + 3} acres. "
    f"{NAMES[(n * 3 + 1) % len(NAMES)]} {DEEDS[n % len(DEEDS)]} there each year {1700 + n * 7}."
    for n in range(60)
)
QUESTIONS = tuple(
    f"Who {DEEDS[(n + n // 3) % len(DEEDS)]} at the {THINGS[n % len(THINGS)]} of {name}?"
    for n, name in enumerate(NAMES)
)
TEMPLATE = SETTINGS.replace(
    "{{provider: disabled}}", '{{provider: local-http, url: "{url}", model: words, poll_s: 0.5}}'
).replace("model: auto}}", "model: auto, semantic_share: SHARE}}")


class Models(Scripted):
    """Vectors of words, and a chat model that names what LightRAG's does."""

    def reply(self, request: Any) -> None:
        if "inputs" in request:
            rows = asyncio.run(vectors(request["inputs"]))
            self.answer("application/json", json.dumps(rows.tolist()))
        else:
            super().reply(request)

    def said(self, messages: list[dict[str, str]]) -> str:
        text = json.loads(messages[-1]["content"])["passage"]
        names = named(text)
        relations = [
            {"source": source, "target": target, "type": "near", "quote": text}
            for source, target in pairwise(names)
        ]
        entities = [{"name": name, "type": "place"} for name in names]
        return json.dumps({"entities": entities, "relations": relations})


def stored(base: str) -> None:
    for number, text in enumerate(TEXTS):
        body = {"text": text, "file_source": f"{number}.txt"}
        status, answer = answered(base, Call("POST", "/documents/text", body))
        if status != 200:
            raise click.ClickException(f"a text is refused: {answer}")


def wait(ask: Callable[[], bool], step: str) -> None:
    until = time.monotonic() + READY_S
    while not ask():
        if time.monotonic() > until:
            raise click.ClickException(f"{step} takes too long")
        time.sleep(0.2)


def all_read(base: str) -> bool:
    _, answer = answered(base, Call("GET", "/documents/status_counts"))
    return bool(answer["status_counts"]["processed"] == len(TEXTS))


def all_extracted(base: str) -> bool:
    _, answer = answered(base, Call("GET", "/knowledge/v1/collections/bot"))
    return bool(answer.get("extraction") == {"processed": len(TEXTS)})


def all_embedded(base: str) -> bool:
    with urllib.request.urlopen(f"{base}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    tasks = [line for line in lines if line.startswith("toolgate_embedding_tasks")]
    asked = {"query": QUESTIONS[0], "collections": ["bot"]}
    _, answer = answered(base, Call("POST", "/knowledge/v1/query", asked))
    return all(task.endswith(" 0.0") for task in tasks) and "note" not in answer


def found(base: str, question: str, mode: str, **more: int) -> Any:
    body = {"query": question, "mode": mode, "top_k": SHOWN, **more}
    status, answer = answered(base, Call("POST", "/query/data", body))
    if status != 200:
        raise click.ClickException(f"a query is refused: {answer}")
    return answer.get("data", {})


def contents(data: Any) -> list[str]:
    return [chunk["content"] for chunk in data.get("chunks", ())]


def graph(data: Any) -> tuple[set[str], set[frozenset[str]]]:
    """Entities and relations; those have no direction in LightRAG."""
    entities = {entity["entity_name"] for entity in data.get("entities", ())}
    pairs = {frozenset((pair["src_id"], pair["tgt_id"])) for pair in data.get("relationships", ())}
    return entities, pairs


def alike(question: str, expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether the one chunks are as near to the question as the others, place by place: those that
    are equally near have no order."""
    query, *rows = asyncio.run(vectors([question, *expected, *actual]))
    near = [round(float(query @ row), 3) for row in rows]
    return near[: len(expected)] == near[len(expected) :]


def naive(theirs: str, ours: str) -> Iterator[str]:
    """Questions for which the gateway finds other chunks, or in another order."""
    chunks = 0
    for question in QUESTIONS:
        expected = contents(found(theirs, question, "naive", chunk_top_k=SHOWN))
        actual = contents(found(ours, question, "naive", chunk_top_k=SHOWN))
        chunks += len(expected)
        if not alike(question, expected, actual[: len(expected)]):
            yield f"{question}\n    {expected}\n    {actual}"
    click.echo(f"naive: {chunks} chunks for {len(QUESTIONS)} questions")
    if not chunks:
        yield "LightRAG finds nothing"


def mix(theirs: str, ours: str) -> Iterator[str]:
    """Questions for which the gateway lacks entities or relations."""
    names = 0
    for question in QUESTIONS:
        entities, relations = graph(found(theirs, question, "mix", chunk_top_k=CHUNKS))
        mix_result = found(ours, question, "mix", top_k=ALL, chunk_top_k=CHUNKS)
        own_entities, own_relations = graph(mix_result)
        names += len(entities) + len(relations)
        missing = [*sorted(entities - own_entities), *map(sorted, relations - own_relations)]
        if missing:
            yield f"{question}\n    lacks {missing}"
    click.echo(f"mix: {names} entities and relations for {len(QUESTIONS)} questions")
    if not names:
        yield "LightRAG finds nothing"


@contextmanager
def filled(share: str) -> Iterator[str]:
    """The gateway with the texts, read and embedded. `share`: of meaning in scores."""
    with gateway(Models, TEMPLATE.replace("SHARE", share)) as base:
        stored(f"{base}/lightrag/bot")
        answered(base, Call("POST", "/knowledge/v1/extract"))
        wait(lambda: all_extracted(base), "extraction")
        wait(lambda: all_embedded(base), "embedding")
        yield f"{base}/lightrag/bot"


@click.command()
@click.option("--python", required=True, help="Python of an environment with lightrag-hku.")
def main(python: str) -> None:
    """Compare what LightRAG finds with what the gateway finds."""
    port, different = free_port(), 0
    with tempfile.TemporaryDirectory() as directory:
        command = [python, str(SERVER), str(port)]
        with started(command, port, "/documents/status_counts", directory) as theirs:
            stored(theirs)
            wait(lambda: all_read(theirs), "reading the texts")
            for share, compare in (("1.0", naive), ("0.5", mix)):
                with filled(share) as ours:
                    others = list(compare(theirs, ours))
                different += len(others)
                for one in others:
                    click.echo(one)
                click.echo(f"{compare.__name__}: {len(others)} different")
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
