"""The columns of a tool that can be changed by hand, and their validation. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from psycopg.types.json import Json, Jsonb

from registry.tools.tool_errors import ToolRefused
from schemas.json_schema.checker import Checker
from schemas.source import HybridOptions
from schemas.tool import ToolDraft


@dataclass(frozen=True, slots=True)
class Address:
    """The source that calls go through: an existing one, or, with `base_url`, a new one. `guarded`:
    named by a caller who is no operator, so that calls lead to public addresses only."""

    name: str
    base_url: str | None = None
    options: HybridOptions = field(default_factory=HybridOptions)
    guarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """Search metadata of a tool, by columns of `tool_t`. None: unchanged; "" or (): cleared."""

    routing_domain: str | None = None
    semantic_namespace: str | None = None
    sensitivity_tier: str | None = None
    semantic_weight: float | None = None
    lifecycle_status: str | None = None
    target_personas: str | None = None
    keywords: tuple[str, ...] | None = None  # tool_metadata: routing.semanticKeywords
    cost_tier: str | None = None  # one of COST_TIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualEdit:
    """A change by hand; None: unchanged. All but `description` and `details` apply to tools made by
    hand only. No value contains NUL characters."""

    description: str | None = None
    title: str | None = None  # "": none
    input_schema: Mapping[str, Any] | None = None
    examples: tuple[Any, ...] | None = None
    tags: tuple[str, ...] | None = None
    details: Details = field(default_factory=Details)


@dataclass(frozen=True, slots=True)
class NewTool:
    """A tool to be made; `draft.key` is unused."""

    draft: ToolDraft
    address: Address | None = None
    details: Details = field(default_factory=Details)


class CatalogRow(Struct, frozen=True):
    """The administrative columns of a tool's row, which callers do not see."""

    name: str
    source: str  # "": none
    kind: str  # of the source, a key of `schemas.source`; "": none
    manual: bool
    disabled: bool
    implementation_type: str
    description_source: str
    overridden: bool
    override_ts: datetime | None
    override_user: str | None
    routing_domain: str | None
    semantic_namespace: str | None
    sensitivity_tier: str | None
    semantic_weight: float
    lifecycle_status: str
    target_personas: str | None
    cost_tier: str | None
    tags: list[str]
    keywords: Any


WEIGHT_LIMIT = 100
COST_TIERS: tuple[str, ...] = ("low", "medium", "high")
_LENGTHS = {"routing_domain": 128, "semantic_namespace": 128, "sensitivity_tier": 64}


def check_schema(name: str, schema: Mapping[str, Any]) -> None:
    """Raises ToolRefused for an input schema that is invalid for tools."""
    if schema.get("type") != "object":
        raise ToolRefused(f'{name}: expected "type": "object" in the input schema')
    if not isinstance(schema.get("properties", {}), dict):
        raise ToolRefused(f"{name}: the input schema's `properties` are no object")
    try:
        Checker(msgspec.json.encode(schema))
    except ValueError as error:
        reason = str(error).partition("\n")[0][:300]
        raise ToolRefused(f"{name}: the input schema cannot be used: {reason}") from error


def check_imported(row: CatalogRow, change: ManualEdit) -> None:
    changed = [
        field.name.replace("_", " ")
        for field in fields(ManualEdit)
        if field.name not in {"description", "details"} and getattr(change, field.name) is not None
    ]
    if changed:
        raise ToolRefused(
            f"{row.name}: its {', '.join(changed)} would be overwritten by the next import of "
            f"{row.source}: change that description, or an overlay to it"
        )


def columns_of(details: Details) -> dict[str, Any]:
    """Columns of `tool_t`. Raises ToolRefused."""
    for name, limit in _LENGTHS.items():
        if len(getattr(details, name) or "") > limit:
            raise ToolRefused(f"the {name.replace('_', ' ')} may have {limit} characters")
    weight = details.semantic_weight
    if weight is not None and not 0 < weight <= WEIGHT_LIMIT:  # rejects NaN too
        raise ToolRefused(f"the semantic weight is above 0 and at most {WEIGHT_LIMIT}")
    if details.cost_tier and details.cost_tier not in COST_TIERS:
        raise ToolRefused(f"the cost tier is one of {', '.join(COST_TIERS)}")
    values = {field.name: getattr(details, field.name) for field in fields(Details)}
    keywords = values.pop("keywords")
    columns = {name: value or None for name, value in values.items() if value is not None}
    if weight is not None:
        columns["semantic_weight"] = weight
    if keywords is not None:
        metadata = {"routing": {"semanticKeywords": list(keywords)}} if keywords else None
        columns["tool_metadata"] = metadata and Jsonb(metadata)
    return columns


def own_columns(name: str, schema: Mapping[str, Any], change: ManualEdit) -> dict[str, Any]:
    """Columns of a tool that was made by hand. Raises ToolRefused."""
    columns: dict[str, Any] = {}
    if change.title is not None:
        columns["title"] = change.title or None
    if change.tags is not None:
        columns["tags"] = list(change.tags)
    if change.input_schema is not None or change.examples is not None:
        input_schema = dict(schema if change.input_schema is None else change.input_schema)
        if change.examples is not None:
            input_schema["examples"] = list(change.examples)
        check_schema(name, input_schema)
        columns["input_schema"] = Json(input_schema)
    return columns
