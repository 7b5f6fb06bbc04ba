"""LightRAG's own server with a scripted chat model, without network: what benchmarks.rag_contract
and benchmarks.rag_retrieval compare with. Run by the Python of an environment that has
`lightrag-hku[api]==1.5.7`:

    python rag_server.py PORT
"""

import asyncio
import importlib
import json
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

KEY = "secret"
SIZE = 384  # of vectors
ANSWER = "Redis has port 6380."
EXTRACTED = (
    "entity<|#|>Redis<|#|>software<|#|>Redis is a store.\n"
    "entity<|#|>Docker Compose<|#|>software<|#|>A tool.\n"
    "relation<|#|>Docker Compose<|#|>Redis<|#|>deploys<|#|>Docker Compose deploys Redis.\n"
    "<|COMPLETE|>"
)
KEYWORDS = '{"high_level_keywords": ["storage"], "low_level_keywords": ["Redis"]}'

NAMES = (
    *("Aldermoor", "Brackwater", "Corvane", "Dunhollow", "Eskerby", "Fenwright", "Galdorn"),
    *("Hexley", "Ingmere", "Jarrowby", "Kestrelton", "Lorwick", "Marrowdale", "Netherby"),
    *("Oxenholt", "Pellingham", "Quarnford", "Ravenscar", "Stavering", "Thornaby"),
)


def named(text: str) -> list[str]:
    """The names that the scripted models find in a text; each is related to the next one."""
    return [name for name in NAMES if name in text]


def records(names: Sequence[str]) -> str:
    """What the chat model of LightRAG finds in a text with these names."""
    entities = [f"entity<|#|>{name}<|#|>place<|#|>{name} is a place." for name in names]
    relations = [
        f"relation<|#|>{source}<|#|>{target}<|#|>near<|#|>{source} is near {target}."
        for source, target in pairwise(names)
    ]
    return "\n".join([*entities, *relations, "<|COMPLETE|>"])


class Characters:
    """A tokenizer that downloads nothing."""

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))


async def said(prompt: str, system_prompt: str | None = None, **more: Any) -> Any:
    text = (system_prompt or "") + prompt
    names = named(prompt)
    if "high_level_keywords" in text and "entity<|#|>" not in text:
        keywords = {"high_level_keywords": names, "low_level_keywords": names}
        return json.dumps(keywords) if names else KEYWORDS
    if "<|COMPLETE|>" in text:
        return records(names) if names or "last extraction" in prompt else EXTRACTED
    return streamed() if more.get("stream") else ANSWER


async def streamed() -> AsyncIterator[str]:
    yield ANSWER


async def vectors(texts: Sequence[str]) -> Any:
    numpy = importlib.import_module("numpy")
    rows = numpy.zeros((len(texts), SIZE))
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[zlib.crc32(word.encode()) % SIZE] += 1
    return rows / numpy.maximum(numpy.linalg.norm(rows, axis=1, keepdims=True), 1)


async def main(port: int) -> None:
    lightrag, utils = importlib.import_module("lightrag"), importlib.import_module("lightrag.utils")
    sys.argv = sys.argv[:1]  # its routers read arguments of their own
    routers = "lightrag.api.routers"
    query = importlib.import_module(f"{routers}.query_routes")
    documents = importlib.import_module(f"{routers}.document_routes")
    graph = importlib.import_module(f"{routers}.graph_routes")
    rag = lightrag.LightRAG(
        working_dir=tempfile.mkdtemp(),
        tokenizer=utils.Tokenizer("characters", Characters()),
        llm_model_func=said,
        embedding_func=utils.EmbeddingFunc(embedding_dim=SIZE, max_token_size=8192, func=vectors),
    )
    await rag.initialize_storages()
    app = importlib.import_module("fastapi").FastAPI()
    app.state.background_tasks = set()
    app.include_router(query.create_query_routes(rag, KEY, 60))
    manager = documents.DocumentManager(tempfile.mkdtemp())
    app.include_router(documents.create_document_routes(rag, manager, KEY))
    app.include_router(graph.create_graph_routes(rag, KEY))
    uvicorn = importlib.import_module("uvicorn")
    await uvicorn.Server(uvicorn.Config(app, port=port, log_level="error")).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
