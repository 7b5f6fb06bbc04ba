"""Hybrid services written in Python: mark functions as actions, name the module in the settings.

    from gateway import hybrid

    SCHEMA = {"type": "object", "required": ["ruleId"]}

    @hybrid.action("lightapi.net/rule/deleteRule/0.1.0", side="command", schema=SCHEMA)
    async def delete_rule(data, call: hybrid.Call):
        return "OK"

    sources:
      rules: {python: rules.py}

A function takes the data, and the `Call` if it has a second parameter; one with a default gets
it only if it is named `call` or annotated so. A function that is not `async` runs in a thread; an
async one must not block, or it delays every other call. It returns None for no result, text, or any
JSON value; text that is JSON counts as JSON, and NaN and infinity, which JSON lacks, become null.
`raise Failure(...)` answers with a Status of your own; any other exception is a bug, which the
client sees as an internal error without details.

A module attribute HYBRID_SPEC, the path of a spec.yaml (relative to the module's folder), replaces
the decorators' schema, scope and skipAuth. A function that it does not describe is not served.
"""

from gateway.hybrid.python_services import Call, Failure, action
from schemas.hybrid import Status

__all__ = ["Call", "Failure", "Status", "action"]
