"""A tool inside the gateway that tells callers who they are there."""

from typing import Any

from gateway import hybrid


@hybrid.action("example.com/person/whoAmI/1", side="query", description="Who I am here")
def who_am_i(_data: Any, call: hybrid.Call) -> dict[str, Any]:
    return {"principal": call.principal.id, "roles": sorted(call.principal.roles)}
