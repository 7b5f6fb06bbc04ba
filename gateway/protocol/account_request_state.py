"""The `requestState` of requests to connect an account: the gateway's own, of no other server."""

from collections.abc import Mapping
from typing import Any

STATE = "toolgate/connect:"  # begins it; then the number of requests, and perhaps a sealed state
MOST = 3  # requests of one call
OWN_MEMBERS = ("requestState", "inputResponses")


def make_state(times: int, call_state: str) -> str:
    """`call_state`: the state of the call that is retried, "" without one."""
    return f"{STATE}{times}:{call_state}" if call_state else f"{STATE}{times}"


def split_state(params: Mapping[str, Any]) -> tuple[str, str]:
    """The state without the sealed one, and that; both are "" for states of others."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(STATE):
        return "", ""
    count, _, sealed = state.removeprefix(STATE).partition(":")
    return STATE + count, sealed


def times_asked(params: Mapping[str, Any]) -> int:
    """How often the client was asked already for the call that it retries."""
    count = split_state(params)[0].removeprefix(STATE)
    return min(int(count), MOST) if count.isascii() and count.isdecimal() and len(count) < 3 else 0


def without_own_state(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a retry without what the gateway asked for itself."""
    if not times_asked(params):
        return params
    return {name: value for name, value in params.items() if name not in OWN_MEMBERS}
