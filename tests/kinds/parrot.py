"""A kind of tool as somebody adds it: parrots, each of which says one word as often as it is asked.

Its folder would hold what stands here: a binding, an importer, an upstream, and their rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from gateway.app.upstreams import UPSTREAMS
from gateway.context import Context
from registry.importers.drafts import ImportedDescription
from registry.sources.compatibility import SchemaChange
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import IMPORTERS, Importer, Limits
from registry.sources.source_versions import COMPARISONS
from schemas.binding import KindFacts, ServiceBinding
from schemas.errors import ImportRejected
from schemas.source import KINDS, ImportOptions, Kind, Outcome, Source, SourceFacts
from schemas.tool import Outage, TextContent, Tool, ToolDraft, ToolResult

KIND = "parrot"


class ParrotBinding(ServiceBinding, frozen=True, tag=KIND, omit_defaults=True, kw_only=True):
    """One parrot; a portal reaches it as an action of the service `aviary`."""

    facts: ClassVar[KindFacts] = KindFacts(remote=True, keeps_answers=True, projects="answer")

    word: str

    def target(self, address: str | None) -> str:
        return f"a parrot that says {self.word}, at {address}"


class ParrotOptions(ImportOptions, frozen=True, omit_defaults=True):
    shout: bool = False


def read(document: bytes, location: str, spec: ImportSpec, _limits: Limits) -> ImportedDescription:
    """Each line is a parrot: its name, its word, and perhaps the scope of those who may ask it."""
    lines = [line.split() for line in document.decode().splitlines()]
    if any(len(line) not in (2, 3) for line in lines):
        raise ImportRejected(f"{location}: expected a name and a word in each line")
    shouts = cast("ParrotOptions", spec.options).shout
    drafts = tuple(
        _draft(name, word.upper() if shouts else word, *scope) for name, word, *scope in lines
    )
    outcomes = tuple(Outcome(one.key, one.name, one.name, "imported") for one in drafts)
    return ImportedDescription(
        "Aviary", str(len(drafts)), ("https://aviary.example",), drafts, outcomes
    )


def _draft(name: str, word: str, scope: str | None = None) -> ToolDraft:
    times = {"type": "integer", "minimum": 1}
    schema = {"type": "object", "properties": {"times": times}, "required": ["times"]}
    service = f"example.com/aviary/{name}/0.1.0"
    binding = ParrotBinding(service=service, word=word, scope=scope)
    return ToolDraft(name, name, f"A parrot that likes to say {word}", schema, binding)


def compare(before: ParrotBinding, after: ParrotBinding) -> Iterator[SchemaChange]:
    if before.word != after.word:
        yield SchemaChange("wire", "", False, f"says {after.word}, said {before.word}")


@dataclass
class Aviary:
    """Implements `Upstream`; `asleep`: no parrot answers anybody."""

    asleep: bool = False
    heard: list[tuple[str, int]] = field(default_factory=list)

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, _context: Context
    ) -> ToolResult:
        assert source is not None
        assert source.kind == KIND
        binding = cast("ParrotBinding", tool.binding)
        self.heard.append((binding.word, arguments["times"]))
        if self.asleep:
            return Outage((TextContent("Sleeps"),), is_error=True)
        return ToolResult((TextContent(" ".join([binding.word] * arguments["times"])),))


@contextmanager
def register_kind() -> Iterator[Aviary]:
    """The rows of the kind, while somebody needs them."""
    aviary = Aviary()
    KINDS[KIND] = Kind(ParrotBinding, SourceFacts(options=ParrotOptions, keeps_answers=True))
    IMPORTERS[KIND] = Importer(read=read, declared=lambda _location, servers: servers[0])
    COMPARISONS[ParrotBinding] = compare
    UPSTREAMS[ParrotBinding] = lambda _parts: aviary
    try:
        yield aviary
    finally:
        del KINDS[KIND], IMPORTERS[KIND], COMPARISONS[ParrotBinding], UPSTREAMS[ParrotBinding]
