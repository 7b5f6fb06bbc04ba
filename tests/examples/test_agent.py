"""The agent example: a search, a call, an approval, and a gateway that is killed."""

from config.settings import DatabaseSettings
from tests.examples.conftest import errors, program


def test_a_run_survives_its_gateway_and_adds_one_pet(database_settings: DatabaseSettings) -> None:
    env = {"TOOLGATE_DATABASE__URL": database_settings.url}
    with program("examples/agent/demo.py", env=env) as demo:
        out, _ = demo.communicate(timeout=240)
        assert demo.returncode == 0, errors(demo)
    assert out.splitlines() == [
        "called: search_tools, listPets",
        "answer: There are 3 cats.",
        "waits for an approval of: createPet",
        "killed the gateway while the call was made",
        "called: createPet, listPets",
        "told: Outcome unknown",
        "answer: Kiki is in the shop.",
        "pets called Kiki: 1",
    ]
