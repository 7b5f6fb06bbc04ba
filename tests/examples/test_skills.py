"""The agent of `examples/skills/`: from a task to calls, by skills alone."""

import re
from pathlib import Path

import yaml

from tests.examples.conftest import errors, program, running

SETTINGS = ("-c", "examples/petshop/toolgate.yaml")
PATIENCE_S = 120


def output(*command: str, **env: str) -> str:
    with program(*command, env=env) as process:
        assert process.stdout
        printed = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0, errors(process)
    return printed


def test_an_agent_goes_from_skills_to_calls() -> None:
    with running(TOOLGATE_EMBEDDING__PROVIDER="disabled") as run:
        data = {"TOOLGATE_DATABASE__DATA_DIR": str(run.data_dir)}
        imported = output(
            "-m", "gateway", *SETTINGS, "skills", "import", "examples/skills/shop", **data
        )
        assert imported == (
            "find-a-pet: added, version 1.0, 3 tools\nsell-a-pet: added, version 1.0, 5 tools\n"
        )
        printed = output("examples/skills/agent.py", f"{run.url}/mcp?mode=search")
    listed = "call_tool describe_tools list_skills search_tools use_skill"
    assert f"5 tools are listed: {listed}\n" in printed
    assert "list_skills: sell-a-pet is for this: Sells a pet" in printed
    assert "use_skill: loaded find-a-pet, sell-a-pet" in printed
    assert re.search(r"^search_tools: .*listPets", printed, re.MULTILINE)
    assert re.search(r"call_tool listPets: \w+ is \$\d+\.\d\d", printed)
    assert re.search(r"call_tool placeOrder: order \d+ is \w+", printed)
    assert "deletePet is not a tool of the skill sell-a-pet" in printed


def test_the_species_of_the_skill_match_the_shop() -> None:
    shop = yaml.safe_load(Path("examples/petshop/openapi.yaml").read_text())
    table = Path("examples/skills/shop/find-a-pet/references/species.md").read_text()
    rows = [line.split("|") for line in table.splitlines()[4:]]
    species = {row[2].strip() for row in rows}
    assert species == {*shop["components"]["schemas"]["Species"]["enum"]}
