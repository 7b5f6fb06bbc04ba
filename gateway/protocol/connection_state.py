"""The `requestState` of requests to connect an account: the gateway's own, of no other server."""

from collections.abc import Mapping
from typing import Any

STATE = "toolgate/connect:"  # begins it; the rest counts the requests
MOST = 3  # requests of one call
OWN_MEMBERS = ("requestState", "inputResponses")


def times_asked(params: Mapping[str, Any]) -> int:
    """How often the client was asked already for the call that it retries."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(STATE):
        return 0
    count = state.removeprefix(STATE)
    return min(int(count), MOST) if count.isascii() and count.isdecimal() and len(count) < 3 else 0


def without_own_state(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a retry without what the gateway asked for itself."""
    if not times_asked(params):
        return params
    return {name: value for name, value in params.items() if name not in OWN_MEMBERS}
