"""What goes to a server of one era on behalf of a client of another. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.context import Context
from schemas.mcp.messages import META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL, META_VERSION
from schemas.mcp.snapshot import Eras

OWN_META = frozenset({META_VERSION, META_CAPABILITIES, META_CLIENT, META_LOG_LEVEL})
ROUNDS = ("inputResponses", "requestState")  # of a request that is sent again with answers
ASKS: Mapping[str, frozenset[str]] = {  # what a client can be asked, and the kinds of it
    "sampling": frozenset({"context", "tools"}),
    "elicitation": frozenset({"form", "url"}),
    "roots": frozenset(),
}


def era_for(spoken: Mapping[str, bool], eras: Eras, handshake_client: bool) -> str | None:
    """The era to ask a server in: the client's own where the server lists the thing in it.

    `spoken` says which of "handshake" and "stateless" the server speaks. None: neither will do."""
    own, other = ("handshake", "stateless") if handshake_client else ("stateless", "handshake")
    usable = [era for era in (own, other) if spoken[era] and eras in {"both", era}]
    return usable[0] if usable else None


def askable(context: Context) -> dict[str, Any]:
    """What the client can be asked, as capabilities of ours at a server: kinds that we know."""
    if context.peer is None or (context.revision.handshake and context.session is None):
        return {}
    said = context.capabilities
    return {
        name: {kind: {} for kind in sorted(kinds) if kind in _object(said[name])}
        for name, kinds in ASKS.items()
        if isinstance(said.get(name), dict) and (name != "elicitation" or context.revision.elicits)
    }


def stateless_params(
    params: Mapping[str, Any], context: Context, capabilities: Mapping[str, Any]
) -> dict[str, Any]:
    """`params` for a 2026-07-28 server; `capabilities` are what the client can be asked.

    A client of that revision has everything in its `_meta` already, and all of it goes on: also
    the extensions that it declares."""
    kept = {name: value for name, value in params.items() if name != "task"}
    meta = {**_object(params.get("_meta"))}
    session = context.session
    if session is None and isinstance(meta.get(META_CAPABILITIES), dict):
        return {**kept, "_meta": meta}
    meta[META_CAPABILITIES] = capabilities
    if session is not None:
        if session.client:
            meta[META_CLIENT] = session.client
        if session.log_level is not None:
            meta[META_LOG_LEVEL] = session.log_level
    return {**kept, "_meta": meta}


def handshake_params(params: Mapping[str, Any], tasks: bool) -> dict[str, Any]:
    """`params` for a server whose session says what a 2026-07-28 request says itself."""
    kept = {
        name: value
        for name, value in params.items()
        if name not in ROUNDS and (name != "task" or tasks)
    }
    meta = {name: said for name, said in _object(kept.pop("_meta", None)).items()
            if name not in OWN_META}  # fmt: skip
    return {**kept, "_meta": meta} if meta else kept


def canonical(value: Any) -> str:
    """JSON of `value` that is the same for equal values."""
    return msgspec.json.encode(value, order="deterministic").decode()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
