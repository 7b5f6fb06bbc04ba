"""The page "Catalog": servers of a registry are searched, reviewed and added."""

import re

import pytest
from msgspec.structs import replace

from config.access import SecretsSettings
from config.registries import RegistrySettings
from config.settings import Settings
from tests.gateway.console.visiting import console
from tests.servers.mcp_habits import Habits, running
from tests.servers.mcp_registry import PublishedServers, server_json, serving_registry

pytestmark = pytest.mark.anyio

NAME = "io.github.ada/weather"
PAGE = "catalog/io.github.ada%2Fweather"


async def test_server_is_searched_reviewed_and_added(settings: Settings) -> None:
    published, habits = PublishedServers(), Habits()
    with serving_registry(published) as registry, running(habits) as server:
        key = {"name": "X-Key", "isSecret": True, "isRequired": True}
        remote = {"type": "streamable-http", "url": f"{server}/mcp", "headers": [key]}
        text = "<script>alert(1)</script>"
        published.versions = [server_json(NAME, remotes=[remote], description=text)]
        whole = replace(
            settings,
            registries={"own": RegistrySettings(registry)},
            imports=replace(settings.imports, private_networks=True),
            secrets=SecretsSettings(key="A" * 43 + "=", old_keys=()),
        )
        async with console(whole) as (_, browser):
            status, page = await browser.get("catalog?search=weather")
            assert status == 200
            assert f'href="/console/{PAGE}"' in page
            assert text not in page
            status, page = await browser.get(PAGE)
            assert status == 200
            assert f"{server}/mcp" in page
            assert "the GitHub account or organization ada" in page
            assert 'type="password"' in page
            assert habits.asked == []
            digest = re.search(r'name="sha256" value="([0-9a-f]{64})"', page)
            assert digest is not None
            form = {"act": "add", "source": "weather", "sha256": digest[1]}
            _, page = await browser.post(PAGE, form)
            assert "Expected values of X-Key" in page
            _, page = await browser.post(PAGE, {**form, "sha256": "0" * 64, "input.X-Key": "s3"})
            assert "is not what was reviewed" in page
            status, page = await browser.post(PAGE, {**form, "input.X-Key": "s3cret"})
            assert status == 200
            assert "echo" in page
            assert "s3cret" not in page
            assert ("POST", "/mcp") in habits.asked


async def test_program_is_left_to_commands(settings: Settings) -> None:
    published = PublishedServers()
    with serving_registry(published) as registry:
        package = {
            "registryType": "npm",
            "identifier": "weather",
            "version": "1.0.0",
            "transport": {"type": "stdio"},
        }
        published.versions = [server_json(NAME, packages=[package])]
        whole = replace(settings, registries={"own": RegistrySettings(registry)})
        async with console(whole) as (_, browser):
            status, page = await browser.get(PAGE)
            assert status == 200
            assert "toolgate import mcp --from NAME" in page
            assert 'value="add"' not in page


async def test_menu_has_registries_only_with_a_registry_in_settings(settings: Settings) -> None:
    entry = 'href="/console/catalog"'
    async with console(settings) as (_, browser):
        _, page = await browser.get("")
        assert entry not in page
        status, page = await browser.get("catalog")
        assert (status, "registries: {official: {url:" in page) == (422, True)
    with serving_registry(PublishedServers()) as registry:
        whole = replace(settings, registries={"own": RegistrySettings(registry)})
        async with console(whole) as (_, browser):
            _, page = await browser.get("")
            assert entry in page
