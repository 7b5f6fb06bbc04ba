"""`toolgate registry`, and `toolgate import mcp --from`: servers of registries."""

import base64
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.conftest import Ran, Toolgate
from tests.gateway.upstreams.mcp.registries.entries import package
from tests.gateway.upstreams.mcp.registries.published_packages import IMAGE_DIGEST, MANIFEST
from tests.registry.servers import tool
from tests.servers import mcp_lists
from tests.servers.mcp_habits import Habits, running
from tests.servers.mcp_registry import PublishedServers, server_json, serving_registry

NAME = "io.github.ada/weather"
KEY = base64.b64encode(bytes(32)).decode()


@dataclass
class World:
    toolgate: Toolgate
    published: PublishedServers
    registry: str
    server: str
    habits: Habits
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def publish(self, version: str = "1.0.0", **more: Any) -> None:
        remotes = [{"type": "streamable-http", "url": f"{self.server}/mcp"}]
        self.published.versions.append(server_json(NAME, version, remotes=remotes, **more))

    def __call__(self, *args: str, **more: Any) -> Ran:
        settings = {
            "registries": {"own": {"url": self.registry, "token": "of-own"}},
            "imports": {"private_networks": True},
            "secrets": {"key": "${file:secret}"},
            **self.settings,
        }
        (self.folder / "secret").write_text(KEY)
        (self.folder / "toolgate.yaml").write_text(json.dumps(settings))
        return self.toolgate(*args, **more)

    def add(self, *args: str, **more: Any) -> Ran:
        return self("import", "mcp", "--from", NAME, "--name", "weather", "--yes", *args, **more)


@pytest.fixture
def world(toolgate: Toolgate, folder: Path) -> Iterator[World]:
    published, habits = PublishedServers(), Habits()
    with serving_registry(published) as registry, running(habits) as server:
        yield World(toolgate, published, registry, server, habits, folder)


def test_search_and_show_name_servers_of_the_registry(world: World) -> None:
    world.publish("1.0.0")
    world.publish("1.1.0", title="Weather\u001b[2J")
    ran = world("registry", "search", "weather")
    assert (ran.code, ran.err) == (0, "")
    assert NAME in ran.out
    assert "1.1.0" in ran.out
    ran = world("registry", "show", NAME)
    assert "the GitHub account or organization ada" in ran.out
    assert "1.1.0" in ran.out
    assert "1.0.0" in ran.out
    assert "\u001b" not in ran.out
    assert all(headers["authorization"] == "Bearer of-own" for _, headers in world.published.asked)


def test_pages_of_a_registry_are_followed(world: World) -> None:
    world.published.page = 2
    world.published.versions = [server_json(f"com.example/s{number}") for number in range(5)]
    ran = world("registry", "search", "--json")
    assert [row["name"] for row in ran.json] == [f"com.example/s{number}" for number in range(5)]


def test_remote_server_is_added_by_its_name(world: World) -> None:
    world.publish()
    ran = world.add()
    assert (ran.code, ran.err) == (0, "")
    assert f"{world.server}/mcp" in ran.out
    assert "1 added" in ran.out
    source = world("sources", "show", "weather", "--json").json
    assert source["options"]["pin"] is True
    published = source["options"]["published"]
    assert (published["name"], published["version"]) == (NAME, "1.0.0")
    assert (published["registry"], published["choice"]) == ("own", "remote")


def test_dry_run_writes_nothing_and_needs_no_database(world: World, bare: Toolgate) -> None:
    world.publish()
    world.toolgate = bare
    ran = world("import", "mcp", "--from", NAME, "--name", "weather", "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["url"] == f"{world.server}/mcp"
    assert world.habits.asked == []


def test_plan_is_confirmed_at_a_terminal_alone(world: World) -> None:
    world.publish()
    ran = world("import", "mcp", "--from", NAME, "--name", "weather")
    assert ran.code == 2
    assert "add --yes" in ran.err


def test_secrets_are_stored_and_not_in_the_source(world: World) -> None:
    """REG-6, RT3."""
    key = {"name": "X-Key", "isSecret": True, "isRequired": True}
    remote = {"type": "streamable-http", "url": f"{world.server}/mcp", "headers": [key]}
    world.published.versions = [server_json(remotes=[remote])]
    assert "X-Key" in world.add().err
    ran = world.add("--set", "X-Key=-", stdin="s3cret\n")
    assert ran.code == 0, ran.err
    assert "s3cret" not in ran.out + ran.err
    assert "s3cret" not in json.dumps(world("sources", "show", "weather", "--json").json)
    secrets = world("secrets", "list", "--json").json
    assert [(row["source"], row["scheme"]) for row in secrets] == [("weather", "X-Key")]
    assert "s3cret" not in world("sources", "versions", "weather", "--json").out


def test_secret_that_refers_to_a_variable_belongs_in_the_settings(world: World) -> None:
    key = {"name": "X-Key", "isSecret": True, "isRequired": True}
    remote = {"type": "streamable-http", "url": f"{world.server}/mcp", "headers": [key]}
    world.published.versions = [server_json(remotes=[remote])]
    assert "write it into the settings" in world.add("--set", "X-Key=${KEY}").err
    world.settings["sources"] = {"weather": {"headers": {"X-Key": "of-settings"}}}
    assert world.add("--set", "X-Key=${KEY}").code == 0
    assert world("secrets", "list", "--json").json == []


def test_unknown_deleted_and_deprecated_versions(world: World) -> None:
    world.publish("1.0.0")
    world.published.status["1.0.0"] = {"status": "deprecated", "statusMessage": "Use 2."}
    ran = world.add()
    assert ran.code == 2
    assert "--allow=deprecated" in ran.err
    assert world.add("--allow", "deprecated").code == 0
    world.published.status["1.0.0"] = {"status": "deleted"}
    assert "was deleted" in world.add().err
    ran = world("import", "mcp", "--from", f"{NAME}@9", "--name", "w", "--yes")
    assert "names are compared exactly" in ran.err or "There is no server" in ran.err
    ran = world("import", "mcp", "--from", "io.github.ada/weathr", "--name", "w", "--yes")
    assert ran.code == 1


def test_update_shows_both_differences_and_holds_new_tools(world: World) -> None:
    """REG-8."""
    world.publish("1.0.0")
    assert world.add().code == 0
    assert world("registry", "outdated", "--json").json == []
    world.publish("1.1.0", title="Weather")
    rows = world("registry", "outdated", "--json").json
    assert [(row["source"], row["version"], row["latest"]) for row in rows] == [
        ("weather", "1.0.0", "1.1.0")
    ]
    ran = world("registry", "update", "weather", "--yes")
    assert ran.code == 0, ran.err
    assert "/title" in ran.out
    source = world("sources", "show", "weather", "--json").json
    assert source["options"]["published"]["version"] == "1.1.0"
    assert world("registry", "outdated", "--json").json == []


def test_version_that_its_registry_altered_is_told(world: World) -> None:
    """RT1."""
    world.publish("1.0.0")
    assert world.add().code == 0
    world.published.versions[0]["description"] = "Other."
    assert world("registry", "outdated", "--json").json[0]["altered"] is True


def test_update_that_leads_inside_is_not_asked_for_its_tools(world: World) -> None:
    """RT2: of a server that was public, the next version names a private address."""
    world.publish("1.0.0")
    assert world.add().code == 0
    world.publish("1.1.0", title="Weather")
    asked = len(world.habits.asked)
    world.settings["imports"] = {"private_networks": False}
    ran = world("registry", "update", "weather", "--yes")
    assert (ran.code, len(world.habits.asked)) == (1, asked)
    assert "lies in a private network" in ran.err


def test_texts_of_a_publisher_are_no_lines_of_the_plan(world: World) -> None:
    world.publish(description="Weather.\nurl  https://good.example", title="A\rB")
    headers = [{"name": "X-A", "value": "{a\nruns}", "variables": {"a\nruns": {}}}]
    world.published.versions[0]["remotes"][0]["headers"] = headers
    ran = world.add("--dry-run")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert not [line for line in lines if line.startswith(("url  https://good", "runs", "B"))]
    assert "Weather. url https://good.example" in ran.out


def test_server_that_vanished_from_its_registry_is_told(world: World) -> None:
    world.publish("1.0.0")
    assert world.add().code == 0
    world.published.versions.clear()
    assert world("registry", "outdated", "--json").json[0]["status"] == "missing"


@pytest.fixture
def docker(world: World) -> Path:
    """A command in the place of docker, which needs a daemon: it records its arguments, and serves
    MCP where it is to run an image."""
    lists = world.folder / "lists.json"
    lists.write_text(json.dumps({"tools": [tool("forecast")]}))
    script = world.folder / "docker"
    script.write_text(
        f'#!/bin/sh\necho "$@" "$API_KEY" >> {world.folder}/ran\n'
        f'[ "$1" = pull ] || exec {sys.executable} {mcp_lists.__file__} {lists}\n'
    )
    script.chmod(0o755)
    packages = {"docker": str(script), "folder": str(world.folder / "packages")}
    world.settings["packages"] = packages
    return world.folder / "ran"


def test_image_runs_by_its_digest_until_its_server_is_updated(world: World, docker: Path) -> None:
    """REG-5 to REG-7: a tag that was moved is no update."""
    host = world.registry.removeprefix("http://")
    manifest = "/v2/ada/weather/manifests/1"
    world.published.files[manifest] = (200, MANIFEST, {})
    described = package(
        "oci", f"{host}/ada/weather:1", environmentVariables=[{"name": "API_KEY", "isSecret": True}]
    )
    world.published.versions = [server_json(packages=[described])]
    ran = world.add("--set", "API_KEY=-", stdin="s3cret")
    assert ran.code == 0, ran.err
    image = f"{host}/ada/weather@{IMAGE_DIGEST}"
    lines = set(docker.read_text().splitlines())
    assert lines == {f"pull --quiet {image} ", f"run --rm -i -e API_KEY {image} s3cret"}
    published = world("sources", "show", "weather", "--json").json["options"]["published"]
    assert published["digest"] == IMAGE_DIGEST
    world.published.files[manifest] = (200, MANIFEST + b" ", {})
    ran = world.add("--set", "API_KEY=s3cret")
    assert ran.code == 1
    assert "is not what was pinned" in ran.err
    world.published.versions.append(server_json(version="2.0.0", packages=[described]))
    ran = world("registry", "update", "weather", "--yes")
    assert ran.code == 0, ran.err
    published = world("sources", "show", "weather", "--json").json["options"]["published"]
    assert (published["version"], published["digest"] != IMAGE_DIGEST) == ("2.0.0", True)


def test_programs_need_stdio(world: World) -> None:
    world.settings["upstream"] = {"stdio": False}
    world.published.versions = [server_json(packages=[package()])]
    assert "see upstream.stdio" in world.add().err


def test_source_of_something_else_is_not_replaced(world: World) -> None:
    world.publish()
    assert world("import", "mcp", f"{world.server}/mcp", "--name", "weather").code == 0
    assert "of something else" in world.add().err


def test_registries_outside_the_settings_are_not_asked(world: World) -> None:
    world.settings["registries"] = {}
    assert "There is no registry to ask" in world("registry", "search").err
    assert world.published.asked == []
