"""What `toolgate` says of the cost of lists."""

import json
from pathlib import Path

from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate


def test_tools_are_listed_with_their_token_costs_in_order(with_pets: Toolgate) -> None:
    ran = with_pets("tools", "list", "--tokens")
    lines = ran.out.splitlines()
    costs = [int(line.split()[0]) for line in lines]
    assert costs == sorted(costs, reverse=True)
    assert lines[0].split()[1:3] == ["createPet", "pets"]
    found = with_pets("tools", "list", "--tokens", "--json").json
    assert [one["tokens"] for one in found] == costs
    assert {one["shortened"] for one in found} == {False}


def test_a_list_is_shown_as_clients_of_a_profile_see_the_list(
    toolgate: Toolgate, folder: Path
) -> None:
    document = pets()
    bad = {"name": "name of pet", "in": "query", "required": True, "schema": {"type": "string"}}
    document["paths"]["/find"] = {"get": {"operationId": "findPet", "parameters": [bad]}}
    document["paths"]["/long"] = {"get": {"operationId": "a" * 64}}
    (folder / "pets.json").write_text(json.dumps(document))
    toolgate("import", "openapi", "pets.json", "--name", "pets")
    lines = toolgate("tools", "list", "--profile", "cursor").out.splitlines()
    [long] = [line for line in lines if f"({'a' * 64})" in line]
    assert len(long.split()[1]) <= 51
    assert toolgate("tools", "list", "--profile", "nobody").err.startswith(
        "toolgate: There is no profile 'nobody'."
    )


def test_a_tool_is_shown_with_its_token_cost(with_pets: Toolgate) -> None:
    out = with_pets("tools", "show", "createPet").out
    assert "tokens (characters / 4) in a list" in out


def test_doctor_reports_token_costs_of_lists(with_pets: Toolgate) -> None:
    out = with_pets("doctor").out
    assert "5 tools; most for createPet" in out
    over = with_pets("doctor", TOOLGATE_BUDGETS__CATALOG_TOKENS="10").out
    assert "budgets.catalog_tokens is 10, so all are shortened further" in over
