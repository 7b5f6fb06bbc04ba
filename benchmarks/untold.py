"""`python -m benchmarks.untold QUERIES DESCRIPTION...`: how well the operations of OpenAPI
descriptions are found when nobody described them.

The descriptions are imported as they are, and once more without a summary or description of any
operation, parameter or schema, so that the importer writes the texts. Both are searched with the
same requests, whose gold are operation ids.
"""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from config.load import load
from registry.evaluation.corpus import of_catalog
from registry.evaluation.evaluate import evaluate
from registry.evaluation.quality_metrics import SetMetrics
from registry.evaluation.request_sets import CatalogTool, EvaluationRequest, read_requests
from registry.importers.openapi import read

METRIC = "ndcg@10"
TEXTS = ("summary", "description")

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def untold(node: Any) -> Any:
    """`node` of a description without its texts; a property of such a name stays."""
    if isinstance(node, dict):
        return {
            key: untold(value)
            for key, value in node.items()
            if key not in TEXTS or not isinstance(value, str)
        }
    return [untold(part) for part in node] if isinstance(node, list) else node


def catalog(document: dict[str, Any]) -> Iterator[CatalogTool]:
    """The tools of a description as it would be imported; their ids are operation ids."""
    ids = {
        f"{path}@{method}": operation["operationId"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if isinstance(operation, dict) and "operationId" in operation
    }
    description = read(document)
    for draft in description.drafts:
        yield CatalogTool(
            id=ids.get(draft.key, draft.key),
            name=draft.name,
            title=draft.title,
            description=draft.description,
            input_schema=draft.input_schema,
            server=description.title or "",
            tags=draft.tags,
        )


async def measured(
    name: str, tools: Sequence[CatalogTool], requests: Sequence[EvaluationRequest]
) -> SetMetrics:
    async with of_catalog(tools, load(None, {}), lambda *_: None) as corpus:
        result = await evaluate(
            name, corpus, requests, ("hybrid", "dense", "lexical"), progress=lambda *_: None
        )
    if result.unknown:
        raise click.ClickException(f"no operation has the id {next(iter(result.unknown))}")
    return result.quality


@click.command()
@click.argument("queries", type=FILE)
@click.argument("descriptions", nargs=-1, required=True, type=FILE)
def main(queries: Path, descriptions: tuple[Path, ...]) -> None:
    """Compare the search of operations with their texts and without."""
    requests = read_requests(queries)
    documents = [msgspec.json.decode(path.read_bytes()) for path in descriptions]
    told = [tool for document in documents for tool in catalog(document)]
    silent = [tool for document in documents for tool in catalog(untold(document))]
    before = asyncio.run(measured("as described", told, requests))
    after = asyncio.run(measured("texts removed", silent, requests))
    for mode in before.modes:
        first, second = (result.interval(mode, METRIC).mean for result in (before, after))
        share = 100 * second / first
        click.echo(f"{mode:8} {METRIC} {first:.1f}, without texts {second:.1f}: {share:.0f} %")


if __name__ == "__main__":
    main()
