"""Skills and agents: the text and its editor, dependencies as a picture, what an agent sees."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from gateway.admin.resource_views import VIEWS
from gateway.console.graph import GraphEdge, draw_graph
from gateway.console.page_request import PageRequest, as_json
from gateway.console.pages.operation_buttons import buttons
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import OperationAnswer
from registry.display.token_budgets import CHARACTERS
from registry.skills.snapshot import SkillSnapshot

TEMPLATE = "---\nname: {name}\ndescription: \n---\n\n# {name}\n"


async def skill_page(visit: PageRequest) -> Response:
    name = visit.path("skill")
    answer = await visit.operations.run("getSkill", {"skill": name})
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    skills = _skills(visit)
    versions = await visit.operations.run("listSkillVersions", {"skill": name})
    return visit.page(
        "skill.html",
        skill=answer.value,
        picture=draw_graph(name, _edges(skills, name), lambda node: visit.url("skills", node)),
        order=[needed_skill.name for needed_skill in skills.with_requirements(name)]
        if skills.get(name)
        else [name],
        versions=versions.value["items"] if versions.ok else (),
        acts=buttons(visit, VIEWS["skills"].acts, {"skill": name}),
    )


async def edit_page(visit: PageRequest) -> Response:
    """The editor of a skill: a preview and what saving would do, by POST; then the save."""
    if not visit.operations.may("importSkills"):
        return visit.refuse("importSkills")
    name = "" if visit.path("skill") == "new" else visit.path("skill")
    exported = await visit.operations.run("exportSkill", {"skill": name}) if name else None
    if exported is not None and not exported.ok:
        return visit.problem_page(exported)
    new: dict[str, Any] = {"document": TEMPLATE.format(name="new-skill"), "files": []}
    stored_skill = new if exported is None else exported.value
    text, act = (
        visit.posted_value("document").replace("\r\n", "\n") or stored_skill["document"],
        visit.posted_value("act"),
    )
    saved: OperationAnswer | None = None
    problem, conflict = "", ""
    present = await visit.operations.run("getSkill", {"skill": name}) if name else None
    digest = present.value["digest"] if present is not None and present.ok else ""
    if act in {"preview", "save"}:
        if digest != visit.posted_value("digest"):
            problem = visit.texts("Somebody changed it in the meantime.")
            conflict = stored_skill["document"]
        else:
            upload = {"document": text, "files": stored_skill["files"]}
            body = {"skills": [upload], "dry_run": act == "preview"}
            saved = await visit.operations.run("importSkills", body=body)
            problem = saved.problem
            if act == "save" and saved.ok:
                return visit.to("skills", saved.value["skills"][0]["name"])
    return visit.page(
        "skill_edit.html",
        412 if conflict else 200 if saved is None else saved.status,
        name=name,
        text=text,
        body=text.split("---", 2)[-1],
        outcome=saved.value["skills"][0] if saved is not None and saved.ok else None,
        digest=digest,
        problem=problem,
        other=conflict,
    )


async def agent(visit: PageRequest) -> Response:
    """An agent, and what it sees before it has loaded anything."""
    name = visit.path("agent")
    answer = await visit.operations.run("getAgent", {"agent": name})
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    skills = _skills(visit)
    stored_agent = skills.agent(name)
    agent_skills = [] if stored_agent is None else [*skills.of(stored_agent).values()]
    edges = [GraphEdge(name, agent_skill["skill"]) for agent_skill in answer.value["skills"]]
    below = [
        edge
        for agent_skill in answer.value["skills"]
        for edge in _edges(skills, agent_skill["skill"])
    ]
    return visit.page(
        "agent.html",
        agent=answer.value,
        seen=[
            {
                "name": agent_skill.name,
                "description": agent_skill.description,
                "tools": [tool.name for tool in agent_skill.tools],
                "first": len(f"{agent_skill.name}{agent_skill.description}") // CHARACTERS,
                "whole": sum(len(each.text) for each in skills.with_requirements(agent_skill.name))
                // CHARACTERS,
            }
            for agent_skill in agent_skills
        ],
        picture=draw_graph(
            name,
            list(dict.fromkeys([*edges, *below])),
            lambda node: visit.url("agents" if node == name else "skills", node),
        ),
        acts=buttons(visit, VIEWS["agents"].acts, {"agent": name}),
    )


def _skills(visit: PageRequest) -> SkillSnapshot:
    return visit.parts.catalogs.of(visit.operations.tenant).skills


def _edges(skills: SkillSnapshot, start: str) -> list[GraphEdge]:
    """Edges of required and suggested skills, transitively."""
    graph_edges: list[GraphEdge] = []
    waiting, reached = [start], {start}
    while waiting:
        skill = skills.get(waiting.pop())
        if skill is None:
            continue
        named: Sequence[tuple[str, str]] = (
            *((target, "requires") for target in skill.requires),
            *((target, "suggests") for target in skill.suggests),
        )
        graph_edges += [GraphEdge(skill.name, target, kind) for target, kind in named]
        waiting += [target for target, _ in named if target not in reached]
        reached |= {target for target, _ in named}
    return graph_edges


ROUTES = (
    PageRoute("/skills/{skill}", skill_page),
    PageRoute("/skills/{skill}/edit", edit_page, ("GET", "POST")),
    PageRoute("/agents/{agent}", agent),
)
