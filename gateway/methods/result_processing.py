"""Post-processing of tool results: field projection, truncation with continuation, output checks.

Values are passed through undecoded, so numbers keep all their digits. A path goes through arrays as
if they were not there; it cannot name a member whose name holds a dot.

Applies only to tools imported from descriptions: `_fields` and `_continue` are reserved arguments
that tools of other MCP servers do not have. Every omission is announced in the result, and the text
that a cut leaves out is stored for a continuation.
"""

import codecs
import logging
import re
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio import to_thread
from msgspec import UNSET, Raw
from msgspec.structs import replace
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.context import Context
from gateway.protocol.revision_adapter import META_PROBLEM, Members, without_structure
from gateway.state.stored_answers import AnswerInfo, AnswerSlice, StorageFull, StoredAnswers, uri_of
from registry.display.token_budgets import CHARACTERS
from schemas.errors import InvalidParams, ParseError, Unavailable
from schemas.json_schema.checker import ArgumentProblem, Checker
from schemas.jsonrpc import decode_json, encode
from schemas.mcp.revisions import Revision
from schemas.memo import Memo
from schemas.tool import CONTINUE, FIELDS, META_NEXT, Content, TextContent, Tool, ToolResult

# Strings are matched whole, so brackets inside them do not count as structure. Possessive, and the
# closing quote is optional: a text that is not JSON also costs one pass only.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},\n]', re.DOTALL)
_BLANK = re.compile(r"\s")


def cut_at(text: str, limit: int, is_json: bool) -> int:
    """Length in characters of the first part of `text`, which is longer than `limit`: at least
    half of `limit`. JSON is cut between members of the outermost array or object where possible;
    other text between lines, else between words."""
    earliest = max(1, limit // 2)
    if is_json and (at := _between_members(text, limit, earliest)):
        return at
    at = text.rfind("\n", earliest, limit) + 1
    if at:
        return at
    words = [match.end() for match in _BLANK.finditer(text, earliest, limit)]
    return words[-1] if words else limit


def _between_members(text: str, limit: int, earliest: int) -> int:
    """Offset after the last comma at the lowest depth; 0 where none is in range."""
    depth, best, lowest = 0, 0, 0
    for match in _TOKENS.finditer(text, 0, limit):
        match text[match.start()]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case "," if match.end() >= earliest and (not best or depth <= lowest):
                best, lowest = match.end(), depth
    return best


PATHS_LIMIT = 100
STEPS_LIMIT = 20  # in one path
CHARACTERS_LIMIT = 500  # in one path
ARRAYS_LIMIT = 8  # directly nested: each level is parsed once more

Paths = tuple[tuple[str, ...], ...]
_SelectedFields = dict[str, "_SelectedFields"]  # empty: all of it

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode


def paths_of(value: Any) -> Paths:
    """Parse `["id", "owner.login"]`, or `"id,owner.login"`, as paths. Raises InvalidParams."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidParams('_fields: expected paths such as ["id", "owner.login"]')
    paths = tuple(dict.fromkeys(_path(text.strip()) for text in texts if text.strip()))
    if not paths or len(paths) > PATHS_LIMIT:
        raise InvalidParams(f"_fields: expected 1 to {PATHS_LIMIT} paths")
    return paths


def _path(text: str) -> tuple[str, ...]:
    steps = tuple(text.split("."))
    if len(text) > CHARACTERS_LIMIT or len(steps) > STEPS_LIMIT or not all(steps):
        raise InvalidParams(
            f"_fields: {text[:60]!r} is no path: expected up to {STEPS_LIMIT} names with dots "
            "between them"
        )
    return steps


def project(value: Raw, paths: Paths) -> tuple[Raw, list[str]]:
    """Project `value` to the members at `paths`; also returns the paths that matched no member."""
    path_tree: _SelectedFields = {}
    for path in sorted(paths, key=len, reverse=True):
        node = path_tree
        for step in path:
            node = node.setdefault(step, {})
        node.clear()  # a shorter path includes all longer ones below it
    met: set[tuple[str, ...]] = set()
    projection = _project(value, path_tree, (), met)
    met_paths = met.intersection(paths)
    missing = [".".join(path) for path in paths if not _is_met(path, met_paths)]
    return value if projection is None else projection, missing


def _is_met(path: tuple[str, ...], met_paths: set[tuple[str, ...]]) -> bool:
    return any(path[:length] in met_paths for length in range(1, len(path) + 1))


def _project(
    value: Raw,
    path_tree: _SelectedFields,
    at: tuple[str, ...],
    places: set[tuple[str, ...]],
    *,
    arrays: int = 0,
) -> Raw | None:
    """The projection of `value`, which is in so many `arrays`; None for a value without members."""
    if not path_tree:
        return value
    match bytes(memoryview(value)[:1]):
        case b"{":
            members = _object(value)
            out = {}
            for name, member in members.items():
                if name not in path_tree:
                    continue
                place = (*at, name)
                places.add(place)
                projection = _project(member, path_tree[name], place, places)
                if projection is not None:
                    out[name] = projection
            return Raw(encode(out))
        case b"[" if arrays < ARRAYS_LIMIT:
            projected = [
                _project(item, path_tree, at, places, arrays=arrays + 1) for item in _array(value)
            ]
            return Raw(encode([item for item in projected if item is not None]))
    return None


log = logging.getLogger("toolgate.answers")

META_CONTINUE, META_MISMATCH = "toolgate/continue", "toolgate/mismatch"
ARGUMENT_CHARACTERS = 500  # characters of arguments in a text for a model; `_meta` has them all
CHECKERS_LIMIT = 200  # of output schemas
PROBLEMS = 3
COMPARISON_BYTES = 2**20  # the event loop waits for a comparison

_UTF8_BYTES = 4  # of one character, at most
_HANDLE = re.compile(r"([0-9a-f]{40})\.([0-9]{1,12})")
_EXPIRED_TEXT = (
    "There is no such answer, or it is no longer kept: call {name} again without _continue"
)

_LESS = (
    " The argument _fields gives the members that it names alone, as in "
    '{"_fields":["id","owner.login"]}.'
)

Json = dict[str, Any]
_properties = msgspec.json.Decoder(dict[str, Raw])


@dataclass(frozen=True, slots=True)
class ReservedArguments:
    """The parsed reserved arguments of a call."""

    fields: Paths = ()
    handle: str | None = None  # of the answer to continue
    called: str = ""  # the tool's name in the caller's list, where that differs

    @property
    def texts(self) -> list[str]:
        return [".".join(path) for path in self.fields]


NOTHING_ASKED = ReservedArguments()


class AnswerProcessing:
    def __init__(
        self,
        stored_answers: StoredAnswers,
        tokens: int,
        validated: Set[str],
        mismatches: "Mismatches",
    ) -> None:
        """`tokens` is the size limit of one part of a text, 0 for no limit; `validated`: the
        sources whose answers are validated against their output schemas, which may change."""
        self._kept = stored_answers
        self._limit = tokens * CHARACTERS
        self._validated = validated
        self._mismatches = mismatches
        self._checkers: Memo[str, Checker | None] = Memo(CHECKERS_LIMIT)  # by digest

    def split_arguments(
        self, tool: Tool, arguments: Json, name: str = ""
    ) -> tuple[ReservedArguments, Json]:
        """Split `arguments` into the reserved ones and the others. Raises InvalidParams."""
        nothing = ReservedArguments(called=name) if name else NOTHING_ASKED
        if FIELDS not in arguments and CONTINUE not in arguments:
            return nothing, arguments
        if not tool.binding.facts.keeps_answers:
            return nothing, arguments
        own_arguments = _own_arguments(tool)
        reserved = {
            key for key in (FIELDS, CONTINUE) if key in arguments and key not in own_arguments
        }
        passed = {key: value for key, value in arguments.items() if key not in reserved}
        fields = paths_of(arguments[FIELDS]) if FIELDS in reserved else ()
        handle = arguments[CONTINUE] if CONTINUE in reserved else None
        if handle is not None and not isinstance(handle, str):
            raise InvalidParams("_continue: expected the handle that a cut answer came with")
        return ReservedArguments(fields, handle, name), passed

    async def process(
        self,
        result: ToolResult,
        tool: Tool,
        reserved_arguments: ReservedArguments,
        context: Context,
        *,
        checker: Checker,
    ) -> ToolResult:
        """Post-process a `result` that is not `is_done`; `checker` is that of the arguments."""
        if tool.source in self._validated and not result.is_error:
            result = self._compare_with_schema(result, tool)
        if (
            reserved_arguments.fields
            and not result.is_error
            and tool.binding.facts.projects == "answer"
        ):
            # in a thread: ten megabytes take half a second
            for_model = context.revision.mcp
            result = await to_thread.run_sync(
                _project_result, result, reserved_arguments.fields, for_model
            )
        result = _with_next(result, tool, reserved_arguments, context, checker=checker)
        advice = "" if reserved_arguments.fields or FIELDS in _own_arguments(tool) else _LESS
        return await self.fit(
            result, reserved_arguments.called or tool.name, tool.id, context, advice=advice
        )

    async def fit(
        self, result: ToolResult, name: str, tool_id: str, context: Context, *, advice: str = ""
    ) -> ToolResult:
        """Truncate the text of `result` to one part, if the caller is a model."""
        is_read_by_code = context.run is not None and context.run.code
        if not self._limit or not context.revision.mcp or not result.content or is_read_by_code:
            return result
        first, others = result.content[0], result.content[1:]
        if not isinstance(first, TextContent) or len(first.text) <= self._limit:
            return result
        is_json = result.structured_content is not UNSET and not result.is_error
        text = first.text
        at = cut_at(text, self._limit, is_json)
        handle, reason = await self._keep(text, is_json, tool_id, context)
        where = f"{handle}.{len(text[:at].encode())}" if handle else None
        share = f"{at:,} of {len(text):,} characters"
        advice = advice if is_json else ""
        notice = TextContent(self._notice(share, name, where, reason=reason, advice=advice))
        meta = {**(result.meta or {}), **_continues(where)}
        return replace(
            result,
            content=(TextContent(text[:at]), notice, *others),
            structured_content=UNSET,  # it would repeat the whole text that was just cut
            meta=meta or UNSET,
        )

    async def continue_answer(
        self, handle: str, name: str, tool_id: str, context: Context
    ) -> ToolResult:
        """Return the next part of a truncated answer."""
        limit = self._limit if context.revision.mcp else 0
        piece = await self._find_slice(handle, tool_id, limit, context)
        if piece is None:
            return ToolResult((TextContent(_EXPIRED_TEXT.format(name=name)),), is_error=True)
        text, start, ended, about = piece
        if ended and (not limit or len(text) <= limit):
            return ToolResult((TextContent(text),))
        at = cut_at(text, limit, about.mime_type == "application/json")
        end = start + len(text[:at].encode())
        where = f"{handle.partition('.')[0]}.{end}"
        share = f"{end:,} of {about.size:,} bytes"
        notice = TextContent(self._notice(share, name, where))
        return ToolResult((TextContent(text[:at]), notice), meta=_continues(where))

    async def _find_slice(
        self, handle: str, tool_id: str, limit: int, context: Context
    ) -> tuple[str, int, bool, AnswerInfo] | None:
        match = _HANDLE.fullmatch(handle)
        if match is None:
            return None
        start = int(match[2])
        # one character more than is returned shows whether there is a next part
        length = (limit + 1) * _UTF8_BYTES if limit else 1 << 40
        piece = await self._kept.slice(context.principal, match[1], start, length)
        if piece is None or piece.info.tool != tool_id or start > piece.info.size:
            return None
        text = _decode_slice(piece)
        return None if text is None else (text, start, piece.ended, piece.info)

    async def _keep(
        self, text: str, is_json: bool, tool_id: str, context: Context
    ) -> tuple[str, str]:
        """Store `text`; returns the handle, or the reason why there is none."""
        data = text.encode()
        mime_type = "application/json" if is_json else "text/plain"
        about = AnswerInfo(mime_type, text=True, tool=tool_id, size=len(data))
        try:
            return await self._kept.store(context.principal, about, data), ""
        except StorageFull as full:
            return "", str(full)
        except Unavailable as fault:
            return "", fault.message

    def _notice(
        self, share: str, name: str, where: str | None, *, reason: str = "", advice: str = ""
    ) -> str:
        if where is None:
            return (
                f"[Cut here: these are the first {share}. The rest could not be kept: {reason}. "
                f"Ask for less.{advice}]"
            )
        call = encode({CONTINUE: where}).decode()
        handle = where.partition(".")[0]
        return (
            f"[Cut here, after {share}. To go on, call {name} with {call}: that reads on in this "
            f"answer, kept for {self._kept.keep_s:g} s, and asks for nothing anew. The resource "
            f"{uri_of(handle)} is all of it.{advice}]"
        )

    def is_done(
        self, result: ToolResult, tool: Tool, reserved_arguments: ReservedArguments
    ) -> bool:
        """Whether `result` needs no post-processing, as with nearly every call."""
        if reserved_arguments.fields or result.meta is not UNSET or tool.source in self._validated:
            return False
        first = result.content[0] if result.content else None
        return not isinstance(first, TextContent) or len(first.text) <= (self._limit or 1 << 62)

    def checked_error(self, result: ToolResult, tool: Tool, revision: Revision) -> ToolResult:
        """An error with structured content only if the output schema of `tool` allows it: clients
        check it as that of any result, and refuse the whole answer. What is refused is in
        `_meta`."""
        structure = result.structured_content
        if structure is UNSET or self._may_carry(structure, tool, revision):
            return result
        result = _with_meta(result, META_PROBLEM, structure)
        return replace(result, structured_content=UNSET)

    def checked_failure(self, members: Members, tool: Tool, revision: Revision) -> Members:
        """The same for an error that another MCP server's tool reported."""
        structure = members.get("structuredContent")
        if structure is None or self._may_carry(structure, tool, revision):
            return members
        return without_structure(members)

    def _may_carry(self, structure: Raw, tool: Tool, revision: Revision) -> bool:
        if not (revision.checks_errors and revision.titles) or tool.output_schema is None:
            return True
        checker = self._output_checker(tool)
        if checker is None or len(memoryview(structure)) > COMPARISON_BYTES:
            return False
        return not _problems(checker, bytes(structure))

    def _compare_with_schema(self, result: ToolResult, tool: Tool) -> ToolResult:
        """Add the violations of the tool's output schema to `result`, if there are any."""
        checker = self._output_checker(tool)
        if checker is None or result.structured_content is UNSET:
            return result
        if len(memoryview(result.structured_content)) > COMPARISON_BYTES:
            return _with_meta(
                result, META_MISMATCH, [f"not compared: above {COMPARISON_BYTES:,} bytes"]
            )
        problems = _problems(checker, bytes(result.structured_content))
        if not problems:
            return result
        self._mismatches.count(tool.source)
        violations = [
            f"{problem.argument or 'the answer'}: {problem.message}" for problem in problems
        ]
        return _with_meta(result, META_MISMATCH, violations)

    def _output_checker(self, tool: Tool) -> Checker | None:
        """Uses `jsonschema_rs`, as for arguments. openapi-core was considered: it validates whole
        responses against the description, which is not available when a tool is called, and takes
        a hundred times as long."""
        if tool.output_schema is None:
            return None
        checker = self._checkers.get(tool.digest, UNSET)
        return (
            self._checkers.put(tool.digest, _compile_output(tool)) if checker is UNSET else checker
        )


class Mismatches(Collector):
    """Prometheus counter of answers that violate their tool's output schema, by source."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def count(self, source: str) -> None:
        self._count[source] += 1

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_answer_mismatches",
            "Answers that did not fit the output schemas of their tools, by source.",
            labels=("source",),
        )
        for source, count in list(self._count.items()):
            total.add_metric((source,), count)
        yield total


def _own_arguments(tool: Tool) -> set[str]:
    """Argument names in the tool's own schema, including those that collide with reserved ones."""
    properties = _properties.decode(tool.input_schema).get("properties")
    return set() if properties is None else set(_properties.decode(properties))


def _project_result(result: ToolResult, fields: Paths, for_model: bool) -> ToolResult:
    """Project `result` to the requested members; `for_model`: a text names the missing ones."""
    if result.structured_content is UNSET:
        return _unprojected_result(result, "is no JSON", for_model)
    try:
        value, missing = project(result.structured_content, fields)
    except RecursionError:
        return _unprojected_result(result, "is nested too deeply", for_model)
    content: list[Content] = [TextContent(bytes(value).decode())]
    if missing and for_model:
        named = ", ".join(missing[:20])
        content.append(TextContent(f"[_fields: not in this answer: {named}]"))
    return replace(result, content=(*content, *result.content[1:]), structured_content=value)


def _unprojected_result(result: ToolResult, why: str, for_model: bool) -> ToolResult:
    if not for_model:
        return result
    note = TextContent(f"[_fields: the answer {why}, so all of it is here]")
    return replace(result, content=(*result.content, note))


def _with_next(
    result: ToolResult,
    tool: Tool,
    reserved_arguments: ReservedArguments,
    context: Context,
    *,
    checker: Checker,
) -> ToolResult:
    """Add the arguments of the next page, if the tool takes them, also as text."""
    meta = result.meta or {}
    following = meta.get(META_NEXT)
    if following is None:
        return result
    arguments = following["arguments"]
    if not checker.accepts(arguments):
        others = {key: value for key, value in meta.items() if key != META_NEXT}
        return replace(result, meta=others or UNSET)
    if reserved_arguments.fields:
        arguments = {**arguments, FIELDS: reserved_arguments.texts}
        result = _with_meta(result, META_NEXT, {"arguments": arguments})
    if not context.revision.mcp:
        return result
    arguments_text = encode(arguments).decode()
    if len(arguments_text) > ARGUMENT_CHARACTERS:
        arguments_text = f'the arguments in _meta["{META_NEXT}"]'
    hint = TextContent(
        f"More follows: call {reserved_arguments.called or tool.name} again with {arguments_text}"
    )
    return replace(result, content=(*result.content, hint))


def _with_meta(result: ToolResult, key: str, value: Any) -> ToolResult:
    return replace(result, meta={**(result.meta or {}), key: value})


def _continues(where: str | None) -> Json:
    return {META_CONTINUE: {"arguments": {CONTINUE: where}}} if where else {}


def _decode_slice(slice_: AnswerSlice) -> str | None:
    """None when the slice begins inside a character: no handle points there."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return decoder.decode(slice_.data, final=slice_.ended)
    except UnicodeDecodeError:
        return None


def _compile_output(tool: Tool) -> Checker | None:
    try:
        return Checker(bytes(tool.output_schema or b"true"))
    except ValueError as error:
        reason = str(error).split("\n", 1)[0][:300]
        log.warning("output_schema_unusable", extra={"tool": tool.name, "reason": reason})
        return None


def _problems(checker: Checker, answer: bytes) -> list[ArgumentProblem]:
    try:
        value = decode_json(answer)
        return [] if checker.accepts(value) else checker.explain(value)[:PROBLEMS]
    except (ParseError, ValueError, RecursionError) as error:
        return [ArgumentProblem((), f"cannot be checked: {str(error)[:100]}")]
