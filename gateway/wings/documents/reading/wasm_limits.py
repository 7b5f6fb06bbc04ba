"""Limits and reports of chunkers in WebAssembly, without the runtime that runs them."""

from msgspec import Struct

from schemas.errors import ToolgateError


class ChunkerRefused(ToolgateError):
    """A module that is no chunker, or that broke a rule; `str()` says what the chunker did. Modules
    choose parts of it, so that nothing but printable characters is kept."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(sign for sign in message if sign.isprintable()))


class WasmLimits(Struct, frozen=True):
    """Limits of one run of a chunker in WebAssembly."""

    fuel: int = 10**8
    fuel_per_byte: int = 2000
    memory_bytes: int = 64 * 2**20
    memory_per_byte: int = 4
    time_s: float = 0.5
    time_per_mb_s: float = 2.0
    chunks: int = 200_000


DEFAULT_WASM_LIMITS = WasmLimits()


class SampleReport(Struct, frozen=True, omit_defaults=True):
    """How a module cut a sample. `fuel`: about the instructions; `ms`: of both runs."""

    path: str
    bytes: int
    chunks: int = 0
    gap_bytes: int = 0
    fuel: int = 0
    ms: float = 0.0
    error: str = ""


class ChunkerReport(Struct, frozen=True, tag=True):
    """Result of a module's trial. `error`: why it is not used."""

    compile_ms: float
    samples: tuple[SampleReport, ...] = ()
    error: str = ""
