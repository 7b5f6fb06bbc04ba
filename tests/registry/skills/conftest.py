"""Skills in a real registry that has the pet tools."""

from collections.abc import Callable

import msgspec
import pytest

from config.load import load
from config.settings import SkillsSettings as Limits
from registry.database.postgres import Database
from registry.skills.folders import FolderFile, SkillFolder
from registry.skills.skill_md import compose, read_document
from registry.skills.store import SkillStore
from registry.sources.tool_store import SourceDraft, ToolStore
from schemas.binding import OpenAPIBinding
from schemas.tool import Annotations, ToolDraft
from tests.fixtures_database import HOST

READS = Annotations(read_only_hint=True, destructive_hint=False)
ADDS = Annotations(read_only_hint=False, destructive_hint=False)
DESTROYS = Annotations(read_only_hint=False, destructive_hint=True)
TOOLS = {"listPets": READS, "getPet": READS, "createPet": ADDS, "deletePet": DESTROYS}


def skill(
    name: str, instructions: str = "Do it.\n", *files: FolderFile, **front: object
) -> SkillFolder:
    """`allowed_tools=...` is `allowed-tools`; `requires=...` and its like go into the metadata."""
    metadata = {f"toolgate-{key}": front.pop(key) for key in list(front) if key in OURS}
    if "version" in front:
        metadata["version"] = front.pop("version")
    head = {"name": name, "description": f"About {name}."}
    head |= {key.replace("_", "-"): value for key, value in front.items()}
    if metadata:
        head["metadata"] = metadata
    document = read_document(compose(head, instructions).encode(), f"{name}/SKILL.md")
    return SkillFolder(f"{name}/SKILL.md", document, files)


OURS = ("requires", "suggests", "parent", "access")


def note(path: str, text: str = "A note.\n") -> FolderFile:
    return FolderFile(path, "text/markdown", text.encode())


def draft(name: str, annotations: Annotations) -> ToolDraft:
    return ToolDraft(
        key=f"/{name}@get",
        name=name,
        description=f"Does {name}.",
        input_schema={"type": "object", "properties": {}},
        binding=OpenAPIBinding("GET", f"/{name}"),
        annotations=annotations,
    )


@pytest.fixture
def limits() -> Limits:
    return load(None, {}).skills


@pytest.fixture
def skills(database: Database, limits: Limits) -> SkillStore:
    return SkillStore(database.pool, limits)


@pytest.fixture
def with_limits(database: Database, limits: Limits) -> Callable[..., SkillStore]:
    return lambda **changes: SkillStore(database.pool, msgspec.structs.replace(limits, **changes))


async def with_tools(store: ToolStore, annotations: dict[str, Annotations] = TOOLS) -> None:
    """The source `pets` with these tools."""
    source = SourceDraft("pets", "openapi", "pets.json", "http://127.0.0.1:9", True)
    await store.save(HOST, source, [draft(*one) for one in annotations.items()])


@pytest.fixture
async def tools(store: ToolStore) -> ToolStore:
    await with_tools(store)
    return store
