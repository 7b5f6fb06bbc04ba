"""Assembly of tool calls from the fragments of a stream, as vendors really send them. Pure.

Ollama gives all parallel calls one index, Gemini's endpoint none; some repeat the id in every
fragment, some send it late or never, some give one id to all calls, and some count the index of
arguments otherwise than that of names.

The rule: a known id names its call, of several the one at that index; a name beside it begins
another call at another index, or once the arguments are complete JSON. An unseen id begins a call,
unless the call at that index has none yet and no name comes with it. Without id, the index names
the call (without index: the last one), and a name begins a new call once the arguments of that one
are complete. Arguments alone never begin a call: where their index is new, or its call complete,
they are those of the last one.
"""

from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import decode
from msgspec.structs import replace

from gateway.wings.models.messages import ModelCall
from schemas.errors import Fault, ToolgateError
from schemas.jsonrpc import DEPTH, decode_strict, json_type, nests_within

ENDINGS = frozenset('}]"l')  # of an object, an array, a text, and null


class CallInProgress(Struct):
    id: str = ""
    index: int | None = None
    name: str = ""
    parts: list[str] = []
    extra: Any = None  # what goes back with the call, verbatim

    @property
    def arguments(self) -> str:
        return "".join(self.parts)

    @property
    def complete(self) -> bool:
        """Whether the arguments are complete JSON."""
        if not self.parts or self.parts[-1].rstrip()[-1:] not in ENDINGS:
            return False  # without reading all of them again with each fragment
        try:
            decode(self.arguments.encode("utf-8", "replace"))
        except (DecodeError, ValidationError, RecursionError):
            return False
        return True


class CallAssembler:
    """Calls of one answer."""

    def __init__(self, id_prefix: str = "call") -> None:
        """`id_prefix` begins the ids of calls that come without."""
        self._made = id_prefix
        self._calls: list[CallInProgress] = []
        self._by_id: dict[str, CallInProgress] = {}
        self._by_index: dict[int, CallInProgress] = {}
        self._again: CallInProgress | None = None  # complete, and named again since

    def feed(
        self,
        index: int | None,
        id_: str = "",
        name: str = "",
        arguments: str = "",
        *,
        extra: Any = None,
    ) -> CallInProgress | None:
        """Add a fragment; returns the call if it has begun with this fragment."""
        call, begun = self._call_in_progress(index, id_, name, arguments)
        if extra is not None:
            call.extra = extra
        if name and not call.name:
            call.name = name
        if arguments:
            call.parts.append(arguments)
        return call if begun else None

    @property
    def any(self) -> bool:
        """Whether a call has begun."""
        return bool(self._calls)

    def calls(self) -> tuple[ModelCall, ...]:
        """All calls in the order in which they began."""
        return tuple(ModelCall(id_, call.name, call.arguments) for id_, call in self._by_own_id())

    def extras(self) -> dict[str, Any]:
        """Members that go back with calls, by the ids that `calls` gives."""
        return {id_: call.extra for id_, call in self._by_own_id() if call.extra is not None}

    def id_of(self, call: CallInProgress) -> str:
        """The id as `calls` gives it, unless another one follows for the same call."""
        return next(id_ for id_, other_call in self._by_own_id() if other_call is call)

    def _by_own_id(self) -> list[tuple[str, CallInProgress]]:
        """The calls by unique ids: missing and repeated ones are replaced."""
        calls: dict[str, CallInProgress] = {}
        for place, call in enumerate(self._calls):
            id_ = call.id if call.id and call.id not in calls else f"{self._made}_{place}"
            calls[id_] = call
        return list(calls.items())

    def _call_in_progress(
        self, index: int | None, id_: str, name: str, arguments: str
    ) -> tuple[CallInProgress, bool]:
        at = self._at(index)
        if id_ and (call := self._by_id.get(id_)) is not None:
            if index is not None and at is not None and at.id == id_:
                call = at
            if name and None not in (index, call.index) and index != call.index:
                return self._begin(index, id_), True
            return self._repeat_of(call, index, name, arguments)
        if id_:
            if at is None or at.id or name:
                return self._begin(index, id_), True
            at.id = id_
            self._by_id[id_] = at
            return at, False
        if name:
            if at is None or (at.name and at.complete):
                return self._begin(index, ""), True
            return at, False
        return self._continue(at, index, arguments)

    def _repeat_of(
        self, same_id: CallInProgress, index: int | None, name: str, arguments: str
    ) -> tuple[CallInProgress, bool]:
        """The call of a fragment for a known one: another one of its id, where that is complete and
        arguments follow its name. A name alone may be a mere repetition."""
        if not same_id.complete:
            return same_id, False
        another = bool(name) and name != same_id.name
        if another or (arguments.strip() and (name or self._again is same_id)):
            call = self._begin(index, same_id.id)
            call.name, self._again = name or same_id.name, None
            return call, True
        if name:
            self._again = same_id
        return same_id, False

    def _continue(
        self, at: CallInProgress | None, index: int | None, arguments: str
    ) -> tuple[CallInProgress, bool]:
        """The call of arguments alone."""
        if not self._calls:
            return self._begin(index, ""), True
        if at is not None and at is self._again:
            return self._repeat_of(at, index, "", arguments)
        last = self._calls[-1]
        strays = at is not None and at is not last and arguments.strip() and at.complete
        if at is None or (strays and not last.complete):
            at = last
            if index is not None:
                self._by_index[index] = last
        return at, False

    def _at(self, index: int | None) -> CallInProgress | None:
        if index is not None:
            return self._by_index.get(index)
        return self._calls[-1] if self._calls else None

    def _begin(self, index: int | None, id_: str) -> CallInProgress:
        call = CallInProgress(id_, index)
        self._calls.append(call)
        if id_:
            self._by_id[id_] = call
        if index is not None:
            self._by_index[index] = call
        return call


def plain_arguments(call: ModelCall) -> ModelCall:
    """The call, where its arguments are JSON inside a JSON text, or `null`, with what they mean."""
    text = call.arguments.strip()
    if text[:1] not in ('"', "n") or not nests_within(text.encode("utf-8", "replace"), DEPTH):
        return call
    try:
        inner = decode(text.encode("utf-8", "replace"))
    except (DecodeError, ValidationError):
        return call
    if inner is None:
        return replace(call, arguments="{}")
    if isinstance(inner, str) and inner.strip()[:1] == "{":
        return replace(call, arguments=inner)
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
        actual = json_type(arguments)
        raise UnusableArguments(
            f"Expected one JSON object as arguments, found {actual}. Nothing was executed."
        )
    return arguments
