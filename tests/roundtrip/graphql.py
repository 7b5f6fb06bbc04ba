"""Whether what GraphQL tools send is what a GraphQL service takes: graphql-core parses each
document, validates it against the schema and coerces the variables, as such a service would."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

from graphql import GraphQLSchema, OperationDefinitionNode, build_client_schema, build_schema, parse
from graphql import validate as problems
from graphql.execution.values import get_variable_values
from msgspec.structs import replace

from gateway.upstreams.graphql.upstream import build
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import Origins, find
from schemas.binding import GraphQLBinding
from schemas.errors import InvalidParams
from schemas.tool import ToolDraft
from tests.fuzz.oracle import same
from tests.roundtrip.finding import Finding
from tests.roundtrip.generate import arguments
from tests.roundtrip.report import Report
from tests.roundtrip.run import SETTINGS, VARIANTS


async def round_trip_graphql(path: Path, seed: int = 1, variants: int = VARIANTS) -> Report:
    """Every field of the service that `path` describes, in SDL or as an introspection result."""
    spec = ImportSpec("described", str(path), base_url="http://127.0.0.1:9/", kind="graphql")
    found = await find(spec, SETTINGS.imports, Origins())
    imported = await asyncio.to_thread(found.read)
    schema, report = schema_of(path), Report()
    for draft in imported.drafts:
        r = Random(f"{seed} {draft.key}")
        _field(schema, draft, r, variants, report)
    return report


def schema_of(path: Path) -> GraphQLSchema:
    text = path.read_text("utf-8")
    if path.suffix != ".json":
        # real ones say things twice, and deprecate what their interfaces do not
        return build_schema(text, assume_valid=True, assume_valid_sdl=True)
    told = json.loads(text)
    return build_client_schema(told.get("data", told), assume_valid=True)


def _field(
    schema: GraphQLSchema, draft: ToolDraft, r: Random, variants: int, report: Report
) -> None:
    assert isinstance(draft.binding, GraphQLBinding)
    sent, well = 0, True
    for variant in range(variants):
        made = arguments(draft.input_schema, r, variant)
        if made is not None:
            sent += 1
            well &= report.add(draft.key, list(judge_request(schema, draft.binding, made)))
    report.calls += sent
    report.operations += sent > 0
    report.good += sent > 0 and well
    if not sent:
        report.unmade.append(draft.key)


def judge_request(
    schema: GraphQLSchema, binding: GraphQLBinding, made: dict[str, Any]
) -> list[Finding]:
    # a page of our own size is not what a caller sent
    binding = replace(binding, page_size=None) if hasattr(binding, "page_size") else binding
    try:
        body = json.loads(build(binding, made).body or b"")
    except (InvalidParams, ValueError) as error:
        return [Finding("graphql: sent at all", False, None, f"{error!r:.200}; {made!r:.200}")]
    document = parse(body["query"])
    wrong = [str(error.message) for error in problems(schema, document)]
    [operation] = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    coerced: Any = get_variable_values(
        schema, operation.variable_definitions or (), body["variables"]
    )
    refused = [str(error.message) for error in coerced] if isinstance(coerced, list) else []
    told = {one.name: made[one.argument] for one in binding.variables if one.argument in made}
    arrived = same(body["variables"], told)
    return [
        Finding("graphql: sent at all", True),
        Finding(
            "graphql: document", not wrong, None, f"{'; '.join(wrong)[:200]}: {body['query']:.200}"
        ),
        Finding("graphql: types of variables", not refused, None, f"{refused[:2]}: {made!r:.200}"),
        Finding(
            "graphql: variables", arrived, None, f"{told!r:.200} came as {body['variables']!r:.200}"
        ),
    ]
