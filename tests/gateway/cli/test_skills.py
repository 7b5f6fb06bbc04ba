"""`toolgate skills` and `toolgate agents`, as they are typed."""

from pathlib import Path

import pytest

from tests.gateway.cli.conftest import Toolgate

SKILL = """---
name: find-pets
description: Finds pets and their owners. Use it when somebody asks what pets there are.
license: MIT
allowed-tools: listPets getPet, deletePet
metadata:
  version: "2.0"
---

# Find pets

List them, then get one. See references/codes.md.\r
"""


def write(folder: Path, name: str, text: str = "", **files: str) -> Path:
    """The directory of a skill; `files` are by path, "__" for "/"."""
    text = text or f"---\nname: {name}\ndescription: About {name}.\n---\nDo {name}.\n"
    place = folder / "skills" / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_bytes(text.encode())
    for path, content in files.items():
        file = place / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return place


def test_a_directory_is_imported_shown_and_exported_byte_by_byte(
    with_pets: Toolgate, folder: Path
) -> None:
    place = write(folder, "find-pets", SKILL, references__codes_md="x")
    (place / "references" / "codes_md").rename(place / "references" / "codes.md")
    (place / "logo.bin").write_bytes(b"\x00\xff\x00")
    ran = with_pets("skills", "import", "skills")
    assert (ran.code, ran.out) == (0, "find-pets: added, version 2.0, 3 tools\n")
    assert with_pets("skills", "import", "skills").out.startswith("find-pets: unchanged")
    shown = with_pets("skills", "show", "find-pets", "--json").json
    assert shown["tools"] == {"listPets": "read", "getPet": "read", "deletePet": "execute"}
    assert [file["path"] for file in shown["files"]] == ["logo.bin", "references/codes.md"]
    assert "license: MIT" in shown["document"]
    shown = with_pets("skills", "show", "find-pets").out
    assert "Finds pets and their owners." in shown
    assert "references/codes.md" in shown
    assert with_pets("skills", "export", "out").code == 0
    for path in ("SKILL.md", "logo.bin", "references/codes.md"):
        assert (folder / "out/find-pets" / path).read_bytes() == (place / path).read_bytes()
    again = with_pets("skills", "export", "out", "find-pets")
    assert (again.code, again.out) == (1, "")
    assert "it exists already" in again.err
    (folder / "out/find-pets/stale.md").write_text("gone soon")
    assert with_pets("skills", "export", "out", "find-pets", "--force").code == 0
    assert not (folder / "out/find-pets/stale.md").exists()
    assert sorted(one.name for one in (folder / "out").iterdir()) == ["find-pets"]


def test_unknown_tools_of_a_skill_are_named_and_refused_by_strict(
    with_pets: Toolgate, folder: Path
) -> None:
    text = "---\nname: a\ndescription: A.\nallowed-tools: Read Bash(git:*) listPets\n---\n"
    write(folder, "a", text)
    write(folder, "b")
    ran = with_pets("skills", "import", "skills", "--strict")
    assert (ran.code, ran.out) == (1, "")
    assert "there are no such tools here: a: Read, Bash(git:*)" in ran.err
    assert with_pets("skills", "list").out == ""
    ran = with_pets("skills", "import", "skills")
    assert ran.code == 0
    assert "unknown tools (the client may have them): Read, Bash(git:*)" in ran.out


def test_a_dry_run_writes_nothing(with_pets: Toolgate, folder: Path) -> None:
    write(folder, "a")
    ran = with_pets("skills", "import", "skills", "--dry-run")
    assert ran.out == "a: would be added, version 1.0.0, 0 tools\n"
    assert with_pets("skills", "list", "--json").json == []


def test_versions_are_shown_and_served_again(toolgate: Toolgate, folder: Path) -> None:
    place = write(folder, "a")
    assert toolgate("skills", "import", "skills/a").code == 0
    (place / "SKILL.md").write_text("---\nname: a\ndescription: Other.\n---\nOther.\n")
    assert toolgate("skills", "import", "skills/a").out == "a: changed, version 1.0.1, 0 tools\n"
    assert "Do a." in toolgate("skills", "version", "a", "1").out
    assert toolgate("skills", "rollback", "a", "1").code == 0
    assert toolgate("skills", "show", "a", "--json").json["description"] == "About a."
    assert "no version 7 of a" in toolgate("skills", "rollback", "a", "7").err


def test_a_disabled_tool_is_marked(with_pets: Toolgate, folder: Path) -> None:
    write(folder, "a")
    assert with_pets("skills", "import", "skills").code == 0
    assert with_pets("skills", "link", "a", "listPets", "getPet").code == 0
    assert with_pets("tools", "disable", "getPet").code == 0
    shown = with_pets("skills", "show", "a", "--json").json
    assert (shown["disabled"], set(shown["tools"])) == (["getPet"], {"listPets", "getPet"})
    assert "disabled     getPet\n" in with_pets("skills", "show", "a").out


def test_skills_are_linked_and_depend(with_pets: Toolgate, folder: Path) -> None:
    write(folder, "a")
    write(folder, "b")
    assert with_pets("skills", "import", "skills").code == 0
    ran = with_pets("skills", "link", "a", "listPets", "deletePet", "--json")
    assert ran.json["tools"] == {"listPets": "read", "deletePet": "execute"}
    ran = with_pets("skills", "link", "a", "deletePet", "--access", "read")
    assert (ran.code, ran.out) == (1, "")
    assert "deletePet needs the access level execute, not read" in ran.err
    assert "did you mean listPets" in with_pets("skills", "link", "a", "listPet").err
    assert with_pets("skills", "unlink", "a", "deletePet").code == 0
    assert with_pets("skills", "depend", "a", "b").code == 0
    ran = with_pets("skills", "depend", "b", "a")
    assert (ran.code, "b -> a -> b" in ran.err) == (1, True)
    assert "b is required by a" in with_pets("skills", "remove", "b", "--yes").err
    assert with_pets("skills", "undepend", "a", "b").code == 0
    assert with_pets("skills", "remove", "b", "--yes").out == "Removed b.\n"
    assert [one["name"] for one in with_pets("skills", "list", "--json").json] == ["a"]


def test_below_their_parents(toolgate: Toolgate, folder: Path) -> None:
    write(folder, "all")
    text = "---\nname: a-part\ndescription: A part.\nmetadata: {toolgate-parent: all}\n---\n"
    write(folder, "a-part", text)
    assert toolgate("skills", "import", "skills").code == 0
    lines = toolgate("skills", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["a-part", "all"]
    assert lines[0].split()[3] == "all"
    ran = toolgate("skills", "remove", "all", "--yes")
    assert ran.out == "Removed all.\nbelow  a-part\n"


def test_a_skill_within_a_skill_is_told_to_be_none(toolgate: Toolgate, folder: Path) -> None:
    (write(folder, "chi")).rename(write(folder, "par") / "chi")
    ran = toolgate("skills", "import", "skills", "--dry-run")
    assert ran.out == (
        "par: would be added, version 1.0.0, 0 tools\n"
        "par: chi/SKILL.md is a file of this skill, not a skill\n"
        "  to import it as one, place chi beside par\n"
    )
    assert len(toolgate("skills", "import", "skills", "--json").json) == 1
    assert (
        "name its directory, skills/par" in toolgate("skills", "import", "skills/par/SKILL.md").err
    )


def test_skills_are_made_of_tags(toolgate: Toolgate, folder: Path) -> None:
    (folder / "shop.yaml").write_text(TAGGED)
    ran = toolgate(
        "import", "openapi", "shop.yaml", "--name", "shop", "--base-url", "http://127.0.0.1:9"
    )
    assert ran.code == 0, ran.err
    ran = toolgate("skills", "generate", "--source", "shop", "--tag", "Store orders", "--dry-run")
    assert "name: shop-store-orders\n" in ran.out
    assert toolgate("skills", "list", "--json").json == []
    assert toolgate("skills", "generate", "--source", "shop").code == 0
    pets, orders = toolgate("skills", "list", "--json").json
    assert (pets["name"], orders["name"]) == ("shop-pets", "shop-store-orders")
    assert orders["tools"] == 4
    assert orders["description"].startswith("Everything about orders. Use it to: List orders;")
    told = toolgate("skills", "show", "shop-store-orders", "--json").json["document"]
    assert "- `getOrder`: One order (needs id)" in told
    assert told.index("listOrders") < told.index("placeOrder") < told.index("cancelOrder")
    assert toolgate("skills", "generate", "--source", "shop").out.count("unchanged") == 2
    ran = toolgate("skills", "generate", "--source", "shop", "--tag", "no")
    assert (ran.code, "has one of these tags" in ran.err) == (1, True)
    assert "Did you mean shop" in toolgate("skills", "generate", "--source", "shopp").err


TAGGED = """
openapi: 3.1.0
info: {title: Shop, version: "1"}
tags:
  - {name: Store orders, description: "Everything about orders."}
paths:
  /orders:
    get: {operationId: listOrders, summary: List orders, tags: [Store orders]}
    post: {operationId: placeOrder, summary: Place an order, tags: [Store orders]}
  /orders/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    get: {operationId: getOrder, summary: One order, tags: [Store orders]}
    delete: {operationId: cancelOrder, summary: Cancel an order, tags: [Store orders]}
  /pets:
    get: {operationId: listPets, summary: List pets, tags: [pets]}
"""


def test_agents_have_skills_in_an_order(toolgate: Toolgate, folder: Path) -> None:
    for name in ("a", "b", "c"):
        write(folder, name)
    assert toolgate("skills", "import", "skills").code == 0
    ran = toolgate("agents", "add", "helpdesk", "--description", "Helps.", "--temperature", "0.3")
    assert ran.out == "Added helpdesk.\n"
    assert toolgate("agents", "add", "helpdesk", "--model", "m-1").out == "Changed helpdesk.\n"
    assert toolgate("agents", "grant", "helpdesk", "b", "a").code == 0
    assert toolgate("agents", "grant", "helpdesk", "c", "--priority", "5").code == 0
    shown = toolgate("agents", "show", "helpdesk", "--json").json
    assert [one["skill"] for one in shown["skills"]] == ["c", "b", "a"]
    assert shown["model_name"] == "m-1"
    assert toolgate("agents", "revoke", "helpdesk", "b").code == 0
    assert "There is no skill 'b'" in toolgate("agents", "revoke", "helpdesk", "b").err
    assert "no skill 'd'" in toolgate("agents", "grant", "helpdesk", "d").err
    missing = toolgate("agents", "grant", "helpdsk", "a")
    assert "There is no agent 'helpdsk'. Did you mean helpdesk" in missing.err
    assert [one["name"] for one in toolgate("agents", "list", "--json").json] == ["helpdesk"]
    assert toolgate("agents", "remove", "helpdesk", "-y").out == "Removed helpdesk.\n"
    assert "Did you mean" not in toolgate("agents", "show", "helpdesk").err


@pytest.mark.parametrize(
    "arguments",
    [("add", "-x y"), ("add", "a" * 127), ("add", "a", "--temperature", "hot")],
    ids=["option", "long", "temperature"],
)
def test_agents_with_bad_names_or_numbers_are_refused(toolgate: Toolgate, arguments) -> None:
    ran = toolgate("agents", *arguments)
    assert ran.code in (1, 2)
    assert toolgate("agents", "list", "--json").json == []


def test_a_directory_without_skills_names_the_expected_file(
    toolgate: Toolgate, folder: Path
) -> None:
    (folder / "empty").mkdir()
    assert "there is no SKILL.md in it" in toolgate("skills", "import", "empty").err
    assert "no such directory" in toolgate("skills", "import", "nowhere").err


def test_a_link_out_of_a_skill_is_refused(toolgate: Toolgate, folder: Path) -> None:
    (write(folder, "a") / "passwd.md").symlink_to("/etc/passwd")
    ran = toolgate("skills", "import", "skills")
    assert (ran.code, "passwd.md: it is a link" in ran.err) == (1, True)
    assert toolgate("skills", "list", "--json").json == []
