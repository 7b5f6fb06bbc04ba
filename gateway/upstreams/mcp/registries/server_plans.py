"""Plans: what adding a server of a registry would do, before anything is written.

A plan names the address or the command as it will run, hosts, names of headers and variables, and
the inputs that are questions. Nothing of it is taken from a registry without being shown in it.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import quote, urlsplit

from msgspec import Struct

from config.networks import is_unencrypted
from config.source_conflicts import FRAMING
from gateway.upstreams.mcp.registries.program_arguments import Arguments, program_arguments
from gateway.upstreams.mcp.registries.registry_reader import Entry
from gateway.upstreams.mcp.registries.server_inputs import InputQuestion, Inputs, Value, fill
from registry.documents.ssrf_protection import check_host
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import KeyValueInput, Package, Remote, ServerDetail
from schemas.source import McpOptions, PublishedServer

Choice = Literal["remote", "oci", "mcpb", "pypi", "npm"]
DEPRECATED = "deprecated"  # what `allow` says of a version that its publisher gave up
REMOTE: Choice = "remote"
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.1
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST_PART = re.compile(r"[A-Za-z0-9._-]+")
# Variables by which programs load other code, or talk to somebody else.
_LOADERS = re.compile(
    r"(?i)(LD|DYLD|NPM_CONFIG|PIP|UV|DOCKER|GIT|SSL|OPENSSL|BUN|DENO|DOTNET|CORECLR|XDG)_.*"
    r"|(PYTHON|PERL5|PERLLIB|RUBY|LUA_).*|GEM_(HOME|PATH)|BASH_ENV|BASH_FUNC_.*|.*_PROXY"
    r"|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED|REPL_EXTERNAL_MODULE)"
    r"|_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|CONTAINER_(HOST|CONNECTION)"
    r"|GCONV_PATH|GLIBC_TUNABLES|(REQUESTS|CURL)_CA_BUNDLE|ENV|PATH|HOME|SHELL|IFS|TMPDIR"
)


class PlanRequest(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A wish to add a server. `choice`: how it is reached; none: the preference of the settings.
    `inputs`: values without secrets. `allow`: what is refused unless it is named, such as
    --network, an environment variable, the final host of an address with variables, `scripts` of
    npm, or `deprecated`. `unpinned`: run the newest package at each start."""

    name: str
    version: str = "latest"
    registry: str = ""
    choice: Choice | None = None
    inputs: Mapping[str, str] = {}
    allow: tuple[str, ...] = ()
    unpinned: bool = False


class Plan(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All that adding a server would do. `missing`: inputs without a value; `confirms`: what has to
    be in `allow`; `sha256`: of its server.json."""

    registry: str
    name: str
    version: str
    status: str
    sha256: str
    description: str
    namespace: str
    choice: Choice
    choices: tuple[Choice, ...]
    title: str = ""
    published: str = ""
    repository: str = ""
    url: str = ""
    command: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    questions: tuple[InputQuestion, ...] = ()
    missing: tuple[str, ...] = ()
    confirms: tuple[str, ...] = ()
    digest: str = ""
    pinned: bool = True
    notes: tuple[str, ...] = ()


Install = Callable[[], Awaitable[str]]
"""Installs a program, and returns its digest. Raises ImportRejected."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan, and what it becomes: the options of a source, and its secrets by header or variable.
    `install` is None where nothing is."""

    plan: Plan
    options: McpOptions
    secrets: Mapping[str, str]
    install: Install | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A package as it can be run. `command` ends where its own arguments begin."""

    command: tuple[str, ...]
    digest: str = ""  # "": known once it is installed
    install: Install | None = None
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = None  # of a bundle, instead of those of the entry
    environment: Mapping[str, Value] = field(default_factory=dict)


class Packages(Protocol):
    """Kinds of packages that the operator lets run here."""

    @property
    def kinds(self) -> Sequence[Choice]: ...

    @property
    def advice(self) -> str:
        """Where others would be allowed."""

    async def program(
        self, package: Package, arguments: Arguments, inputs: Inputs, *, pinned: bool
    ) -> Program:
        """Raises ImportRejected."""


async def make_plan(
    entry: Entry,
    request: PlanRequest,
    packages: Packages,
    *,
    secrets: Mapping[str, str],
    stored_names: Collection[str] = (),
) -> Draft:
    """The plan of an entry, with what it becomes. `secrets`: values by input; `stored_names`:
    headers and variables whose secrets are known already. Raises ImportRejected."""
    server, meta = entry.server, entry.meta
    if meta.status == "deleted":
        reason = f": {meta.status_message}" if meta.status_message else ""
        raise ImportRejected(f"{server.name}@{server.version} was deleted{reason}.")
    planner = _Planner(entry, request, Inputs({**request.inputs, **secrets}), stored_names)
    choices = choices_of(server, packages.kinds)
    choice = request.choice or next(iter(choices), None)
    if choice is None or choice not in choices:
        raise ImportRejected(_no_choice(server, choice, choices, packages.advice))
    if choice == REMOTE:
        draft = planner.remote(_remotes(server)[0], choices)
    else:
        package = next(each for each in server.packages if each.registry_type == choice)
        draft = await planner.package(package, choice, choices, packages)
    planner.inputs.check_used()
    return draft


def choices_of(server: ServerDetail, kinds: Sequence[Choice]) -> tuple[Choice, ...]:
    """How the server can be reached here, the preferred way first."""
    types = {package.registry_type for package in server.packages}
    remote: tuple[Choice, ...] = (REMOTE,) if server.remotes else ()
    return (*remote, *(kind for kind in kinds if kind in types))


def namespace_proof(name: str) -> str:
    """The holder of a namespace, in words. It says nothing about intent."""
    namespace = name.partition("/")[0]
    account = re.fullmatch(r"io\.github\.([A-Za-z0-9-]+)", namespace)
    if account:
        return f"{namespace}: the GitHub account or organization {account[1]}"
    return f"{namespace}: the owner of the domain {'.'.join(reversed(namespace.split('.')))}"


def check_digest(subject: str, actual: str, expected: str) -> None:
    """Raises ImportRejected where a package is not the one that was pinned."""
    if actual != expected:
        raise ImportRejected(
            f"{subject} is not what was pinned: expected the digest {expected}, found {actual}. "
            "Nothing of it was run."
        )


def _remotes(server: ServerDetail) -> Sequence[Remote]:
    return sorted(server.remotes, key=lambda remote: remote.type != "streamable-http")


def _no_choice(
    server: ServerDetail, choice: str | None, choices: Sequence[str], advice: str
) -> str:
    if choices:
        named = " or ".join(choices)
        return f"{server.name} cannot be added as {choice}. Choose {named}, or {advice}."
    types = sorted({package.registry_type for package in server.packages})
    if not types:
        return f"{server.name} has neither a remote server nor a package."
    kinds = ", ".join(types)
    return f"{server.name} is published only as {kinds}, which is not enabled here: {advice}."


@dataclass(slots=True)
class _Planner:
    entry: Entry
    request: PlanRequest
    inputs: Inputs
    stored: Collection[str]
    secrets: dict[str, str] = field(default_factory=dict)
    confirms: list[str] = field(default_factory=list)

    def remote(self, remote: Remote, choices: tuple[Choice, ...]) -> Draft:
        variables = self.inputs.variables(remote.url, remote.variables, "address")
        if any(value.is_secret for value in variables.values()):
            raise ImportRejected("A secret in an address would be stored with it: not supported.")
        url = self._fill_url(remote.url, {name: value.text for name, value in variables.items()})
        headers = self._pairs(remote.headers, "header")
        # the headers of a source are stored as its secrets, whatever they are
        self.secrets |= {name: value.text for name, value in headers.items() if value}
        plan = self._plan(
            REMOTE, choices, url=url, headers=tuple(headers), hosts=(urlsplit(url).netloc,)
        )
        return Draft(plan, self._options(plan), self.secrets)

    async def package(
        self, package: Package, choice: Choice, choices: tuple[Choice, ...], packages: Packages
    ) -> Draft:
        if package.transport.type != "stdio":
            text = f"Its {choice} package speaks {package.transport.type}: only stdio is run here."
            raise ImportRejected(text)
        arguments = Arguments(self.inputs, self.request.allow)
        pinned = not self.request.unpinned
        program = await packages.program(package, arguments, self.inputs, pinned=pinned)
        environment = {
            **self._pairs(package.environment_variables, "variable"),
            **{
                name: self._further_variable(name, value)
                for name, value in {**program.environment, **arguments.environment}.items()
            },
        }
        package_arguments = program.arguments
        if package_arguments is None:
            package_arguments = program_arguments(self.inputs, package.package_arguments)
        command = (*_with_environment(program.command, environment), *package_arguments)
        plan = self._plan(
            choice, choices, command=command, environment=tuple(environment),
            hosts=program.hosts, digest=program.digest, pinned=pinned, notes=program.notes,
        )  # fmt: skip
        plain = {
            name: value.text
            for name, value in environment.items()
            if value is not None and not value.is_secret
        }
        return Draft(plan, self._options(plan, plain), self.secrets, program.install)

    def _fill_url(self, template: str, values: Mapping[str, str]) -> str:
        """Raises ImportRejected. Variables of the host are parts of a name, others are escaped."""
        authority = re.match(r"https?://[^/?#]*", template)
        base = authority[0] if authority else ""
        for name, text in values.items():
            missing = name in self.inputs.missing
            if f"{{{name}}}" in base and not missing and not _HOST_PART.fullmatch(text):
                raise ImportRejected(f"{name}: expected a part of a host name.")
        path = fill(
            template[len(base) :],
            {name: text if name in self.inputs.missing else quote(text, safe="")
             for name, text in values.items()},
        )  # fmt: skip
        url = fill(base, values) + path
        if not any(f"{{{name}}}" in base for name in self.inputs.missing):
            self._check_address(url, has_variable_host=base != fill(base, values))
        return url

    def _check_address(self, url: str, *, has_variable_host: bool) -> None:
        try:
            check_host(url)
            parts = urlsplit(url)
        except ValueError as error:
            raise ImportRejected(f"Its address cannot be used: {error}.") from error
        if parts.username or parts.password or parts.fragment:
            raise ImportRejected("Its address has credentials or a fragment.")
        if is_unencrypted(url):
            raise ImportRejected(f"Its address is not encrypted: expected https://, found {url}.")
        if has_variable_host:
            self._confirm(parts.netloc)

    def _pairs(
        self, inputs: Sequence[KeyValueInput], kind: Literal["header", "variable"]
    ) -> dict[str, Value | None]:
        """Headers or variables by name; None: a secret that is stored already."""
        pairs: dict[str, Value | None] = {}
        for each in inputs:
            self._check_name(each.name, kind)
            if each.name in self.stored and _is_secret(each) and not self._has_values(each):
                pairs[each.name] = None
                continue
            value = self.inputs.read(each.name, each, f"{kind} {each.name}")
            if value is not None:
                pairs[each.name] = self._value(each.name, value)
        return pairs

    def _has_values(self, pair: KeyValueInput) -> bool:
        return any(name in self.inputs.values for name in (pair.name, *pair.variables))

    def _value(self, name: str, value: Value) -> Value:
        if value.is_secret:
            self.secrets[name] = value.text
        return value

    def _further_variable(self, name: str, value: Value) -> Value:
        """Of a bundle, or of arguments of a runtime: docker gets it first, as its own variable."""
        self._check_name(name, "variable")
        return self._value(name, value)

    def _check_name(self, name: str, kind: Literal["header", "variable"]) -> None:
        if kind == "header" and (not _HEADER.fullmatch(name) or name.lower() in FRAMING):
            raise ImportRejected(f"{name[:100]!r} is no header that a server may ask for.")
        if kind == "variable" and not _VARIABLE.fullmatch(name):
            raise ImportRejected(f"{name[:100]!r} is no name of an environment variable.")
        if kind == "variable" and _LOADERS.fullmatch(name):
            self._confirm(name)

    def _confirm(self, subject: str) -> None:
        if subject not in self.request.allow and subject not in self.confirms:
            self.confirms.append(subject)

    def _plan(
        self,
        choice: Choice,
        choices: tuple[Choice, ...],
        *,
        notes: tuple[str, ...] = (),
        **facts: object,
    ) -> Plan:
        server, meta = self.entry.server, self.entry.meta
        if self.entry.is_deprecated:
            self._confirm(DEPRECATED)
            notes = (*notes, f"Deprecated: {meta.status_message or 'no reason is given'}")
        members = {
            "registry": self.entry.registry,
            "name": server.name,
            "version": server.version,
            "status": meta.status,
            "sha256": self.entry.sha256,
            "description": server.description,
            "namespace": namespace_proof(server.name),
            "title": server.title or "",
            "published": meta.published_at,
            "repository": server.repository.url if server.repository else "",
            "choice": choice,
            "choices": choices,
            "questions": tuple(self.inputs.questions.values()),
            "missing": tuple(self.inputs.missing),
            "confirms": tuple(self.confirms),
            "notes": notes,
        }
        return Plan(**members, **facts)  # type: ignore[arg-type]  # by name

    def _options(self, plan: Plan, environment: Mapping[str, str] | None = None) -> McpOptions:
        secret = {name for name, each in self.inputs.questions.items() if each.secret}
        inputs = {name: self.request.inputs[name] for name in self.request.inputs.keys() - secret}
        published = PublishedServer(
            registry=plan.registry, name=plan.name, version=plan.version, sha256=plan.sha256,
            choice=plan.choice, pinned=plan.pinned, digest=plan.digest,
            inputs=tuple(sorted(inputs.items())), allow=self.request.allow,
        )  # fmt: skip
        return McpOptions(
            plan.command, pin=True, published=published, env=tuple((environment or {}).items())
        )


def _is_secret(pair: KeyValueInput) -> bool:
    return pair.is_secret or any(each.is_secret for each in pair.variables.values())


def _with_environment(
    command: tuple[str, ...], environment: Mapping[str, Value | None]
) -> tuple[str, ...]:
    """A command of a container names the variables that it passes on; their values do not show."""
    if ENVIRONMENT_PLACE not in command:
        return command
    at = command.index(ENVIRONMENT_PLACE)
    names = [part for name in environment for part in ("-e", name)]
    return (*command[:at], *names, *command[at + 1 :])


ENVIRONMENT_PLACE = "{environment}"  # place of the names of variables in a container's command
