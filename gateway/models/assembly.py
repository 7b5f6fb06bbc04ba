"""Assembly of tool calls from the fragments of a stream, as vendors really send them. Pure.

Ollama gives all parallel calls one index, Gemini's endpoint none; some repeat the id in every
fragment, some send it late or never. The rule: a known id names its call. An unseen id begins a
call, unless the call at that index has none yet and no name comes with it. Without id, the index
names the call (without index: the last one), and a name begins a new call once the arguments of
that one are complete JSON.
"""

from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import decode

from gateway.models.abc import ModelCall
from schemas.errors import Fault, ToolgateError
from schemas.jsonrpc import DEPTH, decode_strict, json_type, nests_within


class CallInProgress(Struct):
    id: str = ""
    name: str = ""
    parts: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def complete(self) -> bool:
        """Whether the arguments are complete JSON."""
        try:
            decode(self.arguments.encode("utf-8", "replace"))
        except (DecodeError, ValidationError, RecursionError):
            return False
        return True


class CallAssembler:
    """Calls of one answer."""

    def __init__(self, made: str = "call") -> None:
        """`made` begins the ids of calls that come without."""
        self._made = made
        self._calls: list[CallInProgress] = []
        self._by_id: dict[str, CallInProgress] = {}
        self._by_index: dict[int, CallInProgress] = {}

    def feed(
        self, index: int | None, id_: str = "", name: str = "", arguments: str = ""
    ) -> CallInProgress | None:
        """Add a fragment; returns the call if it has begun with this fragment."""
        call, begun = self._named(index, id_, name)
        if name and not call.name:
            call.name = name
        if arguments:
            call.parts.append(arguments)
        return call if begun else None

    def calls(self) -> tuple[ModelCall, ...]:
        """All calls in the order in which they began. Ids are unique: missing and repeated ones are
        replaced."""
        found: dict[str, ModelCall] = {}
        for place, call in enumerate(self._calls):
            id_ = call.id if call.id and call.id not in found else f"{self._made}_{place}"
            found[id_] = ModelCall(id_, call.name, call.arguments)
        return tuple(found.values())

    def id_of(self, call: CallInProgress) -> str:
        """The id as `calls` gives it, unless another one follows for the same call."""
        return call.id or f"{self._made}_{self._calls.index(call)}"

    def _named(self, index: int | None, id_: str, name: str) -> tuple[CallInProgress, bool]:
        if id_ and (known := self._by_id.get(id_)) is not None:
            return known, False
        at = self._at(index)
        if id_:
            if at is None or at.id or name:
                return self._begin(index, id_), True
            at.id = id_
            self._by_id[id_] = at
            return at, False
        if at is None or (name and at.name and at.complete):
            return self._begin(index, ""), True
        return at, False

    def _at(self, index: int | None) -> CallInProgress | None:
        if index is not None:
            return self._by_index.get(index)
        return self._calls[-1] if self._calls else None

    def _begin(self, index: int | None, id_: str) -> CallInProgress:
        call = CallInProgress(id_)
        self._calls.append(call)
        if id_:
            self._by_id[id_] = call
        if index is not None:
            self._by_index[index] = call
        return call


class UnusableArguments(ToolgateError):
    """Arguments that cannot be executed; the text is for the model."""


def call_arguments(call: ModelCall, limit_bytes: int) -> dict[str, Any]:
    """The arguments of a call. Raises UnusableArguments, also for a member that occurs twice."""
    text = call.arguments.encode("utf-8", "surrogatepass")
    if len(text) > limit_bytes:
        raise UnusableArguments(
            f"The arguments have {len(text):,} bytes; at most {limit_bytes:,} are accepted"
            " (models.arguments_limit_bytes). Nothing was executed."
        )
    if not text.strip():
        return {}
    if not nests_within(text, DEPTH):
        raise UnusableArguments(
            f"The arguments are nested deeper than {DEPTH} levels. Nothing was executed."
        )
    try:
        arguments = decode_strict(text)
    except Fault as error:
        reason = error.message.replace("The body", "The text")
        raise UnusableArguments(
            f"The arguments are not one JSON object: {reason}. Nothing was executed; send the call"
            " again with one JSON object."
        ) from error
    if not isinstance(arguments, dict):
        found = json_type(arguments)
        raise UnusableArguments(
            f"Expected one JSON object as arguments, found {found}. Nothing was executed."
        )
    return arguments
