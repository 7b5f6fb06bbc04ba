"""Settings of the a2a wing. Their defaults, units and reasons are in `defaults.yaml`."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.value_types import END, Amount, Bytes, Count, OptionalUrl, Seconds

A2AName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}" + END, description="words of a-z, 0-9 and -")
]

A2AVersion = Literal["1.0", "0.3"]


class A2AAgent(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent that is served to others. `kind`: "agent" asks the agent wing, "tools" makes the
    calls that messages name, without a model."""

    description: str
    kind: Literal["agent", "tools"] = "agent"
    strategy: str = ""
    skills: tuple[str, ...] = ()
    toolset: str = ""
    examples: tuple[str, ...] = ()
    tenant: str = ""


class A2ASettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    agents: Mapping[A2AName, A2AAgent]
    default: Annotated[
        str, Meta(pattern=r"^([a-z0-9][a-z0-9-]{0,62})?" + END, description="the name of an agent")
    ]
    versions: Annotated[tuple[A2AVersion, ...], Meta(min_length=1)]
    url: OptionalUrl
    card: Literal["public", "authenticated"]
    card_age_s: Amount
    sign: bool
    message_bytes: Bytes
    tasks: Count
    tasks_per_tenant: Count
    tasks_per_principal: Count
    open_tasks: Count
    streams: Count
    list_bytes: Bytes
    keep_days: Count
    wait_s: Seconds
    answer_s: Amount
    poll_s: Seconds
    lease_s: Seconds
    renew_s: Seconds
    keep_alive_s: Seconds
    show_calls: bool
    repeat_s: Amount
    push: bool
    push_private: bool
    push_configs: Count
    push_s: Seconds
