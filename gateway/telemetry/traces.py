"""Spans of messages and of the calls that they make: plain values, which an exporter turns into
those of OpenTelemetry later. Pure.

Ids follow W3C Trace Context: a trace has 16 bytes, a span 8, and `traceparent` carries both.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from random import getrandbits
from typing import Any

from msgspec import Struct

# Version ff is invalid, and so are ids of zeros (W3C Trace Context, 3.2.2). What a later version
# adds is sent on as a header, and so is bounded.
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-[!-~]{0,200})?"
)
_NEWEST = 55  # characters of version 00, which may not be longer
SAMPLED_FLAG = 1  # bit of the flags
TRACEPARENT = "traceparent"  # the header, and the member of `_meta` (SEP-414)


class SpanContext(Struct, frozen=True, gc=False):  # thousands wait: nothing for the collector
    """Identity of a span, here or elsewhere."""

    trace_id: int
    span_id: int
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.sampled:02x}"

    @property
    def ids(self) -> dict[str, str]:
        """Labels of log lines and exemplars."""
        return {"trace_id": f"{self.trace_id:032x}", "span_id": f"{self.span_id:016x}"}


class SpanTemplate(Struct, frozen=True, eq=False):  # compared by identity: keys of a cache
    """The part that spans of an operation with one outcome share; made and encoded once."""

    name: str
    kind: str  # "server", "client" or "internal"
    error: str = ""  # "": the operation did not fail
    attributes: tuple[tuple[str, str], ...] = ()


class Span(Struct, gc=False):
    """A finished operation. Names of attributes follow the semantic conventions, or begin with
    `toolgate.`."""

    template: SpanTemplate
    context: SpanContext
    started_ns: int  # since 1970
    ended_ns: int
    own_attributes: dict[str, Any] | None = None  # beside those of the template
    parent: SpanContext | None = None
    link: SpanContext | None = None  # a span that is related, but not trusted to be the parent

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.template.attributes) | (self.own_attributes or {})


class ActiveTrace(Struct):
    """The message that a task serves, if it is sampled."""

    context: SpanContext  # of its own span
    parent: SpanContext | None = None
    link: SpanContext | None = None
    tool: str = ""  # the tool that it calls
    calls: list[Span] = []  # finished calls of services
    error: str = ""


CURRENT: ContextVar[ActiveTrace | SpanContext | None] = ContextVar("toolgate_trace", default=None)
"""The span that a task works for: of a message, or of its call of a service."""


def new_context() -> SpanContext:
    """The root of a trace."""
    return SpanContext(getrandbits(128) or 1, getrandbits(64) or 1)


def child_of(parent: SpanContext) -> SpanContext:
    """A new span of the same trace."""
    return SpanContext(parent.trace_id, getrandbits(64) or 1)


def parse(traceparent: Any) -> SpanContext | None:
    """The context in a `traceparent`; None for a malformed one, which is ignored."""
    if not isinstance(traceparent, str):
        return None
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or (traceparent[:2] == "00" and len(traceparent) != _NEWEST):
        return None
    trace_id, span_id, flags = (int(text, 16) for text in match.groups())
    return SpanContext(trace_id, span_id, bool(flags & SAMPLED_FLAG))


Operate = Callable[[str, str, dict[str, Any]], AbstractContextManager[None]]
"""Name, kind and attributes of an operation that is no message: a run of an agent, a request to a
model. Its span ends with the context; the attributes may be completed until then."""


@contextmanager
def no_trace(_name: str, _kind: str, _attributes: dict[str, Any]) -> Iterator[None]:
    """An operation of a gateway without traces."""
    yield
