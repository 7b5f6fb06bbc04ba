"""Plans of servers: what a hostile server.json can make of a command, an address and a header."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.errors import ImportRejected
from tests.gateway.upstreams.mcp.registries.entries import (
    DIGEST,
    package,
    plan_of,
    plan_package,
    settings,
)
from tests.servers.mcp_registry import server_json

pytestmark = pytest.mark.anyio

RUN = ("docker", "run", "--rm", "-i")
PINNED = f"ghcr.io/ada/weather@{DIGEST}"


def _positional(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "positional", "value": value, **more}


def _flag(name: str, value: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "named", "name": name, **({} if value is None else {"value": value}), **more}


def _remote(url: str, **more: Any) -> dict[str, Any]:
    return server_json(remotes=[{"type": "streamable-http", "url": url, **more}])


@pytest.mark.parametrize(
    "value",
    ["; rm -rf ~", "$(id)", "`id`", "a b", "a'b\"c", "--privileged", "{other}", "* ? ~", "&& id"],
)
async def test_argument_stays_one_element_of_the_command(value: str) -> None:
    """REG-5: argv is a list, no shell sees it, and templates are filled after it is split."""
    described = package(packageArguments=[_positional(value), _flag("--city", value)])
    plan = (await plan_package(described)).plan
    assert plan.command == (*RUN, PINNED, value, "--city", value)


async def test_value_of_a_template_is_not_a_template() -> None:
    argument = _positional("{a}/{b}", variables={"a": {}, "b": {}}, isRequired=True)
    given = {"a": "{b}", "b": "x y"}
    draft = await plan_package(package(packageArguments=[argument]), inputs=given)
    assert draft.plan.command[-1] == "{b}/x y"


@pytest.mark.parametrize(
    "arguments",
    [
        [_flag("-v", "/:/host")],
        [_flag("--volume", "/:/host")],
        [_flag("--mount", "type=bind,src=/,dst=/host")],
        [_flag("--mount=type=bind,src=/,dst=/host")],
        [_positional("--privileged")],
        [_flag("--cap-add", "SYS_ADMIN")],
        [_flag("--network", "host")],
        [_positional("--network=host")],
        [_flag("--env-file", "/etc/environment")],
        [_flag("--device", "/dev/sda")],
        [_flag("--pid", "host")],
        [_flag("--security-opt", "seccomp=unconfined")],
        [_flag("--entrypoint", "/bin/sh")],
        [_flag("-itv", "/:/host")],
        [_positional("evil/image")],
        [_positional("-i"), _positional("evil/image")],
        [_flag("--user", "1"), _positional("evil/image")],
    ],
)
async def test_argument_that_reaches_beyond_a_container_is_refused(arguments: list[Any]) -> None:
    """REG-5, RT2."""
    described = package(runtimeArguments=arguments, runtimeHint="docker")
    with pytest.raises(ImportRejected, match="beyond the program: refused unless it is allowed"):
        await plan_package(described)


async def test_allowed_argument_is_given_to_the_runtime() -> None:
    described = package(
        runtimeArguments=[_flag("--network", "host"), _flag("--user", "1000"), _flag("-i")],
        runtimeHint="docker",
    )
    plan = (await plan_package(described, allow=("--network",))).plan
    assert plan.command == (*RUN, "--network", "host", "--user", "1000", PINNED)


async def test_variables_of_a_container_are_named_and_not_shown() -> None:
    """REG-6: also those that stand in arguments of docker, as published servers have them."""
    key = _flag("-e", "API_KEY={key}", variables={"key": {"isSecret": True}}, isRequired=True)
    described = package(
        runtimeArguments=[key],
        environmentVariables=[{"name": "UNITS", "default": "metric"}],
    )
    draft = await plan_package(described, secrets={"key": "s3cret"})
    assert draft.plan.command == (*RUN, "-e", "UNITS", "-e", "API_KEY", PINNED)
    assert draft.secrets == {"API_KEY": "s3cret"}
    assert draft.options.env == (("UNITS", "metric"),)
    assert "s3cret" not in repr(draft.plan) + repr(draft.options)


async def test_variable_of_a_secret_text_is_a_secret() -> None:
    """RT3: publishers mark the header, and not its variable."""
    header = {"name": "Authorization", "value": "Bearer {key}", "variables": {"key": {}}}
    headers = [{**header, "isSecret": True, "isRequired": True}]
    draft = await plan_of(_remote("https://a.example/", headers=headers), secrets={"key": "s3cret"})
    assert draft.plan.questions[0].secret
    draft = await plan_of(_remote("https://a.example/", headers=headers), inputs={"key": "s3cret"})
    assert "s3cret" not in repr(draft.plan) + repr(draft.options)


@pytest.mark.parametrize("backwards", [False, True])
async def test_input_is_secret_everywhere_or_nowhere(backwards: bool) -> None:
    """RT3: a server that asks for its key openly, too, would have it in clear."""
    inputs = [{"name": "key", "isSecret": True}, {"name": "X-A", "value": "{key}"}]
    inputs[1]["variables"] = {"key": {}}
    headers = inputs[::-1] if backwards else inputs
    with pytest.raises(ImportRejected, match="as a secret, and openly in another place"):
        await plan_of(_remote("https://a.example/", headers=headers), inputs={"key": "s"})


async def test_secret_is_never_an_argument() -> None:
    argument = {"type": "positional", "valueHint": "key", "isSecret": True, "isRequired": True}
    with pytest.raises(ImportRejected, match="list of processes"):
        await plan_package(package(packageArguments=[argument]), secrets={"key": "s"})


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PATH", "NODE_OPTIONS", "DOCKER_HOST", "http_proxy"]
)
async def test_variable_that_loads_code_has_to_be_allowed(name: str) -> None:
    described = package(environmentVariables=[{"name": name, "value": "x"}])
    assert (await plan_package(described)).plan.confirms == (name,)
    assert (await plan_package(described, allow=(name,))).plan.confirms == ()


async def test_variable_in_an_argument_of_docker_has_to_be_allowed() -> None:
    """docker has it in its own environment, to pass it on."""
    for name, confirms in (("DOCKER_HOST", ("DOCKER_HOST",)), ("LD_PRELOAD", ("LD_PRELOAD",))):
        described = package(runtimeArguments=[_flag("-e", f"{name}=x")])
        assert (await plan_package(described)).plan.confirms == confirms
    for text in ("A B=x", "=x", "1A=x", "A"):
        with pytest.raises(ImportRejected, match=r"expected NAME=value|no name of an environment"):
            await plan_package(package(runtimeArguments=[_flag("-e", text)]))


@pytest.mark.parametrize("hint", ["bash", "sh -c", "/tmp/npx", "python -m evil"])
async def test_registry_chooses_no_command(hint: str) -> None:
    """REG-5: runtimes are those of the settings."""
    with pytest.raises(ImportRejected, match="wants to be run by"):
        await plan_package(package(runtimeHint=hint))


@pytest.mark.parametrize(
    ("kind", "identifier"),
    [
        ("npm", "--registry=https://evil.example"),
        ("npm", "../evil"),
        ("npm", "git+https://evil.example/x"),
        ("npm", "a b"),
        ("npm", "evil/repository"),
        ("pypi", "evil/folder"),
        ("pypi", "@ada/weather"),
        ("pypi", "-r/etc/passwd"),
        ("pypi", "x @ https://evil.example/x.whl"),
        ("oci", "--privileged"),
        ("oci", "a:1 --privileged"),
        ("oci", "ghcr.io/ada/weather"),
        ("mcpb", "file:///etc/passwd"),
        ("mcpb", "http://evil.example/x.mcpb"),
    ],
)
async def test_identifier_is_a_name_of_its_kind(kind: str, identifier: str) -> None:
    version = {} if kind in ("oci", "mcpb") else {"version": "1.0.0"}
    with pytest.raises(ImportRejected, match=r"no name of a package|no image|https:// URL"):
        await plan_package(package(kind, identifier, **version))


async def test_unpinned_package_says_so() -> None:
    described = package("npm", "@ada/weather", version="1.0.0", runtimeHint="npx")
    plan = (await plan_package(described, unpinned=True)).plan
    assert plan.command == ("npx", "-y", "@ada/weather@1.0.0")
    assert plan.pinned is False
    assert "Not pinned" in plan.notes[0]


@pytest.mark.parametrize("kind", ["npm", "pypi"])
@pytest.mark.parametrize(
    "argument", [("--package", "evil"), ("-w", "evil"), ("-i=https://evil.example",), ("-e", "A=b")]
)
async def test_runner_gets_no_arguments_of_a_server(kind: str, argument: tuple[str, ...]) -> None:
    """RT2: -w of uvx is --with, and -i its --index-url."""
    described = package(kind, "a", version="1", runtimeArguments=[_flag(*argument)])
    with pytest.raises(ImportRejected, match="refused unless"):
        await plan_package(described, unpinned=True)


async def test_choice_prefers_remotes_and_then_the_order_of_the_settings() -> None:
    """REG-4."""
    both = {"packages": [package("npm", "a", version="1"), package()]}
    remote = {"remotes": [{"type": "sse", "url": "https://a.example/sse"}]}
    plan = (await plan_of(server_json(**both, **remote))).plan
    assert (plan.choice, plan.choices) == ("remote", ("remote", "oci", "npm"))
    assert (await plan_of(server_json(**both))).plan.choice == "oci"
    with pytest.raises(ImportRejected, match=r"as remote\. Choose oci or npm, or "):
        await plan_of(server_json(**both), choice="remote")


@pytest.mark.parametrize(
    "url", ["http://mcp.example/mcp", "https://u:p@mcp.example/", "https://[::"]
)
async def test_address_that_cannot_be_trusted_is_refused(url: str) -> None:
    with pytest.raises(ImportRejected, match=r"not encrypted|credentials|cannot be used"):
        await plan_of(_remote(url))


async def test_variable_in_a_host_needs_confirmation_of_the_final_host() -> None:
    """REG-6."""
    document = _remote("https://{tenant}.a.example/mcp", variables={"tenant": {}})
    assert (await plan_of(document)).plan.missing == ("tenant",)
    plan = (await plan_of(document, inputs={"tenant": "t1"})).plan
    assert (plan.url, plan.confirms) == ("https://t1.a.example/mcp", ("t1.a.example",))
    plan = (await plan_of(document, inputs={"tenant": "t1"}, allow=("t1.a.example",))).plan
    assert plan.confirms == ()


@pytest.mark.parametrize("tenant", ["evil.example/", "evil.example#", "a@evil", "a:1", "a?", "a b"])
async def test_variable_in_a_host_cannot_lead_elsewhere(tenant: str) -> None:
    document = _remote("https://{tenant}.a.example/mcp", variables={"tenant": {}})
    with pytest.raises(ImportRejected, match="part of a host name"):
        await plan_of(document, inputs={"tenant": tenant})


async def test_variable_in_a_path_is_escaped() -> None:
    document = _remote("https://a.example/{id}/mcp?x={id}", variables={"id": {}})
    plan = (await plan_of(document, inputs={"id": "../b?c#d&e"})).plan
    assert plan.url == "https://a.example/..%2Fb%3Fc%23d%26e/mcp?x=..%2Fb%3Fc%23d%26e"


@pytest.mark.parametrize("text", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\x1bb"])
async def test_value_with_control_characters_is_refused_without_being_shown(text: str) -> None:
    """REG-6."""
    headers = [{"name": "X-Key", "isRequired": True}]
    with pytest.raises(ImportRejected, match="without control characters") as caught:
        await plan_of(_remote("https://a.example/", headers=headers), inputs={"X-Key": text})
    assert text not in str(caught.value)


@pytest.mark.parametrize("name", ["Host", "X-Evil\r\nA", "Content-Length", "A B"])
async def test_header_that_frames_a_request_is_refused(name: str) -> None:
    headers = [{"name": name, "value": "1"}]
    with pytest.raises(ImportRejected, match="no header that a server may ask for"):
        await plan_of(_remote("https://a.example/", headers=headers))


@pytest.mark.parametrize(
    ("described", "value"),
    [({"choices": ["a", "b"]}, "c"), ({"format": "number"}, "1e"), ({"format": "boolean"}, "yes")],
)
async def test_value_outside_its_description_is_refused(described: Any, value: str) -> None:
    headers = [{"name": "X-A", **described}]
    with pytest.raises(ImportRejected, match="X-A: expected"):
        await plan_of(_remote("https://a.example/", headers=headers), inputs={"X-A": value})


async def test_fixed_values_are_not_asked_and_not_replaced() -> None:
    headers = [{"name": "X-A", "value": "fixed"}]
    document = _remote("https://a.example/", headers=headers)
    assert (await plan_of(document)).plan.questions == ()
    with pytest.raises(ImportRejected, match="no input X-A"):
        await plan_of(document, inputs={"X-A": "other"})


async def test_secret_that_is_stored_is_not_asked_again() -> None:
    headers = [{"name": "X-Key", "isSecret": True, "isRequired": True}]
    document = _remote("https://a.example/", headers=headers)
    assert (await plan_of(document)).plan.missing == ("X-Key",)
    draft = await plan_of(document, stored=("X-Key",))
    assert (draft.plan.missing, draft.secrets) == ((), {})


async def test_packages_need_stdio() -> None:
    whole = settings()
    whole = replace(whole, upstream=replace(whole.upstream, stdio=False))
    with pytest.raises(ImportRejected, match=r"see upstream\.stdio"):
        await plan_of(server_json(packages=[package()]), whole)
