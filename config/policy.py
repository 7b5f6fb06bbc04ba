"""Settings of who may do what, and of what passes: rules, approvals, guardrails."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from config.types import (
    Bytes,
    CelText,
    Count,
    RuleName,
    ScopeName,
    Seconds,
    SourceName,
    Text,
    TierName,
)

# What `when` may look at.
RULE_VARIABLES = ("principal", "tool", "source", "arguments")
GUARDRAIL_VARIABLES = ("principal", "tool", "value")


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `policy.rules`. It speaks of a call where everything that it names fits: one of
    `roles`, one of `scopes`, one of `principals`, and so on; what it leaves out fits anything."""

    effect: Literal["allow", "deny", "approve"]
    tools: tuple[str, ...] = ()  # patterns of names
    sources: tuple[SourceName, ...] = ()
    toolsets: tuple[str, ...] = ()  # whose endpoint it is asked at
    tiers: tuple[TierName, ...] = ()
    destructive: bool | None = None  # hint of the tool
    roles: tuple[str, ...] = ()
    scopes: tuple[ScopeName, ...] = ()
    principals: tuple[str, ...] = ()
    when: CelText = ""  # CEL over principal, tool, source and arguments; "" is true
    reason: Text = ""  # told to those who ask why


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    default: Literal["allow", "deny"]
    rules: Mapping[RuleName, Rule]
    tiers: tuple[TierName, ...]  # least sensitive first
    clearances: Mapping[str, TierName]  # role -> highest tier
    default_clearance: TierName
    default_tier: TierName
    approve_destructive: bool
    approval_s: Seconds
    approvals: Count  # that wait at a time, of one principal
    views: Count  # of catalogs that are remembered
    argument_values: Count  # that expressions look at
    argument_bytes: Bytes
    expression_steps: Count  # that `when` may take


class Guardrail(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `guardrails.rules`: looks at arguments or results."""

    looks_at: Literal["arguments", "result"]
    effect: Literal["deny", "redact"]
    tools: tuple[str, ...] = ()
    sources: tuple[SourceName, ...] = ()
    roles_exempt: tuple[str, ...] = ()
    fields: tuple[Text, ...] = ()  # dotted paths, "*" for any member or item
    pattern: Text = ""  # regular expression, linear time
    when: CelText = ""
    reason: Text = ""


class GuardrailsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    mask: bool  # what schemas mark with x-mask
    rules: Mapping[RuleName, Guardrail]
    inspect_bytes: Count
    when_larger: Literal["deny", "pass"]
    expression_steps: Count  # that `when` may take
