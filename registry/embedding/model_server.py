"""Model server: one copy of the local models for all workers of a machine, on a Unix socket, and
the embedder that is its client.

A request and its answer are one message each on a connection of their own: 4 bytes of length, most
significant first, then MessagePack. Only the user of the process may enter the socket's directory.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio import BrokenResourceError, EndOfStream, IncompleteRead
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from registry.embedding.embedder import Embedder, EmbeddingFailed, Vectors

LENGTH_BYTES = 4
MESSAGE_BYTES = 1 << 28  # more than any batch
DISCONNECT_ERRORS = (
    OSError,
    BrokenResourceError,
    EndOfStream,
    IncompleteRead,
)  # the other side has left
UNAVAILABLE = "The process with the embedding model does not answer."


class _Texts(Struct, frozen=True, array_like=True):
    model: str
    query: bool
    texts: list[str]


class _Answer(Struct, frozen=True, array_like=True):
    vectors: bytes = b""  # 32-bit floats, row by row
    failure: str = ""
    retryable: bool = False


class SharedModel:
    """`Embedder` whose model runs in the server at `socket`. `local` is the same model, which this
    process never loads."""

    def __init__(self, local: Embedder, socket: str) -> None:
        self._socket = socket
        self.model = local.model
        self.dimension = local.dimension

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        import numpy as np  # a tenth of a second and 15 MB, in the processes that search

        request = _Texts(self.model, query, list(texts))
        try:
            async with await anyio.connect_unix(self._socket) as stream:
                await _send(stream, request)
                answer = msgspec.msgpack.decode(await _receive(stream), type=_Answer)
        except DISCONNECT_ERRORS as error:  # it is being replaced
            raise EmbeddingFailed(UNAVAILABLE, retryable=True) from error
        if answer.failure:
            raise EmbeddingFailed(answer.failure, retryable=answer.retryable)
        return np.frombuffer(answer.vectors, dtype=np.float32).reshape(len(texts), self.dimension)

    async def close(self) -> None:
        pass


@asynccontextmanager
async def model_server(
    socket: Path, embedder_of: Callable[[str], Embedder | None]
) -> AsyncIterator[None]:
    """Serve local models at `socket` inside. `embedder_of` returns the embedder of a label; each is
    made once, and loads with its first text."""
    embedders: dict[str, Embedder] = {}

    async def embed_request(request: _Texts) -> _Answer:
        try:
            if request.model not in embedders:
                if (embedder := embedder_of(request.model)) is None:
                    raise EmbeddingFailed(f"There is no model {request.model}.", retryable=False)
                embedders[request.model] = embedder
            vectors = await embedders[request.model].embed(request.texts, query=request.query)
        except EmbeddingFailed as error:
            return _Answer(failure=str(error), retryable=error.retryable)
        return _Answer(vectors.tobytes())

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with suppress(*DISCONNECT_ERRORS, msgspec.DecodeError):
                request = msgspec.msgpack.decode(await _receive(stream), type=_Texts)
                await _send(stream, await embed_request(request))

    async with (
        await anyio.create_unix_listener(socket) as listener,  # replaces that of a killed server
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, serve)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
    for embedder in embedders.values():
        await embedder.close()


async def _receive(stream: SocketStream) -> bytes:
    """One message."""
    buffered = BufferedByteReceiveStream(stream)
    length = int.from_bytes(await buffered.receive_exactly(LENGTH_BYTES))
    if length > MESSAGE_BYTES:
        raise IncompleteRead
    return await buffered.receive_exactly(length)


async def _send(stream: SocketStream, message: Struct) -> None:
    encoded = msgspec.msgpack.encode(message)
    await stream.send(len(encoded).to_bytes(LENGTH_BYTES) + encoded)
