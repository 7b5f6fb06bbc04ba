"""Settings of hooks: code of the operator at points of a call. Their reasons are in
`defaults.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.value_types import (
    END,
    Bytes,
    CelText,
    ClaimName,
    Count,
    OptionalUrl,
    Seconds,
    Share,
    WebhookSecret,
)

HookPoint = Literal["identity", "list", "before", "after", "credential", "audit"]
OF_CALLS = ("before", "after", "credential")  # the points with a tool
HOOK_VARIABLES = frozenset({"principal", "tool", "arguments"})
HookTarget = Annotated[
    str,
    Meta(
        pattern=r"^([\w./-]+:[A-Za-z_]\w*|[A-Za-z_][\w.-]*)?" + END,
        description="module:function, or the name of an entry point in the group toolgate.hooks",
    ),
]


class HookSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `hooks`, with one of `use` and `url`."""

    at: HookPoint
    use: HookTarget = ""
    url: OptionalUrl = ""
    secret: WebhookSecret | None = None  # of `url`
    when: CelText = ""
    tools: tuple[str, ...] = ()  # patterns; none: all
    claims: tuple[ClaimName, ...] = ()  # of the caller that it is told
    order: int = 0
    timeout_s: Seconds = 1.0
    failure: Literal["refuse", "pass"] = "refuse"
    changes: bool = False  # whether it may do more than refuse
    concurrency: Count = 20
    tenant_share: Share = 0.75  # of `concurrency`, that one tenant may have
    caller_share: Share = 0.5
    result_bytes: Bytes = 262_144  # a longer result is told by size and hash
    cache_s: Seconds = 60.0  # of an answer about an identity
    queue: Count = 1000  # records that wait for a hook at `audit`
