"""Sources that were taken out of the settings: told by every list, and removed by `prune`."""

from pathlib import Path

import pytest

from tests.gateway.cli.conftest import Toolgate

AT = "http://127.0.0.1:9"


@pytest.fixture
def with_left_over(toolgate: Toolgate, description: Path, folder: Path) -> Toolgate:
    """Runs commands where the settings once named `pets`, and `kept` was imported by command."""
    file = folder / "toolgate.yaml"
    file.write_text(f"sources: {{pets: {{openapi: pets.json, base_url: '{AT}'}}}}")
    assert toolgate("sources", "refresh", "pets").code == 0
    kept = ("import", "openapi", "pets.json", "--name", "kept", "--base-url", AT)
    assert toolgate(*kept).code == 0
    file.write_text("sources: {}")
    return toolgate


def test_lists_show_the_origin_of_a_source_and_leftovers(with_left_over: Toolgate) -> None:
    kept, pets = with_left_over("sources", "list").out.splitlines()
    assert kept.endswith("openapi  cli")
    assert pets.endswith("openapi  settings, left over")
    told = {
        one["name"]: (one["origin"], one["removed_from_settings"])
        for one in source_list(with_left_over)
    }
    assert told == {"kept": ("cli", False), "pets": ("settings", True)}
    said = with_left_over("sources", "show", "pets", FORCE_COLOR="1").out
    assert "left over: the settings have it no longer" in said
    assert "toolgate sources prune" in said


def source_list(toolgate: Toolgate) -> list[dict[str, object]]:
    found: list[dict[str, object]] = toolgate("sources", "list", "--json").json
    return found


def test_doctor_warns_of_leftover_sources(with_left_over: Toolgate) -> None:
    [told] = [
        one for one in with_left_over("doctor", "--json").json if "left over" in one["detail"]
    ]
    assert (told["name"], told["status"]) == ("source", "warning")
    assert told["detail"].startswith("pets: left over")


def test_prune_removes_only_leftover_sources(with_left_over: Toolgate) -> None:
    assert with_left_over("sources", "prune", "--dry-run").out == "Would remove pets and 5 tools.\n"
    asked = with_left_over("sources", "prune")
    assert asked.code == 2
    assert "no terminal to confirm: add --yes to remove pets and 5 tools" in asked.err
    assert len(source_list(with_left_over)) == 2
    assert with_left_over("sources", "prune", "--yes").out == "Removed pets and its 5 tools.\n"
    assert [one["name"] for one in source_list(with_left_over)] == ["kept"]
    assert (
        with_left_over("sources", "prune").out == "No source is left over from earlier settings.\n"
    )


def test_leftover_sources_imported_again_by_command_are_kept(with_left_over: Toolgate) -> None:
    with_left_over("import", "openapi", "pets.json", "--name", "pets", "--base-url", AT)
    assert (
        with_left_over("sources", "prune", "--yes").out
        == "No source is left over from earlier settings.\n"
    )


def test_a_source_that_the_settings_still_adjust_is_not_left_over(
    with_left_over: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(f"sources: {{pets: {{base_url: '{AT}'}}}}")
    assert (
        with_left_over("sources", "prune").out == "No source is left over from earlier settings.\n"
    )


def test_an_example_is_told_apart(toolgate: Toolgate, description: Path, folder: Path) -> None:
    one = f"{{openapi: pets.json, base_url: '{AT}', example: true}}"
    (folder / "toolgate.yaml").write_text(f"sources: {{pets: {one}}}")
    toolgate("sources", "refresh", "pets")
    assert [one["origin"] for one in source_list(toolgate)] == ["example"]


def test_a_rollback_keeps_the_origin_of_a_source(
    toolgate: Toolgate, description: Path, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        f"sources: {{pets: {{openapi: pets.json, base_url: '{AT}'}}}}"
    )
    toolgate("sources", "refresh", "pets")
    description.write_text(description.read_text().replace("List pets", "List all pets"))
    toolgate("sources", "refresh", "pets")
    assert toolgate("sources", "rollback", "pets").code == 0
    assert [one["origin"] for one in source_list(toolgate)] == ["settings"]


def test_doctor_reports_configured_sources_without_an_import(
    toolgate: Toolgate, description: Path, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        f"sources: {{pets: {{openapi: pets.json, base_url: '{AT}'}}, gone: {{headers: {{a: b}}}}}}"
    )
    told = [one["detail"] for one in toolgate("doctor", "--json").json if one["name"] == "source"]
    waiting, gone = (one for one in told if one.startswith(("pets: in", "gone")))
    assert waiting == (
        "pets: in the settings, but not imported yet; `toolgate serve` imports it, or now: "
        "toolgate sources refresh pets"
    )
    assert gone.startswith("gone: the settings adjust it, but it does not exist")
