"""Checks that do not succeed when the two sides are of different eras, and why the other era cannot
say what they look for.

Keys: era of the server behind the gateway, scenario, check. A check that stands here and succeeds
is an error too, so that the list stays as short as it can be.
"""

_NO_KEY = (
    'the suite wants the question to have the key "user_name", which its server chose. A server of '
    "a revision with `initialize` asks by the request elicitation/create, {jsonrpc, id, method, "
    "params: {message, requestedSchema}} (schema of 2025-11-25, ElicitRequest): no member says a "
    "key, so the gateway mints one"
)

EXPECTED: dict[tuple[str, str, str], str] = {
    (
        "handshake",
        "input-required-result-basic-elicitation",
        "sep-2322-elicitation-incomplete",
    ): _NO_KEY,
    (
        "handshake",
        "input-required-result-ignore-extra-params",
        "sep-2322-ignore-unexpected-params",
    ): _NO_KEY + "; and it answers under that key before anything is asked",
}
