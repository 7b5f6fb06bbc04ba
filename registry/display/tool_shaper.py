"""Shaper of tools: definitions as lists show them, within the budgets and the client's profile.

Arguments are checked against the whole input schema, however it is shown. Each tool is shaped once
per profile, whichever catalogs it is in.

Revision 2026-07-28 allows any value as structured content; before that a value that is not an
object is sent as `{"result": value}`, and the output schema has to describe the same. The schema
alone may not decide which values will be wrapped: one that leaves it open allows both.

Several tools are fitted into one answer within a size limit: each has its name and a line, and the
remaining space is shared evenly, input schemas in a few tokens for all before a whole one for any.
"""

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Raw

from config.settings import Budgets, Settings
from registry.display.profiles import PLAIN_PROFILE, Profiles, SelectedProfile
from registry.display.schema_folding import Fold, trim
from registry.display.schema_summaries import first_sentence, shorten
from registry.display.schemas_for_profiles import (
    NotExpressible,
    argument_aliases,
    rewrites_schemas,
    rewritten,
)
from registry.display.token_budgets import CHARACTERS, TextLimits, limits_at, limits_of
from schemas.errors import ParseError
from schemas.json_schema.keywords import DEFINITION_KEYWORDS, Json
from schemas.json_schema.references import find, has_references, reference_of, reference_to
from schemas.json_schema.validators import compiled_as_2020
from schemas.json_schema.walk import rewrite_references
from schemas.jsonrpc import decode_json, encode
from schemas.memo import Memo
from schemas.tool import FIELDS, Tool

RESULT = "result"

_OF_THE_WHOLE = ("$schema", *DEFINITION_KEYWORDS)
_STEPS = 8  # references followed from the root


def for_objects(schema: Raw) -> Raw | None:
    """`schema` with `"type": "object"` at its root; None for one that cannot be read."""
    try:
        schema_ = decode_json(bytes(schema))
    except ParseError:
        return None
    if not isinstance(schema_, dict):
        return None
    if schema_.get("type") == "object":
        return schema
    return Raw(msgspec.json.encode(_for_objects(schema_)))


def _for_objects(schema: Json) -> Json:
    kind = _kind(schema, schema)
    if kind == "object":
        return {"type": "object", **schema}
    # References of a schema with an `$id` are relative to it, at any position.
    moved = "$id" not in schema
    root_keywords = {key: schema[key] for key in _OF_THE_WHOLE if moved and key in schema}
    inner = {key: value for key, value in schema.items() if key not in root_keywords}
    if isinstance(kind, str):
        place = f"#/properties/{RESULT}"
        return {"type": "object", **_result(_move_references(inner, place) if moved else inner),
                **_move_references(root_keywords, place)}  # fmt: skip
    place = "#/anyOf/0"
    plain = _move_references(inner, place) if moved else inner
    return {
        "type": "object",
        "anyOf": [plain, _result(reference_to(place))],
        **_move_references(root_keywords, place),
    }


def _result(schema: Json) -> Json:
    return {"properties": {RESULT: schema}, "required": [RESULT]}


def _kind(schema: Any, root: Json) -> str | None:
    """The single type that the schema allows; None where that is open."""
    for _ in range(_STEPS):
        if not isinstance(schema, dict):
            return None
        reference = reference_of(schema)
        if "type" in schema or reference is None:
            kind = schema.get("type")
            return kind if isinstance(kind, str) else None
        schema = find(root, reference)
    return None


def _move_references(schema: Json, place: str) -> Json:
    """A copy of a schema for another position in its document, `place`; definitions stay."""

    def move(reference: str) -> str:
        is_inner = reference == "#" or reference.startswith("#/")
        if not is_inner or reference.startswith(("#/$defs/", "#/definitions/")):
            return reference
        return place + reference[1:]

    moved: Json = rewrite_references(schema, move)
    return moved


log = logging.getLogger("toolgate.lists")

WARNED_LIMIT = 1000
WHOLE = 1 << 20  # in the place of a level: no budget
CACHE_ENTRIES = (
    32_768  # shaped tools cached; those of old catalogs or unused profiles are evicted first
)
INLINED_CHARACTERS = 1 << 20  # characters of a schema whose references are inlined
SLACK = 64  # characters that a profile may add
AROUND = 180  # characters of a definition besides its texts and its input schema

_FIELDS = {
    "type": "array",
    "items": {"type": "string"},
    "description": 'Members of the answer that are wanted, as in ["id", "owner.login"].',
}


@dataclass(frozen=True, slots=True)
class ShapedTool:
    """A tool as listed."""

    tool: Tool
    shortened: bool = False  # incomplete: parts are omitted
    left_out: str | None = None  # why the profile cannot express it


class ToolShaper:
    def __init__(
        self,
        budgets: Budgets | None = None,
        profiles: Profiles | None = None,
        fields: bool = False,
        search_limit: int | None = None,
        *,
        tool_tokens: int | None = None,
        stubs: bool = False,
    ) -> None:
        """Without `budgets` tools are listed unchanged. With `fields` input schemas have the
        argument that selects the members of an answer; that of search_tools has `search_limit` as
        its maximum. `tool_tokens`: a toolset's own. With `stubs` search_tools and describe_tools
        can be asked for signatures of tools for programs."""
        self._tool_tokens = tool_tokens
        self._of_toolsets: dict[int, ToolShaper] = {}
        self._fields = fields
        self.search_limit = search_limit
        self.stubs = stubs
        self.budgets = budgets
        self.profiles = profiles or Profiles()
        self._kept: Memo[tuple[str, str, int, str], ShapedTool] = Memo(CACHE_ENTRIES)
        self._warned: set[tuple[str, str]] = set()

    @classmethod
    def of(cls, settings: Settings) -> "ToolShaper":
        """The shaper of the settings' lists."""
        fields, most = settings.answers.fields == "shown", settings.search.limit_max
        stubs = settings.code.enabled
        return cls(settings.budgets, Profiles(settings.profiles), fields, most, stubs=stubs)

    def shape(self, tool: Tool, profile: SelectedProfile, level: int, describer: str) -> ShapedTool:
        """The tool in a list of this level (see `budgets.room`), under its own name. `describer` is
        the name of describe_tool there."""
        if self.budgets is None and profile == PLAIN_PROFILE:
            return ShapedTool(tool)
        limits = (
            limits_at(self.budgets, level, self._tokens_limit(profile)) if self.budgets else None
        )
        return self._cached_shape(
            (tool.digest, profile.name, level, describer), tool, profile, limits
        )

    def express(self, tool: Tool, profile: SelectedProfile, describer: str) -> ShapedTool:
        """The whole tool as a profile has it, in no budget, for a model that the gateway asks
        itself. `describer` is the name of describe_tool there."""
        if not rewrites_schemas(profile.profile) and not profile.profile.describes:
            return ShapedTool(tool)
        return self._cached_shape(
            (tool.digest, profile.name, WHOLE, describer), tool, profile, None
        )

    def with_tokens(self, tool_tokens: int | None) -> "ToolShaper":
        """A copy for a toolset with its own tokens per tool; None: unchanged."""
        if tool_tokens is None or self.budgets is None:
            return self
        shaper = self._of_toolsets.get(tool_tokens)
        if shaper is None:
            shaper = ToolShaper(
                self.budgets,
                self.profiles,
                self._fields,
                self.search_limit,
                tool_tokens=tool_tokens,
                stubs=self.stubs,
            )
            self._of_toolsets[tool_tokens] = shaper
        return shaper

    def _tokens_limit(self, profile: SelectedProfile) -> int | None:
        """Tokens per tool of its toolset and the client's profile; None: the default."""
        limits = (self._tool_tokens, profile.tool_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    def within(
        self, tool: Tool, profile: SelectedProfile, limit: int, describer: str
    ) -> ShapedTool:
        """The tool in about `limit` tokens, without its output schema and mirrored headers; for an
        answer."""
        limits = limits_of(limit, self.budgets)
        tool = replace(tool, output_schema=None)
        if tool.binding.mirrored:
            tool = replace(tool, binding=msgspec.structs.replace(tool.binding, mirrored=()))
        return self._cached_shape(
            (tool.digest, profile.name, -limit, describer), tool, profile, limits
        )

    def warn(self, event: str, facts: Mapping[str, Any]) -> None:
        """Log a warning once for the same facts."""
        warning = (event, repr(facts))
        if warning not in self._warned and len(self._warned) < WARNED_LIMIT:
            self._warned.add(warning)
            log.warning(event, extra=dict(facts))

    def _cached_shape(
        self,
        key: tuple[str, str, int, str],
        tool: Tool,
        profile: SelectedProfile,
        limits: TextLimits | None,
    ) -> ShapedTool:
        """The cached shape of a tool, made on first use; the key ends with the name of
        describe_tool."""
        shaped = self._kept.get(key)
        if shaped is None:
            shaped = self._kept.put(key, self._make_shape(tool, profile, limits, key[-1]))
        if shaped.tool is tool or shaped.tool.name == tool.name:
            return shaped
        return replace(shaped, tool=replace(shaped.tool, name=tool.name))

    def _make_shape(
        self, tool: Tool, profile: SelectedProfile, limits: TextLimits | None, describer: str
    ) -> ShapedTool:
        original = tool
        description = shorten(tool.description, limits.description) if limits else tool.description
        if not description and profile.profile.describes:
            description = tool.title or tool.name
        tool = replace(tool, description=description)
        if limits and self._hides_output(tool, limits):
            tool = replace(tool, output_schema=None)
        try:
            if self._fields and tool.binding.facts.projects is not None:
                tool = replace(tool, input_schema=_with_fields(tool.input_schema))
            schema, shortened = _schema_of(tool, profile, limits, f"Call {describer} for all.")
        except NotExpressible as reason:
            return ShapedTool(tool, left_out=str(reason))
        cut = len(description) < len(original.description)
        return ShapedTool(replace(tool, input_schema=schema), shortened or cut)

    def _hides_output(self, tool: Tool, limits: TextLimits) -> bool:
        if tool.output_schema is None or tool.binding.facts.projects is None:
            return False
        total = len(tool.input_schema) + len(tool.output_schema) + _texts(tool)
        return not (self.budgets and self.budgets.output_schemas) or total > limits.tool


def _with_fields(raw: Raw) -> Raw:
    schema = decode_json(bytes(raw))
    return Raw(encode({**schema, "properties": {FIELDS: _FIELDS, **schema.get("properties", {})}}))


def _schema_of(
    tool: Tool, selected_profile: SelectedProfile, limits: TextLimits | None, more: str
) -> tuple[Raw, bool]:
    """The input schema, and whether it is shortened. Raises NotExpressible."""
    raw, profile = tool.input_schema, selected_profile.profile
    room = max(limits.tool - _texts(tool), limits.tool // 4) if limits else INLINED_CHARACTERS
    refers = not profile.references and has_references(bytes(raw))
    mirrored = bool(tool.binding.mirrored)
    within = None if mirrored else limits
    folds = refers or (within is not None and len(raw) > room)
    trims = not folds and within is not None and len(raw) > within.text
    if not folds and not trims and not rewrites_schemas(profile):
        return raw, False
    try:
        schema_value = decode_json(bytes(raw))
    except ParseError as error:
        raise NotExpressible("its input schema cannot be read") from error
    if not isinstance(schema_value, dict):
        return raw, False
    try:
        schema = trim(schema_value, within.text) if trims and within else schema_value
        if not folds and schema == schema_value and not rewrites_schemas(profile):
            return raw, False
        written, shortened = _write_schema(
            schema, selected_profile, room if folds else None, limits, more=more
        )
        return written, shortened or schema != schema_value
    except (RecursionError, ValueError) as error:
        if profile == PLAIN_PROFILE.profile:
            return raw, False
        raise NotExpressible("its input schema cannot be rewritten") from error


def _write_schema(
    schema_value: Json,
    selected_profile: SelectedProfile,
    room: int | None,
    limits: TextLimits | None,
    *,
    more: str,
) -> tuple[Raw, bool]:
    profile, schema, shortened = selected_profile.profile, schema_value, False
    if room is not None:
        room -= SLACK if rewrites_schemas(profile) else 0
        texts = limits.text if limits else None
        folded = Fold(room, more, profile.references, text=texts)(schema_value)
        schema, shortened = folded.schema, folded.is_shortened
    if rewrites_schemas(profile):
        aliases = argument_aliases(schema_value) if profile.arguments else None
        schema = rewritten(schema, profile, more, aliases)
    compiled_as_2020(schema)  # clients must be able to compile it
    text = encode(schema)
    return Raw(text), shortened or more.encode() in text


def _texts(tool: Tool) -> int:
    return AROUND + len(tool.name) + len(encode(tool.description)) + len(tool.title or "")


SIZES = (100, 150, 200, 300, 400, 600, 800, 1200, 1600)  # tokens of a tool: few, so that folded
# tools are found in the cache
FEWEST = SIZES[0] * CHARACTERS
DESCRIPTION_CHARACTERS = 1000  # characters of a description
LINE = 100  # characters of each tool's short description


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool, by its name in the client's list, and facts to show with it."""

    tool: Tool
    members: Json


@dataclass(frozen=True, slots=True)
class FittedTools:
    entries: list[Json]
    folded: int  # of them without their input schema
    left_out: int  # no room at all


@dataclass(frozen=True, slots=True)
class ListingBudget:
    tokens: int  # of all tools together
    shaper: ToolShaper
    profile: SelectedProfile
    describer: str  # name of the tool that describes what is left out

    def fit(self, tools: Sequence[ListedTool], room: int, schemas: bool) -> FittedTools:
        """The tools in at most `room` characters. Without `schemas`: names and lines alone."""
        entries: list[Json] = []
        for tool in tools:
            line = {"name": tool.tool.name, "description": _line(tool.tool), **tool.members}
            if length(line) > room:
                break
            room -= length(line)
            entries.append(line)
        unfolded = self._unfolded_entries(tools[: len(entries)], entries, room) if schemas else {}
        for place, entry in unfolded.items():
            entries[place] = entry
        left_out = len(tools) - len(entries)
        return FittedTools(entries, len(entries) - len(unfolded), left_out)

    def _unfolded_entries(
        self, tools: Sequence[ListedTool], lines: Sequence[Json], room: int
    ) -> dict[int, Json]:
        """Entries with an input schema, by their positions in `lines`. Small ones are whole, and
        the space that they leave is shared by the large ones (max-min fairness), each of which is
        folded once: to fold a schema of megabytes takes long."""
        entries: dict[int, Json] = {}

        def add(place: int, limit: int) -> int:
            """Add an entry; returns the characters that it added."""
            entry = self._entry(tools[place], limit)
            growth = length(entry) - length(lines[place]) if entry is not None else 0
            if entry is None or growth > room:
                return 0
            entries[place] = entry
            return growth

        waiting = sorted(range(len(tools)), key=lambda place: -_need(tools[place].tool))
        while waiting and _need(tools[waiting[-1]].tool) <= room // len(waiting):
            room -= add(waiting.pop(), self.tokens)
        large = sorted(waiting)[: room // FEWEST]  # where few fit, the best
        while large:  # the last first: the rest of the space goes to the best
            share = room // len(large)
            place = large.pop()
            room -= add(place, _size(share + length(lines[place])))
        return entries

    def _entry(self, listing: ListedTool, limit: int) -> Json | None:
        """The tool in about `limit` tokens; None: the client's profile cannot express it."""
        shaped = self.shaper.within(listing.tool, self.profile, limit, self.describer)
        if shaped.left_out is not None:
            return None
        return {
            "name": shaped.tool.name,
            "description": shaped.tool.description,
            **listing.members,
            "inputSchema": shaped.tool.input_schema,
        }


def _need(tool: Tool) -> int:
    """Approximate characters of a tool beyond its line."""
    return len(tool.input_schema) + min(len(tool.description), DESCRIPTION_CHARACTERS)


def _size(characters: int) -> int:
    """The largest of `SIZES` that fits."""
    at = bisect_right(SIZES, characters // CHARACTERS)
    return SIZES[max(at - 1, 0)]


def _line(tool: Tool) -> str:
    return first_sentence(tool.description or tool.title or "", LINE)


def length(value: Any) -> int:
    """Characters of JSON, including the separator after it."""
    return len(encode(value).decode()) + 1
