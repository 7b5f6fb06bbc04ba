"""The JSON text of a GET, in its query."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transports.jsonrpc_http import _command
from schemas.errors import InvalidRequest
from tests.gateway.asgi import http

PIECES = st.sampled_from(["a", "b", "+", "%20", "%C3%A9", "%FF", "%", "=", ";", "%26", "{", '"'])


@given(st.lists(PIECES).map("".join))
def test_the_cmd_parameter_is_decoded_like_a_form(value: str) -> None:
    query = f"cmd={value}"
    scope = {**http("GET", "/portal/query", []), "query_string": query.encode()}
    try:
        [(_, text)] = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        with pytest.raises(InvalidRequest):
            _command(scope)
    else:
        assert _command(scope) == text.encode()
