"""Admission: the protocol era of a POSTed message, and whether it is accepted.

The validation steps of `basic/versioning` and `basic/transports`, 2026-07-28, with the handshake
revisions beside them. One endpoint serves all: a request is stateless (2026-07-28) when its `_meta`
names a protocol version, else it belongs to the session that its header names.

Deviation: a version header that names a supported revision other than the session's is accepted,
and the session's revision is served. The specification demands 400 for unsupported ones only, and
clients exist that send the version they requested instead of the negotiated one.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct

from gateway.context import Session
from gateway.protocol.dispatcher import check_id
from schemas.errors import (
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MalformedEnvelope,
    SessionNotFound,
    SessionRequired,
    UnsupportedProtocolVersion,
)
from schemas.jsonrpc import Invalid, Message, Request, Response, encode
from schemas.mcp.headers import NAMED_BY, decode_header
from schemas.mcp.messages import META_CAPABILITIES, META_VERSION, InitializeParams, read
from schemas.mcp.revisions import HANDSHAKE, STATELESS, SUPPORTED, V2025_03_26, Revision, negotiate

# Kept by every node for the life of the session, and clients choose how many sessions.
INTRODUCTION_BYTES = 16_384
BATCH_IDS_BYTES = 65_536  # part of every record of the batch's stream

FindSession = Callable[[str], Session | None]


class Headers(Struct):
    """The headers that decide admission; `duplicated` names a routing header sent twice."""

    version: str | None = None
    session: str | None = None
    method: str | None = None
    name: str | None = None
    duplicated: str | None = None
    mirrored: dict[str, str] | None = None  # Mcp-Param-*, by the rest of their names


class AdmittedRequest(Struct, frozen=True):
    revision: Revision
    session: Session | None = None
    opens: InitializeParams | None = None  # an `initialize`: a session is to be opened


_STATELESS = {name: AdmittedRequest(revision) for name, revision in STATELESS.items()}
_NEWEST = next(iter(_STATELESS.values()))


def admit(
    headers: Headers,
    message: Message | list[Message],
    find: FindSession,
    sessionless: bool = False,
) -> AdmittedRequest:
    """Admit a POSTed body; `sessionless` admits it without `initialize` too. Raises the Fault that
    rejects it."""
    if isinstance(message, list):
        return _admit_batch(headers, message, find, sessionless)
    if isinstance(message, Invalid):
        raise message.fault
    if isinstance(message, Response):
        if headers.version in STATELESS:
            raise InvalidRequest(f"{headers.version} has no requests of ours to respond to")
        check_version(headers)
        return _session(headers, find)
    params = message.params
    version = meta_version(params["_meta"]) if type(params) is dict and "_meta" in params else UNSET
    if version is not UNSET or headers.version in STATELESS:
        return _admit_stateless(headers, message, version)
    if headers.version is not None and headers.version not in HANDSHAKE:
        raise _unsupported_version(headers.version)
    if message.id is not UNSET:
        check_id(message.id)
    if message.method == "initialize":
        return _admit_initialize(message)
    if sessionless and headers.session is None:
        return AdmittedRequest(_unnegotiated_revision(headers))
    return _session(headers, find)


def meta_version(meta: Any) -> Any:
    """The protocol version in a request's `_meta`; UNSET when it has none."""
    return meta.get(META_VERSION, UNSET) if isinstance(meta, dict) else UNSET


def check_version(headers: Headers) -> None:
    """Raises UnsupportedProtocolVersion unless the header, if sent, names a handshake revision."""
    if headers.version is not None and headers.version not in HANDSHAKE:
        raise _unsupported_version(headers.version)


def _admit_initialize(request: Request) -> AdmittedRequest:
    if request.id is UNSET:
        raise InvalidRequest("initialize is a request: it needs an id")
    params = read_introduction(request)
    return AdmittedRequest(negotiate(params.protocol_version), opens=params)


def read_introduction(request: Request) -> InitializeParams:
    """The parameters of `initialize`. Raises InvalidParams, also when they are too large to
    keep."""
    params = read(request.params, InitializeParams)
    size = len(encode((params.client_info, params.capabilities)))
    if size > INTRODUCTION_BYTES:
        raise InvalidParams(
            f"clientInfo and capabilities have {size} bytes; at most {INTRODUCTION_BYTES} are kept"
        )
    return params


def _session(headers: Headers, find: FindSession) -> AdmittedRequest:
    if headers.session is None:
        raise SessionRequired(
            "Mcp-Session-Id is missing. Send `initialize` first, or a 2026-07-28 request, "
            "which needs no session but carries its `_meta`",
            {"supported": list(SUPPORTED)},
        )
    session = find(headers.session)
    if session is None:
        raise SessionNotFound("Session not found: it ended or never was. Send `initialize` again")
    return AdmittedRequest(session.revision, session)


def _unnegotiated_revision(headers: Headers) -> Revision:
    """The revision of a client without a handshake; without a header 2025-03-26, as 2025-06-18
    requires."""
    return V2025_03_26 if headers.version is None else HANDSHAKE[headers.version]


def _admit_batch(
    headers: Headers, batch: list[Message], find: FindSession, sessionless: bool
) -> AdmittedRequest:
    if not batch:
        raise InvalidRequest("The batch is empty")
    if headers.version in STATELESS or (headers.session is None and not sessionless):
        raise InvalidRequest("Batches exist in 2025-03-26 sessions only (and on the /rpc endpoint)")
    admitted = _speaker(headers, find)
    revision = admitted.revision
    if not revision.batches:
        raise InvalidRequest(f"{revision.name} has no batches: send one message at a time")
    if any(isinstance(item, Request) and item.method == "initialize" for item in batch):
        raise InvalidRequest("initialize must not be part of a batch")
    if len({isinstance(item, Response) for item in batch}) > 1:
        raise InvalidRequest("A batch holds requests and notifications, or responses, not both")
    if _ids_length(batch) > BATCH_IDS_BYTES:
        raise InvalidRequest(f"The ids of a batch must have at most {BATCH_IDS_BYTES} bytes in all")
    return admitted


def _ids_length(batch: list[Message]) -> int:
    ids = [
        request.id for request in batch if isinstance(request, Request) and request.id is not UNSET
    ]
    return len(encode(ids))


def _speaker(headers: Headers, find: FindSession) -> AdmittedRequest:
    if headers.session is not None:
        return _session(headers, find)
    check_version(headers)
    return AdmittedRequest(_unnegotiated_revision(headers))


def _admit_stateless(headers: Headers, request: Request, version: Any) -> AdmittedRequest:
    if request.id is UNSET:
        return _NEWEST
    check_id(request.id)
    if headers.duplicated is not None:
        raise HeaderMismatch(f"{headers.duplicated} is sent more than once")
    _check_envelope(request, version)
    if version in HANDSHAKE and headers.version in {None, version}:
        raise _unsupported_version(
            version
        )  # named in its body; the newer headers are not required of it
    if headers.version != version:
        raise _mismatch("MCP-Protocol-Version", headers.version)
    if headers.method != request.method:
        raise _mismatch("Mcp-Method", headers.method)
    named_by = NAMED_BY.get(request.method)
    if named_by is not None and isinstance(request.params, dict):
        name = decode_header(headers.name)
        if name is None or name != request.params.get(named_by):
            raise _mismatch("Mcp-Name", name)
    admitted = _STATELESS.get(version)
    if admitted is None:
        raise _unsupported_version(version)
    return admitted


def _check_envelope(request: Request, version: Any) -> None:
    meta = request.params.get("_meta") if isinstance(request.params, dict) else None
    if not isinstance(version, str):
        raise MalformedEnvelope(f'params._meta["{META_VERSION}"] is missing or no string')
    if not isinstance(meta, dict) or not isinstance(meta.get(META_CAPABILITIES), dict):
        raise MalformedEnvelope(f'params._meta["{META_CAPABILITIES}"] is missing or no object')


def _mismatch(header: str, header_value: str | None) -> HeaderMismatch:
    """The fault of a header that does not repeat the body's value."""
    if header_value is None:
        return HeaderMismatch(f"{header} is missing or malformed: it must repeat the body's value")
    return HeaderMismatch(f"{header} says {header_value[:100]!r}, but the body does not")


def _unsupported_version(version: str) -> UnsupportedProtocolVersion:
    return UnsupportedProtocolVersion(
        "Unsupported protocol version", {"supported": list(SUPPORTED), "requested": version}
    )
