"""Entries of a file and of a gateway, their difference, and the requests that remove it.

Everything goes through operations: they validate, check scopes, and are in the audit log.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from config.access import Policy, Rule
from config.access_conflicts import rule_problems
from gateway.admin.requests_from_views import READERS, NotPortable, local_import, type_of_request
from gateway.admin.resource_views import VIEWS
from gateway.cli.commands import GROUPS
from gateway.cli.common.failure import CommandFailure, fail, warn
from gateway.cli.operations import declared_operations
from gateway.cli.running.client import OperationClient, RunningGateway
from gateway.cli.running.jobs import wait_for_job
from gateway.cli.stored.document import (
    SECRETS,
    Document,
    DocumentError,
    Json,
    Sections,
    join_mistakes,
    without_defaults,
)
from gateway.operations.operation import BODY, IF_MATCH, IF_NONE_MATCH, Operation
from gateway.operations.resource_view import ResourceView, StoredEntries, StoredLinks
from schemas.json_schema.pattern_cost import SATURATION
from schemas.source import MANUAL

# In the order of making: rules name toolsets.
SECTIONS = ("sources", "tools", "skills", "agents", "toolsets", "rules", "keys")
REMOVALS = (*reversed(SECTIONS[:-1]), "keys")  # the last, as one may be that of the caller
TOOL_SECTIONS = ("sources", "tools")  # entries that bring tools
GROUP_OF = {"rules": "policy"}  # where it is not the view's path

Sign = Literal["+", "~", "-"]


@dataclass(frozen=True, slots=True)
class Section:
    """One kind of stored entries, with its operations."""

    name: str
    view: ResourceView
    stored: StoredEntries
    operations: Mapping[str, Operation]

    @property
    def links(self) -> Mapping[str, StoredLinks]:
        return {links.section: links for links in self.stored.links}

    @property
    def key(self) -> str:
        """The member that names an entry in the file."""
        return self.view.names or self.view.key

    @property
    def is_keyed(self) -> bool:
        """Whether the name of an entry is a member of its request, too."""
        return "name" in getattr(self.type, "__struct_fields__", ("name",))

    @property
    def type(self) -> Any:
        """The type of a request in the file."""
        kind = type_of_request(self.name, self.operations[self.stored.writes])
        return _item_type(kind, self.stored.listed) if self.stored.listed else kind

    @property
    def replaces(self) -> bool:
        """Whether a request changes an entry that exists."""
        return self.stored.updates or self.operations[self.stored.writes].method == "PUT"


def _item_type(kind: Any, member: str) -> Any:
    """The type of the entries in a list that a body has: Annotated[tuple[TYPE, ...], ...]."""
    annotated = next(row.type for row in msgspec.structs.fields(kind) if row.name == member)
    return get_args(get_args(annotated)[0])[0]


def sections(names: Sequence[str]) -> list[Section]:
    plan_sections = []
    for name in names:
        view = VIEWS[name]
        group = GROUPS[GROUP_OF.get(name, name)]
        if view.stored is not None:
            plan_sections.append(
                Section(name, view, view.stored, declared_operations(group.resources))
            )
    return plan_sections


@dataclass(slots=True)
class Present:
    """Entries of a gateway, in the form of the file."""

    entries: Sections = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)  # of path parameters
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[tuple[str, str], str] = field(default_factory=dict)  # with the reason


async def read_gateway(client: OperationClient, kinds: Sequence[Section]) -> Present:
    present = Present()
    addresses: dict[str, str] = {}
    for section in kinds:
        rows = {}
        async for view in _list(client, section):
            name = view[section.key]
            if section.name == "tools" and view["source"]:
                view |= await _address(client, view["source"], addresses)
            try:
                reader = READERS.get(section.name)
                request = view if reader is None else reader(view)
                if request is None:
                    continue
                rows[name] = _normal(section, _members(section, request), view)
            except NotPortable as error:
                present.left_out[section.name, name] = str(error)
                continue
            present.ids[section.name, name] = view[section.view.key]
        present.entries[section.name] = dict(sorted(rows.items()))
    for secret in await client.items("listSecrets", {}):
        present.secrets.setdefault(secret["source"], {})[secret["scheme"]] = secret["kind"]
    return present


async def _list(client: OperationClient, section: Section) -> AsyncIterator[Json]:
    """Entries as their operations show them."""
    stored, view = section.stored, section.view
    now = datetime.now(UTC).isoformat()
    async for page in client.pages(view.lists, {}):
        for row in page:
            is_other = any(row.get(member) != value for member, value in stored.only)
            if is_other or (row.get("expires") or now) < now:
                continue
            entry = row
            if stored.shows or stored.links:
                arguments = {view.parameter: row[view.key]}
                for operation in dict.fromkeys((view.shows, stored.shows)):
                    if operation:
                        entry = {**entry, **(await client.call(operation, arguments)).value}
            yield entry


async def _address(client: OperationClient, source: str, addresses: dict[str, str]) -> Json:
    """The address of a source that tools made by hand have brought."""
    if source not in addresses:
        view = (await client.call("getSource", {"source": source})).value
        addresses[source] = view["base_url"] if view["kind"] == MANUAL else ""
    return {"base_url": addresses[source]}


def _members(section: Section, view: Json) -> Json:
    """The members of an entry that its request has."""
    body = view[section.stored.body] if section.stored.body else view
    if section.name in {"sources", "tools"}:
        return dict(body)
    names = section.type.__struct_encode_fields__
    return {name: value for name, value in body.items() if name in names}


def _normal(section: Section, members: Json, view: Json) -> Json:
    """An entry of the file: without its name, and without what is at its default."""
    entry: Json = without_defaults(msgspec.convert(members, section.type))
    if section.is_keyed:
        entry.pop("name", None)
    for name, links in section.links.items():
        if linked := _read_links(links, view):
            entry[name] = linked
    return entry


def _read_links(links: StoredLinks, view: Json) -> Json:
    linked: Json = {}
    for member, link_members in links.read:
        value = view[member]
        if isinstance(value, dict):
            linked |= {name: {links.attribute: attribute} for name, attribute in value.items()}
            continue
        for link in value:
            if isinstance(link, dict):
                members = {name: value for name, value in link.items() if name != links.parameter}
                linked[link[links.parameter]] = members
            else:
                linked[link] = dict(link_members)
    return dict(sorted(linked.items()))


def read_document(document: Document, kinds: Sequence[Section], policy: Policy) -> Sections:
    """The entries of a file, checked. Raises DocumentError with all mistakes."""
    by_name = {section.name: section for section in kinds}
    target: Sections = {name: {} for name in document.sections if name in by_name}
    mistakes: list[DocumentError] = []
    for name, key, entry in document.entries((*by_name, SECRETS), mistakes):
        if name == SECRETS:
            continue
        try:
            target[name][key] = _read_entry(document, by_name[name], key, entry, policy)
        except DocumentError as error:
            mistakes.append(error)
    if mistakes:
        raise join_mistakes(mistakes)
    return target


def _read_entry(
    document: Document, section: Section, key: str, members: Json, policy: Policy
) -> Json:
    links = {link: members.pop(link) for link in section.links if link in members}
    named = {**members, "name": key} if section.is_keyed else members
    value = document.convert((section.name, key), named, section.type)
    if isinstance(value, Rule):
        _check_rule(document, (section.name, key), value, policy)
    entry = _normal_of_file(section, value)
    for link, linked in links.items():
        entry |= _checked_links(document, (section.name, key, link), linked)
    return entry


def _check_rule(document: Document, path: tuple[str, str], rule: Rule, policy: Policy) -> None:
    """Names of tiers and toolsets, and the limit of steps, are those of the gateway, which checks
    them."""
    unbounded = msgspec.structs.replace(policy, tiers=rule.tiers, expression_steps=SATURATION)
    problems = rule_problems(rule, unbounded, rule.toolsets)
    mistakes = [document.error((*path, member), text) for member, text in problems]
    if mistakes:
        raise join_mistakes(mistakes)


def _normal_of_file(section: Section, value: Any) -> Json:
    entry: Json = without_defaults(value)
    if section.is_keyed:
        entry.pop("name", None)
    return entry


def _checked_links(document: Document, path: tuple[str, str, str], value: Any) -> Json:
    if not value:
        return {}
    links = document.convert(path, value, dict[str, dict[str, Any] | None])
    return {path[-1]: {name: links[name] or {} for name in sorted(links)}}


@dataclass(frozen=True, slots=True)
class Change:
    section: Section
    name: str
    sign: Sign
    before: Json
    after: Json

    def __str__(self) -> str:
        text = f"{self.sign} {self.section.name} {self.name}"
        if self.sign != "~":
            return text
        names = [
            name
            for name in {**self.before, **self.after}
            if self.before.get(name) != self.after.get(name)
        ]
        again = "" if self.section.replaces else " (removed and made again)"
        return f"{text}: {', '.join(names)}{again}"


def compare(
    kinds: Sequence[Section], present: Present, target: Sections, *, prune: bool
) -> list[Change]:
    """The changes that bring a gateway to what a file has. Sections that it lacks stay, and so do
    entries that cannot be compared."""
    changes = []
    for section in kinds:
        if section.name not in target:
            continue
        there, file = present.entries[section.name], target[section.name]
        for name, entry in file.items():
            if (section.name, name) in present.left_out:
                continue
            if name not in there:
                changes.append(Change(section, name, "+", {}, entry))
            elif there[name] != entry:
                changes.append(Change(section, name, "~", there[name], entry))
    for section in sorted(kinds, key=lambda section: REMOVALS.index(section.name)):
        if prune and section.name in target:
            gone = present.entries[section.name].keys() - target[section.name].keys()
            changes += [Change(section, name, "-", {}, {}) for name in sorted(gone)]
    return changes


class Changes:
    """Makes changes at a gateway; `secrets` gets those that are given once."""

    def __init__(self, client: OperationClient, present: Present) -> None:
        self._client = client
        self._present = present
        self.secrets: dict[str, str] = {}
        self._linked: Sections = {}  # skill -> tools, as they were

    async def make(self, change: Change) -> None:
        if change.sign == "-":
            await self._remove(change)
            return
        if self._is_made_again(change):
            await self._make_again(change)
            return
        links = change.section.links
        if _without(change.before, links) != _without(change.after, links) or change.sign == "+":
            await self._write(change)

    async def _make_again(self, change: Change) -> None:
        await self._remove(change)
        try:
            await self._write(change)
        except CommandFailure as error:
            if change.section.stored.prints:  # a new key is not the one that was removed
                raise
            try:
                await self._write(replace(change, after=change.before))
            except CommandFailure as second:
                fail(f"{error.message}. It is removed, as it cannot be restored: {second.message}")
            raise

    def _is_made_again(self, change: Change) -> bool:
        return change.sign == "~" and not change.section.replaces and not self._replaces(change)

    async def read_links(self, changes: Sequence[Change]) -> None:
        """Remember the tools of skills: links go with tools that are removed and made again."""
        if any(self._is_made_again(c) and c.section.name in TOOL_SECTIONS for c in changes):
            self._linked = await self._read_tools_of_skills()

    async def restore_links(self) -> None:
        [skills] = sections(["skills"])
        links = skills.links["tools"]
        present = await self._read_tools_of_skills() if self._linked else {}
        for skill, tools in self._linked.items():
            for tool in tools.keys() - present.get(skill, {}).keys():
                try:
                    await self._add_link(skills, links, skill, tool, tools[tool])
                except CommandFailure as error:
                    warn(f"skill {skill} is not linked with {tool} any more: {error.message}")

    async def _read_tools_of_skills(self) -> Sections:
        [skills] = sections(["skills"])
        view, linked = skills.view, {}
        for row in await self._client.items(view.lists, {}):
            name = row[view.key]
            entry = (await self._client.call(view.shows, {view.parameter: name})).value
            linked[name] = _read_links(skills.links["tools"], entry)
        return linked

    async def link(self, change: Change) -> None:
        """Make the links of an entry, once all entries of its section are there."""
        section, view = change.section, change.section.view
        for name, links in section.links.items():
            arguments = {view.parameter: change.name}
            entry = {**arguments}
            view_value = (await self._client.call(view.shows, entry)).value
            before, after = _read_links(links, view_value), change.after.get(name, {})
            for linked in before.keys() - after.keys():
                await self._client.call(links.removes, {**arguments, links.parameter: linked})
            for linked, members in after.items():
                if before.get(linked) == members:
                    continue
                await self._add_link(section, links, change.name, linked, members)

    async def _add_link(
        self, section: Section, links: StoredLinks, name: str, linked: str, members: Json
    ) -> None:
        target = {links.listed: [linked]} if links.listed else {links.parameter: linked}
        arguments = {**members, **target, section.view.parameter: name}
        await self._client.call(links.adds, arguments)

    def _replaces(self, change: Change) -> bool:
        """A command of this machine imports a source again in its place."""
        return change.section.name == "sources" and not isinstance(self._client, RunningGateway)

    async def _write(self, change: Change) -> None:
        section, stored = change.section, change.section.stored
        operation = section.operations[stored.writes]
        body = _without(change.after, section.links)
        if section.is_keyed:
            body["name"] = change.name
        if section.name == "sources" and not isinstance(self._client, RunningGateway):
            request = msgspec.convert(body, section.type)
            body = msgspec.to_builtins(local_import(request))
        if stored.listed:
            body = {stored.listed: [body]}
        arguments: Json = {BODY: {**body, **stored.members}}
        if operation.names:
            arguments[section.view.parameter] = change.name
        if operation.match:
            arguments |= {IF_NONE_MATCH: "*"} if change.sign == "+" else {IF_MATCH: "*"}
        answer = await self._client.call(stored.writes, arguments)
        if answer.is_job:
            job = await wait_for_job(self._client, answer.value["job"], cancels=True)
            if job["state"] != "succeeded":
                fail(f"{change.name}: {job.get('error') or job['state']}")
        if stored.prints:
            self.secrets[change.name] = answer.value[stored.prints]

    async def _remove(self, change: Change) -> None:
        section = change.section
        operation = section.operations[section.stored.removes]
        key = self._present.ids[section.name, change.name]
        arguments: Json = {section.view.parameter: key}
        await self._client.call(
            operation.id, arguments | ({IF_MATCH: "*"} if operation.match else {})
        )


def _without(entry: Json, links: Mapping[str, Any]) -> Json:
    return {name: value for name, value in entry.items() if name not in links}
