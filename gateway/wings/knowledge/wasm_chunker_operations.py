"""Operations of the chunkers in WebAssembly of a collection."""

import base64
import binascii
import re

import msgspec

from config.knowledge import CollectionName, KnowledgeSettings
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import invalid
from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.reading.process_pool import ReadingWorkers, Turn
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.documents.reading.source_files import matches
from gateway.wings.documents.reading.wasm_limits import WasmLimits
from gateway.wings.knowledge.caller_access import READ, WRITE, KnowledgeReader, knowledge_reader
from gateway.wings.knowledge.requests_and_views import ChunkerList, PutChunker
from gateway.wings.knowledge.wasm_chunker_store import (
    ChunkerRule,
    ChunkerStore,
    StoredChunker,
    module_hash,
)

_SURROGATES = re.compile("[\ud800-\udfff]")


class ChunkerOperations:
    def __init__(
        self, chunkers: ChunkerStore, workers: ReadingWorkers, settings: KnowledgeSettings
    ) -> None:
        self._chunkers = chunkers
        self._workers = workers
        self._settings = settings

    @property
    def operations(self) -> tuple[Operation, ...]:
        path = "/collections/{collection}/chunkers"
        types = {"collection": CollectionName}
        return (
            Operation(
                "knowledge_chunkers", "GET", path,
                "List the chunkers in WebAssembly of a collection.", READ, self.list, ChunkerList,
                types=types,
            ),
            Operation(
                "knowledge_put_chunker", "PUT", path + "/{chunker}",
                "Try a chunker in WebAssembly, and use it for documents of a collection.", WRITE,
                self.put, StoredChunker, body=PutChunker,
                types={**types, "chunker": CollectionName},
            ),
            Operation(
                "knowledge_delete_chunker", "DELETE", path + "/{chunker}",
                "Delete a chunker of a collection.", WRITE, self.delete, status=204,
                types={**types, "chunker": CollectionName},
            ),
        )  # fmt: skip

    def _reader(self, request: OperationInput) -> KnowledgeReader:
        return knowledge_reader(request, self._settings.agent_claim)

    async def list(self, request: OperationInput) -> ChunkerList:
        chunkers = await self._chunkers.list(self._reader(request), request.names["collection"])
        return ChunkerList(tuple(chunkers))

    async def put(self, request: OperationInput) -> StoredChunker:
        body: PutChunker = request.body
        reader, collection = self._reader(request), request.names["collection"]
        await self._chunkers.check(reader, collection)
        module = self._module(body)
        samples = [(sample.path, sample.text) for sample in body.samples]
        chunking = self._settings.chunking
        try:
            matches(body.paths, "")  # so that a pattern that is none is refused
            report = await self._workers.try_module(
                module,
                samples,
                ChunkingOptions(chunking.size, chunking.overlap),
                turn=Turn(reader.tenant, reader.owner),
            )
        except ReadingRefused as error:
            raise invalid(f"{error}.") from error
        if report.error:
            raise invalid(f"module: it {report.error}.")
        rule = ChunkerRule(request.names["chunker"], module_hash(module), body.paths)
        return await self._chunkers.put(reader, collection, rule, module=module, report=report)

    def _module(self, body: PutChunker) -> bytes:
        """Raises ProblemDetails."""
        for number, sample in enumerate(body.samples):
            if "\0" in sample.text or _SURROGATES.search(sample.text + sample.path):
                raise invalid(f"samples[{number}]: expected text without NUL and lone surrogates")
        most = self._settings.chunkers.module_bytes
        try:
            module = base64.b64decode(body.module, validate=True)
        except (binascii.Error, ValueError) as error:
            raise invalid("module: expected base64") from error
        if len(module) > most:
            raise invalid(
                f"module: it has {len(module)} bytes, expected at most {most}"
                " (knowledge.chunkers.module_bytes)"
            )
        return module

    async def delete(self, request: OperationInput) -> None:
        names = request.names
        await self._chunkers.delete(self._reader(request), names["collection"], names["chunker"])


def wasm_limits(settings: KnowledgeSettings) -> WasmLimits:
    return msgspec.convert(settings.chunkers, WasmLimits, from_attributes=True)
