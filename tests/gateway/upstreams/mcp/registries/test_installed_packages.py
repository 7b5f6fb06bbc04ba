"""Packages of registries: what is installed is what was pinned, and runs from its own folder."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import run_process

from gateway.upstreams.mcp.registries.server_plans import Draft
from schemas.errors import ImportRejected
from tests.gateway.upstreams.mcp.registries.entries import package, plan_of, settings
from tests.gateway.upstreams.mcp.registries.published_packages import (
    IMAGE_DIGEST,
    MANIFEST,
    bundle,
    integrity_of,
    npm_tarball,
    publish_image,
    publish_npm,
    publish_wheel,
    sdist,
    wheel,
)
from tests.servers.mcp_registry import PublishedServers, server_json, serving_registry

pytestmark = pytest.mark.anyio

with_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


class World:
    def __init__(self, published: PublishedServers, url: str, folder: Path) -> None:
        self.published = published
        self.url = url
        self.settings = settings(
            folder, npm_url=url, pypi_url=f"{url}/simple", python=sys.executable
        )

    async def plan(self, kind: str, identifier: str = "weather", **more: object) -> Draft:
        described = package(kind, identifier, **more)
        return await plan_of(server_json(packages=[described]), self.settings)

    async def plan_bundle(self, env: dict[str, str], **files: str) -> Draft:
        command = {"command": "python3", "args": ["${__dirname}/server/main.py"], "env": env}
        data = bundle({"server": {"type": "python", "mcp_config": command}}, **files)
        self.published.files["/w.mcpb"] = (200, data, {})
        digest = hashlib.sha256(data).hexdigest()
        return await self.plan("mcpb", f"{self.url}/w.mcpb", fileSha256=digest)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("HOME", str(tmp_path))  # caches of npm and pip
    published = PublishedServers()
    with serving_registry(published) as url:
        yield World(published, url, tmp_path / "packages")


async def _install(draft: Draft) -> str:
    assert draft.install is not None
    return await draft.install()


def _output(draft: Draft) -> str:
    return subprocess.check_output(draft.plan.command, text=True)


@with_npm
async def test_npm_package_runs_from_its_locked_tree(world: World) -> None:
    """REG-7."""
    helper = npm_tarball("helper", "")
    publish_npm(world.published, world.url, "helper", helper)
    scripts = {"postinstall": "node -e \"require('fs').writeFileSync('ran', '')\""}
    tarball = npm_tarball(
        "weather", "console.log('sun')", dependencies={"helper": "^1.0.0"}, scripts=scripts
    )
    members = {"dependencies": {"helper": "^1.0.0"}, "hasInstallScript": True}
    integrity = publish_npm(world.published, world.url, "weather", tarball, **members)
    draft = await world.plan("npm", version="1.0.0")
    assert draft.plan.digest == integrity
    assert await _install(draft) == integrity
    assert _output(draft) == "sun\n"
    folder = Path(draft.plan.command[0]).parents[2]
    lock = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert lock["node_modules/helper"]["integrity"] == integrity_of(helper)
    assert not list(folder.rglob("ran"))  # scripts of packages are not run
    asked = len(world.published.asked)
    assert await _install(draft) == integrity  # once alone
    assert len(world.published.asked) == asked


@with_npm
async def test_npm_package_that_differs_from_its_plan_is_not_installed(world: World) -> None:
    """RT1: between plan and installation, and between the registry's word and the file."""
    publish_npm(world.published, world.url, "weather", npm_tarball("weather", "1"))
    draft = await world.plan("npm", version="1.0.0")
    publish_npm(world.published, world.url, "weather", npm_tarball("weather", "2"))
    with pytest.raises(ImportRejected, match="is not what was pinned"):
        await _install(draft)
    world.published.files["/files/weather.tgz"] = (200, npm_tarball("weather", "3"), {})
    draft = await world.plan("npm", version="1.0.0")
    with pytest.raises(ImportRejected, match=r"EINTEGRITY|integrity"):
        await _install(draft)


@with_npm
@pytest.mark.parametrize("scheme", ["git+http", "http"])
async def test_dependency_outside_the_registry_is_not_fetched(world: World, scheme: str) -> None:
    """RT1: npm would ask its address, or start git, before there is a lock to check."""
    known = await run_process(["npm", "config", "list", "--long"])
    if scheme == "http" and b"allow-remote" not in known.stdout:
        pytest.skip("this npm cannot be told to ask its registry alone")
    address = f"{world.url.replace('http', scheme)}/inside"
    needs = {"dependencies": {"helper": address}}
    publish_npm(world.published, world.url, "weather", npm_tarball("weather", "", **needs), **needs)
    draft = await world.plan("npm", version="1.0.0")
    with pytest.raises(ImportRejected, match=r"EALLOW|no-git-is-run"):
        await _install(draft)
    assert not [target for target, _ in world.published.asked if "inside" in target]


async def test_wheel_runs_from_an_environment_of_its_own(world: World) -> None:
    """REG-7: with its dependencies, all by their hashes."""
    helper = publish_wheel(world.published, "helper", wheel("helper", "SKY = 'sun'"))
    code = "import helper\ndef main(): print(helper.SKY)\n"
    digest = publish_wheel(world.published, "weather", wheel("weather", code, "helper>=1"))
    draft = await world.plan("pypi", version="1.0.0")
    assert await _install(draft) == f"sha256:{digest}"
    assert _output(draft) == "sun\n"
    lock = (Path(draft.plan.command[0]).parents[1] / "requirements.txt").read_text()
    assert sorted(lock.splitlines()) == [
        f"helper==1.0.0 --hash=sha256:{helper}",
        f"weather==1.0.0 --hash=sha256:{digest}",
    ]


async def test_wheel_that_differs_from_server_json_is_not_installed(world: World) -> None:
    publish_wheel(world.published, "weather", wheel("weather", "def main(): ..."))
    draft = await world.plan("pypi", version="1.0.0", fileSha256="0" * 64)
    with pytest.raises(ImportRejected, match="is not what was pinned"):
        await _install(draft)


async def test_dependency_of_a_wheel_is_not_built(world: World, tmp_path: Path) -> None:
    """RT1: `--only-binary` lets pip build a dependency that has a URL."""
    world.published.files["/files/helper-1.0.0.tar.gz"] = (
        200,
        sdist("helper", tmp_path / "ran"),
        {},
    )
    needs = f"helper @ {world.url}/files/helper-1.0.0.tar.gz"
    publish_wheel(world.published, "weather", wheel("weather", "def main(): ...", needs))
    draft = await world.plan("pypi", version="1.0.0")
    with pytest.raises(ImportRejected, match="is no wheel of the index, and is not built"):
        await _install(draft)
    assert not (tmp_path / "ran").exists()


async def test_installation_that_takes_too_long_leaves_no_process(tmp_path: Path) -> None:
    """Nor do the processes that npm or pip have started."""
    script, lock = tmp_path / "docker", tmp_path / "lock"
    script.write_text(f"#!/bin/sh\nexec 9>{lock}\nflock 9\nsleep 600 &\nwait\n")
    script.chmod(0o755)
    whole = settings(tmp_path / "packages", docker=str(script), timeout_s=1)
    draft = await plan_of(server_json(packages=[package()]), whole)
    with pytest.raises(ImportRejected, match=r"more than 1 s \(packages\.timeout_s\)"):
        await _install(draft)
    await run_process(["flock", "--timeout", "20", str(lock), "true"])  # which all of them have


async def test_tag_of_an_image_becomes_its_digest(world: World) -> None:
    """REG-7: with an anonymous token, which its registry wants first."""
    host = world.url.removeprefix("http://")
    publish_image(world.published, world.url, "ada/weather", "1.0.0")
    world.published.bearers["/v2/ada/weather/manifests/1.0.0"] = ("anonymous", MANIFEST)
    draft = await world.plan("oci", f"{host}/ada/weather:1.0.0")
    image = f"{host}/ada/weather@{IMAGE_DIGEST}"
    assert draft.plan.command == ("docker", "run", "--rm", "-i", image)
    assert draft.plan.digest == IMAGE_DIGEST
    scopes = [target for target, _ in world.published.asked if target.startswith("/token")]
    assert scopes == ["/token?scope=repository:ada/weather:pull&service=images"]


async def test_bundle_is_compared_before_opening(world: World) -> None:
    """REG-7."""
    manifest = {
        "server": {
            "type": "python",
            "mcp_config": {
                "command": "python3",
                "args": ["${__dirname}/server/main.py", "--city", "${user_config.city}"],
                "env": {"KEY": "${user_config.key}"},
            },
        },
        "user_config": {
            "city": {"type": "string", "default": "Oslo"},
            "key": {"type": "string", "sensitive": True, "required": True},
        },
    }
    data = bundle(manifest, **{"server__main.py": "import sys\nprint(sys.argv[2])"})
    world.published.files["/w.mcpb"] = (200, data, {})
    digest = hashlib.sha256(data).hexdigest()
    draft = await world.plan("mcpb", f"{world.url}/w.mcpb", fileSha256=digest)
    assert draft.plan.missing == ("key",)
    assert draft.plan.environment == ("KEY",)
    assert await _install(draft) == f"sha256:{digest}"
    assert _output(draft) == "Oslo\n"
    with pytest.raises(ImportRejected, match="is not what was pinned"):
        await world.plan("mcpb", f"{world.url}/w.mcpb", fileSha256="0" * 64)
    with pytest.raises(ImportRejected, match="no fileSha256"):
        await world.plan("mcpb", f"{world.url}/w.mcpb")


async def test_bundle_names_no_variable_that_loads_code(world: World) -> None:
    """RT2: variables of its manifest are judged like those of server.json."""
    env = {"LD_PRELOAD": "${__dirname}/evil.so", "UNITS": "metric"}
    draft = await world.plan_bundle(env)
    assert draft.plan.confirms == ("LD_PRELOAD",)
    with pytest.raises(ImportRejected, match="no name of an environment variable"):
        await world.plan_bundle({"A B": "1"})


async def test_bundle_that_cannot_be_unpacked_leaves_nothing_installed(world: World) -> None:
    """Nor does it say itself that it is complete."""
    files = {"installed.json": '{"digest": "sha256:0"}', "server": "", "server__main.py": ""}
    draft = await world.plan_bundle({}, **files)
    for _ in range(2):
        with pytest.raises(ImportRejected, match="cannot be filled"):
            await _install(draft)


@pytest.mark.parametrize("command", ["bash", "${__dirname}/../../bin/sh", "/bin/sh"])
async def test_bundle_chooses_no_command(world: World, command: str) -> None:
    manifest = {"server": {"type": "binary", "mcp_config": {"command": command}}}
    data = bundle(manifest)
    world.published.files["/w.mcpb"] = (200, data, {})
    with pytest.raises(ImportRejected, match="wants to run"):
        await world.plan("mcpb", f"{world.url}/w.mcpb", fileSha256=hashlib.sha256(data).hexdigest())
