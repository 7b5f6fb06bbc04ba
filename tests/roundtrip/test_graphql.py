"""What the tools of a GraphQL service send is what such a service takes."""

import json
from pathlib import Path

import pytest
from graphql import build_schema, introspection_from_schema

from schemas.binding import GraphQLBinding, Variable
from tests.fuzz.documents.excerpts import GRAPHQL
from tests.roundtrip.graphql import judge_request, round_trip_graphql, schema_of


@pytest.fixture(params=["sdl", "introspection"])
def description_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / ("shop.graphql" if request.param == "sdl" else "shop.json")
    told = introspection_from_schema(build_schema(GRAPHQL))
    path.write_text(GRAPHQL if request.param == "sdl" else json.dumps({"data": told}))
    return path


@pytest.mark.anyio
async def test_every_variable_arrives(description_file: Path, anyio_backend: str) -> None:
    report = await round_trip_graphql(description_file, variants=8)
    assert not report.wrong, "\n".join(one for all_ in report.examples.values() for one in all_)
    assert (report.operations, report.unmade) == (6, [])


@pytest.mark.parametrize(
    ("binding", "made", "wrong"),
    [
        (("item", "id", "ID!", "{ id }"), {"id": "1"}, set()),
        (("item", "id", "ID!", "{ nope }"), {"id": "1"}, {"graphql: document"}),
        (("item", "id", "ID!", ""), {"id": "1"}, {"graphql: document"}),
        (("item", "id", "Int!", "{ id }"), {"id": 1}, {"graphql: document"}),
        (("item", "id", "ID!", "{ id }"), {"id": [1]}, {"graphql: types of variables"}),
        (("item", "id", "ID!", "{ id }"), {}, {"graphql: types of variables"}),
    ],
)
def test_the_judge_finds_requests_that_a_service_would_refuse(
    binding: tuple[str, str, str, str], made: dict[str, object], wrong: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "shop.graphql"
    path.write_text(GRAPHQL)
    field, name, kind, selection = binding
    one = GraphQLBinding("query", field, (Variable(name, name, kind),), selection)
    assert {f.feature for f in judge_request(schema_of(path), one, made) if not f.arrived} == wrong
