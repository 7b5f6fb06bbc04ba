"""Chunkers in WebAssembly, which tenants supply for formats of their own, in two forms.

A component exports the interface `toolgate:librarian/chunker@1.0.0`. A core module has the core
ABI, version 1: it exports `memory`, `tg_abi() -> i32` (1), `tg_alloc(i32) -> i32`,
`tg_analyze(ptr, len) -> i64` and `tg_chunk(ptr, len, config_ptr, config_len) -> i64`, whose results
are `ptr << 32 | len` of JSON. Neither imports anything: it has no files, network, clock or random
numbers. Each file gets a new instance, with limits of fuel, time and memory. Runs in reading
processes alone. Compiled code is never loaded from bytes, as nothing could check it.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PurePosixPath
from threading import Timer
from typing import Annotated, Any, ClassVar

import msgspec
import wasmtime
from msgspec import Meta, Raw, Struct
from wasmtime import component

from config.value_types import END
from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions, Offsets
from gateway.wings.documents.chunking.text_splitting import size
from gateway.wings.documents.reading.wasm_limits import (
    ChunkerRefused,
    ChunkerReport,
    SampleReport,
    WasmLimits,
)

ABI = 1
GAP = "gap"  # kind of a span that is no chunk
SAMPLE_BYTES = 65_536  # of a file, that `tg_analyze` gets
CONFIG_BYTES = 65_536  # that it returns, as JSON
OUTPUT_BYTES = 16 * 2**20  # that `tg_chunk` returns; of a component, as JSON
COMPILE_S = 2.0  # of one core
_TABLE = 10_000  # elements
_BLANK = b" \t\r\n"
_FUNCTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "tg_abi": ((), ("i32",)),
    "tg_alloc": (("i32",), ("i32",)),
    "tg_analyze": (("i32", "i32"), ("i64",)),
    "tg_chunk": (("i32",) * 4, ("i64",)),
}
_COMPONENT = b"\0asm\r\0\1\0"  # version and layer
_INTERFACE = "toolgate:librarian/chunker@1.0.0"
_PAIRS = "list<tuple<string, string>>"
_CHUNK = (
    "record { id: string, start: u32, end: u32, kind: string, content: option<string>,"
    f" metadata: {_PAIRS}, parent-id: option<string>, children: list<string> }}"
)
_CONFIG = (
    "record { file-type: string, max-chunk-size: u32, preserve-context: bool,"
    f" custom-params: {_PAIRS} }}"
)
_SIGNATURES = {
    "analyze": f"func(sample: string, file-type: string) -> result<{_CONFIG}, string>",
    "chunk-file": f"func(content: string, config: {_CONFIG}) -> result<list<{_CHUNK}>, string>",
}
_Name = Annotated[
    str,
    Meta(
        max_length=255,
        pattern=r"^[^\x00-\x1f\x7f]*" + END,
        description="at most 255 characters without control characters",
    ),
]
_Kind = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        pattern="^[a-z][a-z0-9_-]*" + END,
        description='at most 64 small letters, digits, "_" and "-", a letter first',
    ),
]


class SpanMetadata(Struct, frozen=True):
    """Kind of a chunk, and the headings or scopes around it."""

    symbol: _Name = ""
    header: _Name = ""


class ChunkSpan(Struct, frozen=True):
    """A chunk or a gap, as a module returns it: bytes from `s` to before `e`."""

    s: Annotated[int, Meta(ge=0)]
    e: Annotated[int, Meta(ge=0)]
    k: _Kind = "record"
    p: Annotated[int, Meta(ge=0)] | None = None  # index of the span it belongs to, before it
    m: SpanMetadata = SpanMetadata()


class ChunkingFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """Error of a module that cannot read a file."""

    error: str


class _Config(Struct, frozen=True):
    """The configuration that `tg_chunk` gets. `config`: what `tg_analyze` returned."""

    max_chunk_size: int
    path: str
    config: Raw


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # of JSON
_decoder = msgspec.json.Decoder(list[ChunkSpan] | ChunkingFailure)


class WasmRun(ABC):
    """One instance of a module, and what it has used."""

    PARTS: ClassVar[int] = 1  # most instances and tables that it consists of

    def __init__(self, module: bytes, data: bytes, limits: WasmLimits) -> None:
        """`data`: the bytes of the largest file that it gets. Raises ChunkerRefused."""
        self._limits = limits
        self._fuel = limits.fuel + limits.fuel_per_byte * len(data)
        compiled = compiled_module(module)
        self._store = wasmtime.Store(_engine())
        self._store.set_limits(
            memory_size=limits.memory_bytes + limits.memory_per_byte * len(data),
            table_elements=_TABLE,
            instances=self.PARTS,
            tables=self.PARTS,
            memories=1,
        )
        self._store.set_fuel(self._fuel)
        with self._time_limit(len(data)):
            self._start(compiled)

    @abstractmethod
    def _start(self, code: Any) -> None:
        """Make the instance. Raises ChunkerRefused."""

    @abstractmethod
    def chunk(self, data: bytes, path: str, max_chunk_size: int) -> bytes:
        """The JSON of the spans that the module returns for a file. Raises ChunkerRefused."""

    @property
    def fuel(self) -> int:
        """Fuel used so far: about an instruction each."""
        return self._fuel - int(self._store.get_fuel())

    @contextmanager
    def _time_limit(self, length: int) -> Iterator[None]:
        """End the module after its time; fuel counts no bytes of memory that one instruction
        moves."""
        seconds = self._limits.time_s + self._limits.time_per_mb_s * length / 2**20
        self._store.set_epoch_deadline(1)
        timer = Timer(seconds, _engine().increment_epoch)
        timer.start()
        try:
            yield
        except (wasmtime.Trap, wasmtime.WasmtimeError) as error:
            raise ChunkerRefused(_reason(error)) from error
        finally:
            timer.cancel()


class ModuleRun(WasmRun):
    """An instance of a core module."""

    def _start(self, code: wasmtime.Module) -> None:
        exports = wasmtime.Instance(self._store, code, []).exports(self._store)
        self._memory: Any = exports["memory"]
        self._functions: dict[str, Any] = {name: exports[name] for name in _FUNCTIONS}
        abi = self._functions["tg_abi"](self._store)
        if abi != ABI:
            raise ChunkerRefused(f"has version {abi} of the ABI, expected {ABI}")

    def chunk(self, data: bytes, path: str, max_chunk_size: int) -> bytes:
        sample = _sample(data).encode()
        with self._time_limit(len(data)):
            encoded = self._call("tg_analyze", sample, limit=CONFIG_BYTES) or b"null"
            try:
                msgspec.json.decode(encoded)
            except _UNREADABLE as error:
                raise ChunkerRefused(
                    f"returned a configuration that is no JSON: {error}"
                ) from error
            config = msgspec.json.encode(_Config(max_chunk_size, path, Raw(encoded)))
            return self._call("tg_chunk", data, config, limit=OUTPUT_BYTES)

    def _call(self, name: str, *arguments: bytes, limit: int) -> bytes:
        places = [place for data in arguments for place in (self._put(data), len(data))]
        packed = self._functions[name](self._store, *places) & (2**64 - 1)
        start, length = packed >> 32, packed & 0xFFFF_FFFF
        if length > limit:
            raise ChunkerRefused(f"returned {length} bytes from {name}, expected at most {limit}")
        return bytes(self._memory.read(self._store, *self._place(start, length)))

    def _put(self, data: bytes) -> int:
        start = self._functions["tg_alloc"](self._store, max(len(data), 1)) & 0xFFFF_FFFF
        self._place(start, len(data))
        self._memory.write(self._store, data, start)
        return int(start)

    def _place(self, start: int, length: int) -> tuple[int, int]:
        if start + length > self._memory.data_len(self._store):
            raise ChunkerRefused("gave a pointer beyond its memory")
        return start, start + length


class ComponentRun(WasmRun):
    """An instance of a component. What it returns is copied within a limit of the runtime (128 MiB)
    before it is seen here."""

    PARTS = 8  # with adapters

    def _start(self, code: component.Component) -> None:
        self._instance = component.Linker(_engine()).instantiate(self._store, code)

    def chunk(self, data: bytes, path: str, max_chunk_size: int) -> bytes:
        with self._time_limit(len(data)):
            config = self._call("analyze", _sample(data), PurePosixPath(path).suffix[1:])
            if len(msgspec.json.encode(vars(config))) > CONFIG_BYTES:
                raise ChunkerRefused(f"returned a configuration above {CONFIG_BYTES} bytes")
            vars(config)["max-chunk-size"] = max_chunk_size
            chunks = self._call("chunk-file", data.decode(), config)
        if len(chunks) > self._limits.chunks:
            raise ChunkerRefused(
                f"returned {len(chunks)} spans, expected at most {self._limits.chunks}"
            )
        encoded = msgspec.json.encode(component_spans([vars(chunk) for chunk in chunks], data))
        if len(encoded) > OUTPUT_BYTES:
            raise ChunkerRefused(f"returned {len(encoded)} bytes, expected at most {OUTPUT_BYTES}")
        return encoded

    def _call(self, name: str, *arguments: object) -> Any:
        interface = self._instance.get_export_index(self._store, _INTERFACE)
        place: Any = self._instance.get_export_index(self._store, name, interface)
        function: Any = self._instance.get_func(self._store, place)
        answer = function(self._store, *arguments)
        if isinstance(answer, str):
            raise ChunkerRefused(f"cannot read it: {answer[:200]}")
        return answer


def component_spans(chunks: Sequence[Mapping[str, Any]], data: bytes) -> list[ChunkSpan]:
    """The spans of the chunks that a component returned for a file. Raises ChunkerRefused."""
    places: dict[str, int] = {}
    spans: list[ChunkSpan] = []
    for index, chunk in enumerate(chunks):
        identity, parent, content = chunk["id"], chunk["parent-id"], chunk["content"]
        if identity in places or (parent is not None and parent not in places):
            raise ChunkerRefused(f"gave span {index} an id of another, or a parent not before it")
        if content is not None and content.encode() != data[chunk["start"] : chunk["end"]]:
            raise ChunkerRefused(f"gave span {index} a content that is not its part of the file")
        if identity:
            places[identity] = index
        named = dict(chunk["metadata"])
        metadata = SpanMetadata(named.get("symbol", ""), named.get("header", ""))
        place = None if parent is None else places[parent]
        spans.append(ChunkSpan(chunk["start"], chunk["end"], chunk["kind"], place, metadata))
    for index, chunk in enumerate(chunks):
        if any(
            child not in places or spans[places[child]].p != index for child in chunk["children"]
        ):
            raise ChunkerRefused(f"gave span {index} a child that does not name it as parent")
    return spans


def wasm_run(module: bytes, data: bytes, limits: WasmLimits) -> WasmRun:
    """A run of a component or of a core module. Raises ChunkerRefused."""
    kind = ComponentRun if module.startswith(_COMPONENT) else ModuleRun
    return kind(module, data, limits)


def _sample(data: bytes) -> str:
    return data[:SAMPLE_BYTES].decode(errors="ignore")


_REASONS = {
    "all fuel consumed": "used all its fuel: it does not end, or is too slow",
    "interrupt": "did not end in time",
    "call stack exhausted": "calls itself too deeply",
    "wasm `unreachable`": "trapped: unreachable (it panicked, perhaps for want of memory)",
    "out of bounds memory access": "trapped: it left its memory",
    "too much data is being copied": "returned too much",
}


def _reason(error: Exception) -> str:
    """Of a trap of a component, only the text says which it was."""
    text = str(error).strip().splitlines()[-1].strip()[:200]
    reasons = (reason for sign, reason in _REASONS.items() if sign in text)
    return next(reasons, f"failed: {text}")


@lru_cache(maxsize=1)
def _engine() -> wasmtime.Engine:
    """Without threads, shared and 64-bit memories. Memory is reserved as it grows, and made without
    files, which a reading process may not write."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.parallel_compilation = False
    config.cranelift_nan_canonicalization = True
    config.wasm_threads = False
    config.wasm_relaxed_simd = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    config.memory_reservation = 0
    config.memory_reservation_for_growth = 2**20
    config.memory_guard_size = 0
    config.memory_init_cow = False
    return wasmtime.Engine(config)


@lru_cache(maxsize=8)
def compiled_module(module: bytes) -> wasmtime.Module | component.Component:
    """Raises ChunkerRefused for what is neither a core module of this ABI nor a component with the
    interface."""
    is_component = module.startswith(_COMPONENT)
    try:
        if is_component:
            return _checked_component(component.Component(_engine(), module))
        return _checked_module(wasmtime.Module(_engine(), module))
    except wasmtime.WasmtimeError as error:
        text = str(error).strip().splitlines()[-1].strip()[:200]
        expected = "component" if is_component else "core module"
        raise ChunkerRefused(f"is no {expected} of WebAssembly: {text}") from error


def _checked_component(chunker: component.Component) -> component.Component:
    for name in chunker.type.imports(_engine()):
        raise ChunkerRefused(f"imports {name[:200]}, expected no imports")
    interface = chunker.type.exports(_engine()).get(_INTERFACE)
    type_ = interface.ty if interface else None
    if not isinstance(type_, component.ComponentInstanceType):
        raise ChunkerRefused(f"exports no interface {_INTERFACE}")
    exports = type_.exports(_engine())
    for name, signature in _SIGNATURES.items():
        if name not in exports or _wit(exports[name].ty) != signature:
            raise ChunkerRefused(f"exports no function {name}: {signature}")
    return chunker


def _wit(type_: object) -> str:
    """A type as in WIT; of those that no chunker has, the name of the class."""
    match type_:
        case component.FuncType():
            parameters = ", ".join(f"{name}: {_wit(type_name)}" for name, type_name in type_.params)
            return f"func({parameters}) -> {_wit(type_.result)}"
        case component.RecordType():
            fields = ", ".join(f"{name}: {_wit(type_name)}" for name, type_name in type_.fields)
            return f"record {{ {fields} }}"
        case component.ListType():
            return f"list<{_wit(type_.element)}>"
        case component.OptionType():
            return f"option<{_wit(type_.payload)}>"
        case component.TupleType():
            return f"tuple<{', '.join(map(_wit, type_.elements))}>"
        case component.ResultType():
            return f"result<{_wit(type_.ok)}, {_wit(type_.err)}>"
    return type(type_).__name__.lower()


def _checked_module(module: wasmtime.Module) -> wasmtime.Module:
    if module.imports:
        first = module.imports[0]
        raise ChunkerRefused(f"imports {first.module}.{first.name}, expected no imports")
    exports = {export.name: export.type for export in module.exports}
    if not isinstance(exports.get("memory"), wasmtime.MemoryType):
        raise ChunkerRefused("exports no `memory`")
    for name, (parameters, results) in _FUNCTIONS.items():
        type_ = exports.get(name)
        if not isinstance(type_, wasmtime.FuncType) or (
            (tuple(map(str, type_.params)), tuple(map(str, type_.results))) != (parameters, results)
        ):
            signature = f"{name}({', '.join(parameters)}) -> {results[0]}"
            raise ChunkerRefused(f"exports no function {signature}")
    return module


def wasm_chunker(
    module: bytes, path: str, limits: WasmLimits
) -> Callable[[str, ChunkingOptions], Iterator[Chunk]]:
    """The chunker of a module, for `cut`. It raises ChunkerRefused."""

    def chunker(text: str, chunking: ChunkingOptions) -> Iterator[Chunk]:
        data = text.encode()
        if not data.strip(_BLANK):
            return
        output = wasm_run(module, data, limits).chunk(data, path, chunking.size)
        yield from chunks_of(text, spans_of(output, limits), chunking.size)

    return chunker


def spans_of(output: bytes, limits: WasmLimits) -> list[ChunkSpan]:
    """The spans that a module returned. Raises ChunkerRefused."""
    try:
        decoded: list[ChunkSpan] | ChunkingFailure = _decoder.decode(output)
    except _UNREADABLE as error:
        raise ChunkerRefused(f"returned no array of spans: {str(error)[:200]}") from error
    if isinstance(decoded, ChunkingFailure):
        raise ChunkerRefused(f"cannot read it: {decoded.error[:200]}")
    if len(decoded) > limits.chunks:
        raise ChunkerRefused(f"returned {len(decoded)} spans, expected at most {limits.chunks}")
    return decoded


def chunks_of(text: str, spans: Sequence[ChunkSpan], limit: int) -> Iterator[Chunk]:
    """Chunks with offsets in characters. With the gaps they are the text; what is in neither is
    blank. Raises ChunkerRefused."""
    offsets = Offsets(text)
    data = offsets.data
    numbers: dict[int, int] = {}  # of chunks, by the indexes of their spans
    at = 0
    for index, span in enumerate(spans):
        _check_place(data, at, span, index)
        at = span.e
        if span.k == GAP:
            continue
        if span.p is not None and span.p not in numbers:
            raise ChunkerRefused(f"gave span {index} a parent that is no chunk before it")
        numbers[index] = len(numbers)
        start, end = offsets.character(span.s), offsets.character(span.e)
        _check_size(text, start, end, index=index, limit=limit)
        yield Chunk(
            start,
            end,
            kind=span.k,
            header=span.m.header,
            symbol=span.m.symbol,
            subjects=(span.m.symbol,) if span.m.symbol else (),
            parent=None if span.p is None else numbers[span.p],
        )
    if data[at:].strip(_BLANK):
        raise ChunkerRefused(f"left out the bytes from {at} on, which are not declared as a gap")


def _check_place(data: bytes, at: int, span: ChunkSpan, index: int) -> None:
    if span.s < at:
        raise ChunkerRefused(f"returned overlapping spans: {index} begins before byte {at}")
    if not span.s < span.e <= len(data):
        raise ChunkerRefused(
            f"returned span {index} from {span.s} to {span.e} of {len(data)} bytes"
        )
    if data[at : span.s].strip(_BLANK):
        raise ChunkerRefused(f"left out the bytes from {at} to {span.s}, not declared as a gap")
    if any(place < len(data) and data[place] & 0xC0 == 0x80 for place in (span.s, span.e)):
        raise ChunkerRefused(f"returned span {index}, which cuts a character of UTF-8")


def _check_size(text: str, start: int, end: int, *, index: int, limit: int) -> None:
    length = size(text, start, end)
    if length == 0:
        raise ChunkerRefused(f"returned chunk {index}, which is blank")
    if length > limit:
        raise ChunkerRefused(
            f"returned chunk {index} of {length} characters that are not blank, expected at most"
            f" {limit}"
        )


def try_module(
    module: bytes, samples: Sequence[tuple[str, str]], chunking: ChunkingOptions, limits: WasmLimits
) -> ChunkerReport:
    """The report of a module about samples, each a path and a text."""
    began = time.process_time()
    try:
        compiled_module(module)
    except ChunkerRefused as error:
        return ChunkerReport(0.0, error=str(error))
    compile_s = time.process_time() - began
    if compile_s > COMPILE_S:
        return ChunkerReport(compile_s * 1000, error=f"takes {compile_s:.1f} s to compile")
    reports = tuple(
        _try_sample(module, path, text, chunking, limits=limits) for path, text in samples
    )
    errors = (f"{report.error} (sample {report.path})" for report in reports if report.error)
    return ChunkerReport(round(compile_s * 1000, 1), reports, next(errors, ""))


def _try_sample(
    module: bytes, path: str, text: str, chunking: ChunkingOptions, *, limits: WasmLimits
) -> SampleReport:
    """The report about one sample, which an instance cuts twice: what it remembers is seen."""
    data = text.encode()
    began = time.perf_counter()
    try:
        run = wasm_run(module, data, limits)
        output = run.chunk(data, path, chunking.size)
        fuel = run.fuel
        cut = list(chunks_of(text, spans_of(output, limits), chunking.size))
        if run.chunk(data, path, chunking.size) != output:
            raise ChunkerRefused("returned other chunks in a second run of the same file")
    except ChunkerRefused as error:
        return SampleReport(path, len(data), error=str(error))
    ms = round((time.perf_counter() - began) * 1000, 1)
    covered = sum(len(text[chunk.start : chunk.end].encode()) for chunk in cut)
    return SampleReport(path, len(data), len(cut), len(data) - covered, fuel, ms)
