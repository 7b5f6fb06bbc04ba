"""Skills in a real database: saved, versioned, linked, rolled back, removed; all or nothing."""

import anyio
import psycopg
import pytest

from registry.database.postgres import Database
from registry.skills.rows import file_content
from registry.skills.skill_errors import SkillRefused
from registry.skills.skill_md import read_document
from registry.skills.store import RelatedSkills, SkillStore
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.registry.skills.conftest import DESTROYS, TOOLS, note, skill, with_tools

pytestmark = pytest.mark.anyio

OTHER_HOST = "00000000-0000-0000-0000-000000000002"


def linked_access(found) -> dict[str, str]:
    return {tool.name: tool.access for tool in found.tools}


async def one(skills: SkillStore, name: str):
    found = (await skills.skills(HOST)).get(name)
    assert found is not None
    return found


async def count(database: Database, query: str) -> int:
    async with database.pool.connection() as connection:
        row = await (await connection.execute(query)).fetchone()
        return row[0]


async def test_a_skill_is_read_back_as_saved(
    skills: SkillStore, tools: ToolStore, database: Database
) -> None:
    folder = skill(
        "feed-pets", "# Feed\r\n", note("references/food.md"), allowed_tools="listPets createPet"
    )
    (saved,) = await skills.save(HOST, [folder])
    assert (saved.outcome, saved.number, saved.version) == ("added", 1, "1.0.0")
    assert (saved.tools, saved.missing) == (("listPets", "createPet"), ())
    found = await one(skills, "feed-pets")
    assert found.text == folder.document.text
    assert (found.description, found.digest) == ("About feed-pets.", folder.digest)
    assert linked_access(found) == {"listPets": "read", "createPet": "write"}
    (file,) = found.files
    assert (file.path, file.size) == ("references/food.md", 8)
    assert await file_content(database.pool, HOST, found, "references/food.md") == b"A note.\n"
    assert await file_content(database.pool, HOST, found, "references/none.md") is None
    assert await skills.files(HOST, found) == list(folder.files)


async def test_the_same_again_writes_nothing(
    skills: SkillStore, tools: ToolStore, database: Database
) -> None:
    folder = skill("a", "Use it.", note("b.md"), allowed_tools="listPets", requires="c")
    await skills.save(HOST, [folder, skill("c")])
    before = await count(database, "SELECT sum(aggregate_version) FROM skill_t")
    again = await skills.save(HOST, [folder, skill("c")])
    assert [one.outcome for one in again] == ["unchanged", "unchanged"]
    assert await count(database, "SELECT sum(aggregate_version) FROM skill_t") == before
    assert await count(database, "SELECT count(*) FROM skill_version_t") == 2


async def test_changed_content_is_a_new_version_beside_the_older_version(
    skills: SkillStore, tools: ToolStore
) -> None:
    await skills.save(HOST, [skill("a", "First.", allowed_tools="listPets")])
    await skills.save(HOST, [skill("a", "Second.", allowed_tools="getPet", version="2.1")])
    found = await one(skills, "a")
    assert (found.instructions.strip(), found.number, found.version) == ("Second.", 2, "2.1")
    assert linked_access(found) == {"getPet": "read"}
    newest, oldest = await skills.versions(HOST, "a")
    assert (newest.number, newest.version, newest.current) == (2, "2.1", True)
    assert (oldest.number, oldest.version, oldest.current) == (1, "1.0.0", False)
    assert (await skills.document(HOST, found, 1)).instructions.strip() == "First."


async def test_a_changed_file_alone_is_a_new_version(skills: SkillStore) -> None:
    await skills.save(HOST, [skill("a", "X", note("n.md", "one"))])
    (saved,) = await skills.save(HOST, [skill("a", "X", note("n.md", "two"))])
    assert (saved.outcome, saved.number) == ("changed", 2)
    (kept,) = await skills.files(HOST, await one(skills, "a"))
    assert kept.content == b"two"


async def test_rolling_back_serves_the_older_version_with_its_tools(
    skills: SkillStore, tools: ToolStore
) -> None:
    await skills.save(HOST, [skill("a", "1", note("n.md", "one"), allowed_tools="listPets")])
    await skills.save(HOST, [skill("a", "2", allowed_tools="deletePet")])
    await skills.rollback(HOST, "a", 1)
    found = await one(skills, "a")
    assert (found.instructions.strip(), found.number, linked_access(found)) == (
        "1", 1, {"listPets": "read"},
    )  # fmt: skip
    (kept,) = await skills.files(HOST, found)
    assert kept.content == b"one"
    (saved,) = await skills.save(HOST, [skill("a", "3")])
    assert saved.number == 3
    with pytest.raises(SkillRefused, match="no version 9 of a"):
        await skills.rollback(HOST, "a", 9)


async def test_the_oldest_versions_go_and_the_present_one_stays(with_limits) -> None:
    skills = with_limits(versions_kept=2)
    for number in range(4):
        await skills.save(HOST, [skill("a", f"{number}")])
    assert [one.number for one in await skills.versions(HOST, "a")] == [4, 3]


async def test_a_missing_tool_is_named_and_with_strict_nothing_is_written(
    skills: SkillStore, tools: ToolStore
) -> None:
    folder = skill("a", allowed_tools="listPets Bash(git add:*) nothere")
    with pytest.raises(SkillRefused, match=r"a: Bash\(git add:\*\), nothere"):
        await skills.save(HOST, [skill("b"), folder], strict=True)
    assert len(await skills.skills(HOST)) == 0
    (saved,) = await skills.save(HOST, [folder])
    assert saved.missing == ("Bash(git add:*)", "nothere")
    assert linked_access(await one(skills, "a")) == {"listPets": "read"}


async def test_a_tool_that_comes_later_is_linked_by_the_next_import(
    skills: SkillStore, tools: ToolStore
) -> None:
    folder = skill("a", allowed_tools="mcp__pets__feedPet")
    await skills.save(HOST, [folder])
    await with_tools(tools, {**TOOLS, "feedPet": DESTROYS})
    (saved,) = await skills.save(HOST, [folder])
    assert (saved.outcome, saved.missing) == ("linked", ())
    assert linked_access(await one(skills, "a")) == {"feedPet": "execute"}


async def test_a_bad_skill_keeps_the_whole_import_out(skills: SkillStore, tools: ToolStore) -> None:
    await skills.save(HOST, [skill("old", "as it was")])
    with pytest.raises(SkillRefused, match=r"b names the skill 'nope', and there is no skill"):
        await skills.save(HOST, [skill("old", "new"), skill("a"), skill("b", requires="nope")])
    found = await skills.skills(HOST)
    assert (found.get("a"), found.get("b")) == (None, None)
    assert (await one(skills, "old")).number == 1


async def test_a_dry_run_tells_and_writes_nothing(skills: SkillStore, tools: ToolStore) -> None:
    (saved,) = await skills.save(HOST, [skill("a", allowed_tools="listPets")], dry_run=True)
    assert (saved.outcome, saved.tools) == ("added", ("listPets",))
    assert len(await skills.skills(HOST)) == 0


CIRCLES = {
    "itself": ({"a": "a"}, "a -> a"),
    "two": ({"a": "b", "b": "a"}, "a -> b -> a"),
    "three": ({"a": "b", "b": "c", "c": "a"}, "a -> b -> c -> a"),
}


@pytest.mark.parametrize("kind", ["requires", "suggests", "parent"])
@pytest.mark.parametrize(("edges", "way"), CIRCLES.values(), ids=CIRCLES)
async def test_a_circle_is_refused_and_its_chain_is_named(
    skills: SkillStore, kind: str, edges: dict[str, str], way: str
) -> None:
    folders = [skill(name, **{kind: on}) for name, on in edges.items()]
    with pytest.raises(SkillRefused, match=way):
        await skills.save(HOST, folders)
    assert len(await skills.skills(HOST)) == 0


async def test_a_circle_by_command_is_refused(skills: SkillStore) -> None:
    await skills.save(HOST, [skill("a", requires="b"), skill("b"), skill("c", requires="a")])
    with pytest.raises(SkillRefused, match="b -> c -> a -> b"):
        await skills.depend(HOST, "b", "c", required=True)
    with pytest.raises(SkillRefused, match="there is no skill 'x'"):
        await skills.depend(HOST, "b", "x", required=True)


async def test_a_dependency_may_be_turned_around_in_one_import(skills: SkillStore) -> None:
    await skills.save(HOST, [skill("a", requires="b"), skill("b")])
    await skills.save(HOST, [skill("a"), skill("b", requires="a")])
    assert (await one(skills, "b")).requires == ("a",)
    assert (await one(skills, "a")).requires == ()


async def test_the_database_refuses_a_circle_by_itself(
    skills: SkillStore, database: Database
) -> None:
    await skills.save(HOST, [skill("a", requires="b", parent="b"), skill("b")])
    statements = {
        "skill_dependency_circle": "INSERT INTO skill_dependency_t (host_id, skill_id,"
        " depends_on_skill_id) SELECT host_id, depends_on_skill_id, skill_id"
        " FROM skill_dependency_t",
        "skill_parent_circle": "UPDATE skill_t SET parent_skill_id = (SELECT skill_id FROM skill_t"
        " WHERE name = 'a') WHERE name = 'b'",
    }
    for constraint, statement in statements.items():
        async with database.connect() as connection:
            with pytest.raises(psycopg.errors.CheckViolation) as caught:
                await connection.execute(statement.encode())
            assert caught.value.diag.constraint_name == constraint


async def test_concurrent_halves_of_a_cycle_are_not_both_accepted(skills: SkillStore) -> None:
    await skills.save(HOST, [skill("a"), skill("b")])
    outcomes: list[str] = []

    async def depend(name: str, on: str) -> None:
        try:
            await skills.depend(HOST, name, on, required=True)
            outcomes.append("done")
        except SkillRefused:
            outcomes.append("refused")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(depend, "a", "b")
            tasks.start_soon(depend, "b", "a")
    assert sorted(outcomes) == ["done", "refused"]


@pytest.mark.parametrize("kind", ["requires", "parent"])
async def test_chains_end_somewhere(with_limits, kind: str) -> None:
    skills = with_limits(depth=3)
    chain = [skill("a"), *(skill(name, **{kind: on}) for name, on in ("ba", "cb"))]
    await skills.save(HOST, chain)
    with pytest.raises(SkillRefused, match=r"d has more than 3 \w+ \(skills.depth\): d -> c -> b"):
        await skills.save(HOST, [skill("d", **{kind: "c"})])


async def test_links_by_command_outlive_the_next_version(
    skills: SkillStore, tools: ToolStore
) -> None:
    await skills.save(HOST, [skill("a", allowed_tools="getPet")])
    assert await skills.link(HOST, "a", ["listPets", "deletePet"], None) == {
        "listPets": "read",
        "deletePet": "execute",
    }
    await skills.save(HOST, [skill("a", "New.")])
    assert linked_access(await one(skills, "a")) == {"listPets": "read", "deletePet": "execute"}
    assert await skills.unlink(HOST, "a", ["deletePet"]) == ["deletePet"]
    with pytest.raises(SkillRefused, match="a has no tool deletePet"):
        await skills.unlink(HOST, "a", ["listPets", "deletePet"])
    assert linked_access(await one(skills, "a")) == {"listPets": "read"}


async def test_a_level_that_would_not_do_is_refused(skills: SkillStore, tools: ToolStore) -> None:
    await skills.save(HOST, [skill("a")])
    with pytest.raises(SkillRefused, match="deletePet needs the access level execute, not write"):
        await skills.link(HOST, "a", ["deletePet"], "write")
    with pytest.raises(SkillRefused, match="createPet needs the access level write, not read"):
        await skills.save(HOST, [skill("b", allowed_tools="createPet", access="createPet=read")])
    with pytest.raises(SkillRefused, match=r"no tool 'listPet'; did you mean listPets"):
        await skills.link(HOST, "a", ["listPet"], None)


async def test_a_required_skill_cannot_be_removed(skills: SkillStore) -> None:
    await skills.save(HOST, [skill("a", requires="b", suggests="c"), skill("b"), skill("c")])
    with pytest.raises(SkillRefused, match="b is required by a"):
        await skills.remove(HOST, "b")
    await skills.remove(HOST, "c")
    await skills.undepend(HOST, "a", "b")
    await skills.remove(HOST, "b")
    assert [*(await skills.skills(HOST)).of(None)] == ["a"]
    with pytest.raises(SkillRefused, match="there is no skill 'b'"):
        await skills.remove(HOST, "b")


async def test_removing_a_skill_reports_its_related_skills(skills: SkillStore) -> None:
    below = [skill(name, parent="mid") for name in ("low", "deep")]
    await skills.save(HOST, [skill("mid"), *below, skill("near", suggests="mid")])
    freed = await skills.remove(HOST, "mid")
    assert (freed.below, freed.naming) == (["deep", "low"], ["near"])
    assert (await one(skills, "low")).parent is None
    assert await skills.remove(HOST, "near") == RelatedSkills([], [])


async def test_a_removed_source_takes_its_tools_from_the_skills(
    skills: SkillStore, tools: ToolStore
) -> None:
    await skills.save(HOST, [skill("a", allowed_tools="getPet")])
    await tools.remove(HOST, "pets")
    found = await one(skills, "a")
    assert (found.tools, found.named) == ((), ("getPet",))


async def test_tenants_do_not_see_each_other(skills: SkillStore) -> None:
    await skills.save(HOST, [skill("a", "ours")])
    await skills.save(OTHER_HOST, [skill("a", "theirs")])
    assert (await skills.skills(OTHER_HOST)).get("a").instructions.strip() == "theirs"
    await skills.remove(OTHER_HOST, "a")
    assert (await one(skills, "a")).instructions.strip() == "ours"


async def test_gateways_hear_of_every_change_and_embeddings_follow(
    skills: SkillStore, tools: ToolStore, database: Database
) -> None:
    model = "INSERT INTO embedding_model_t (purpose, model, provider, dimension, target, serving)"
    async with database.connect() as connection, database.connect() as listening:
        await connection.execute(f"{model} VALUES ('tools', 'm', 'test', 384, true, true)".encode())
        await listening.execute("LISTEN toolgate_registry")

        async def hear_notices() -> list[str]:
            notices = listening.notifies(timeout=30, stop_after=1)
            return [notice.payload async for notice in notices]

        await skills.save(HOST, [skill("a"), skill("b")])
        assert await hear_notices() == [HOST]
        await skills.link(HOST, "a", ["getPet"], None)
        assert await hear_notices() == [HOST]
        await skills.depend(HOST, "a", "b", required=True)
        assert await hear_notices() == [HOST]

        async def tasks() -> list[tuple[str, str]]:
            rows = await connection.execute(
                "SELECT skill.name, task.status FROM embedding_task_t AS task"
                " JOIN skill_t AS skill ON skill_id = entity_id WHERE entity_type = 'skill'"
                " ORDER BY 1"
            )
            return await rows.fetchall()

        assert await tasks() == [("a", "pending"), ("b", "pending")]
        await connection.execute("DELETE FROM embedding_task_t")
        await skills.save(HOST, [skill("a", "Other instructions.")])
        assert await tasks() == [("a", "pending")]
        await skills.remove(HOST, "a")
        assert await tasks() == []


async def test_the_worker_reads_the_hashed_text(skills: SkillStore, database: Database) -> None:
    await skills.save(HOST, [skill("a", "Feed   it\n\nwell.")])
    async with database.connect() as connection:
        rows = await connection.execute(
            "SELECT source_text FROM entity_source_v WHERE entity_type = 'skill'"
        )
        assert await rows.fetchone() == (
            "name: a\ndescription: About a.\ninstructions: Feed it well.",
        )


async def test_a_stored_skill_can_be_exported_as_a_document(skills: SkillStore) -> None:
    folder = skill("a", "Body", license="MIT", allowed_tools="x y")
    await skills.save(HOST, [folder])
    found = await one(skills, "a")
    assert read_document(found.text.encode(), "again") == folder.document
