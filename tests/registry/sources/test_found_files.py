"""Descriptions in several files: of a directory, an archive, and a web server."""

import io
import json
import zipfile
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from aiohttp import web

from config.load import load
from registry.documents.containers import Unreadable, unpack
from registry.documents.fetch import FetchedDocument
from registry.importers.drafts import ImportedDescription
from registry.sources.import_specs import ImportSpec
from registry.sources.openapi_documents import RemoteFiles
from registry.sources.source_reader import FoundSource, Origins, find, reread
from schemas.errors import ImportRejected
from schemas.source import OpenAPIOptions

pytestmark = pytest.mark.anyio

ROOT = "{openapi: 3.1.0, info: {title: T, version: 1}, paths: {/pets: {$ref: paths/pets.yaml}}}"
FILES = {
    "openapi.yaml": ROOT,
    "paths/pets.yaml": "get: {operationId: pets, parameters: [{$ref: ../common/page.json#/page}]}",
    "common/page.json": '{"page": {"name": "page", "in": "query", "schema": {"$ref": "#/n"}},'
    ' "n": {"type": "integer"}}',
}


def write(root, files=FILES):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def archive(files=FILES, **rest) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in {**files, **rest}.items():
            file.writestr(name, text)
    return data.getvalue()


async def find_source(location, limits=None, **options) -> FoundSource:
    imports = msgspec.structs.replace(load(None, {}).imports, **(limits or {}))
    spec = ImportSpec("s", str(location), kind="openapi", options=OpenAPIOptions(**options))
    with anyio.fail_after(30):
        return await find(spec, imports, Origins())


async def import_files(location, limits=None, **options) -> ImportedDescription:
    return (await find_source(location, limits, **options)).read()


async def refusal(location, limits=None, **options) -> str:
    with pytest.raises(ImportRejected) as caught:
        await import_files(location, limits, **options)
    return str(caught.value)


def is_whole(result: ImportedDescription) -> None:
    [draft], [outcome] = result.drafts, result.outcomes
    assert (draft.name, outcome.status) == ("pets", "imported")
    assert list(draft.input_schema["$defs"].values()) == [{"type": "integer"}]


@asynccontextmanager
async def serve(files, host="127.0.0.1", seen=None):
    """The URL of a web server with these files; a `->` in one of them redirects."""

    async def handler(request):
        if seen is not None:
            seen.append((request.path, request.headers.get("Authorization")))
        content = files.get(request.match_info["path"])
        if content is None:
            return web.Response(status=404)
        if isinstance(content, str) and content.startswith("->"):
            return web.Response(status=302, headers={"Location": content[2:]})
        return web.Response(body=content)

    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, host, 0).start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_file_includes_its_referenced_files(tmp_path):
    write(tmp_path)
    described = await find_source(tmp_path / "openapi.yaml")
    assert described.location == str(tmp_path / "openapi.yaml")
    assert unpack(described.document, "").files.keys() == FILES.keys()
    is_whole(described.read())


async def test_a_directory_is_imported_from_the_file_that_is_plain_to_see(tmp_path):
    write(tmp_path, {**FILES, "paths/openapi.json": "{}", "node_modules/openapi.yaml": "{}"})
    described = await find_source(tmp_path)
    assert described.location == str(tmp_path)
    is_whole(described.read())


async def test_an_archive_is_imported_wherever_its_files_begin(tmp_path):
    path = tmp_path / "api.zip"
    path.write_bytes(archive({f"api-1.0/{name}": text for name, text in FILES.items()}))
    is_whole(await import_files(path))


async def test_an_archive_at_a_url():
    async with serve({"api.zip": archive()}) as url:
        is_whole(await import_files(f"{url}/api.zip"))


async def test_a_url_includes_its_referenced_neighbours():
    async with serve(FILES) as url:
        described = await find_source(f"{url}/openapi.yaml")
        assert unpack(described.document, "").entry == f"{url}/openapi.yaml"
        is_whole(described.read())


async def test_a_bundle_is_read_again_without_the_files(tmp_path):
    write(tmp_path, {**FILES, "overlay.yaml": "operations: {pets: {name: shown}}"})
    described = await find_source(tmp_path, overlay=str(tmp_path / "overlay.yaml"))
    for name in FILES:
        (tmp_path / name).unlink()
    spec = ImportSpec("s", str(tmp_path), kind="openapi", options=OpenAPIOptions())
    again = reread(spec, described.document)
    assert again.digest == described.digest
    assert [draft.name for draft in again.read().drafts] == ["shown"]


@pytest.mark.parametrize("changed", [*FILES, "overlay.yaml"])
async def test_every_file_counts_for_the_digest(tmp_path, changed):
    overlay = write(tmp_path, {**FILES, "overlay.yaml": "{}"}) / "overlay.yaml"
    before = (await find_source(tmp_path, overlay=str(overlay))).digest
    assert (await find_source(tmp_path, overlay=str(overlay))).digest == before
    with (tmp_path / changed).open("a") as file:
        file.write("\n")
    assert (await find_source(tmp_path, overlay=str(overlay))).digest != before


async def test_the_entry_file_is_found_by_content(tmp_path):
    files = {"shop.yml": FILES["openapi.yaml"], "notes.json": "{}", "broken.yaml": "openapi: ["}
    is_whole(
        await import_files(
            write(tmp_path, {**FILES, **files, "openapi.yaml": "x"}), entry="shop.yml"
        )
    )
    (tmp_path / "openapi.yaml").unlink()
    is_whole(await import_files(tmp_path))


async def test_several_descriptions_are_listed(tmp_path):
    write(tmp_path, {"openapi.yaml": ROOT, "swagger.json": "{}"})
    message = await refusal(tmp_path)
    assert f"{tmp_path} holds several descriptions: openapi.yaml, swagger.json. Name" in message
    assert "--entry" in message


async def test_a_directory_without_a_description_names_the_expected_file(tmp_path):
    write(tmp_path, {"a.yaml": "{}"})
    assert "holds no OpenAPI description: expected openapi.yaml" in await refusal(tmp_path)
    assert "Cannot read b.yaml in" in await refusal(tmp_path, entry="b.yaml")
    assert "is one file; an entry" in await refusal(tmp_path / "a.yaml", entry="b.yaml")


async def test_files_outside_are_not_read(tmp_path):
    write(tmp_path, {"secret.yaml": "get: {operationId: secret}", "link/x": ""})
    inside = write(
        tmp_path / "api",
        {
            "openapi.yaml": "{openapi: 3.1.0, paths: {/up: {$ref: ../secret.yaml}, /abs: {$ref: "
            f"{tmp_path}/secret.yaml}}, /link: {{$ref: link.yaml}}, "
            f"/dir: {{$ref: dir/secret.yaml}}, /in: {{$ref: in.yaml}}, "
            f"/url: {{$ref: 'file://{tmp_path}/secret.yaml'}}}}}}",
            "in.yaml": "get: {}",
        },
    )
    (inside / "link.yaml").symlink_to("../secret.yaml")
    (inside / "dir").symlink_to("..")
    result = await import_files(inside)
    reasons = {o.key: o.reason for o in result.outcomes if o.status == "skipped"}
    assert reasons.keys() == {"/up", "/abs", "/link", "/dir", "/url"}
    assert "it lies outside the directory of the description" in reasons["/up"]
    assert "it lies outside the directory of the description" in reasons["/abs"]
    assert "a link that leads out of the directory" in reasons["/link"]
    assert "a link that leads out of the directory" in reasons["/dir"]
    assert "expected a path or an http(s) URL" in reasons["/url"]
    assert [draft.key for draft in result.drafts] == ["/in@get"]


async def test_links_that_stay_inside_are_followed(tmp_path):
    write(tmp_path / "..data", FILES)
    for name in ("openapi.yaml", "paths", "common"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    is_whole(await import_files(tmp_path))


async def test_an_archive_keeps_to_itself(tmp_path):
    link = zipfile.ZipInfo("link.yaml")
    link.external_attr = 0o120777 << 16
    data = io.BytesIO()
    root = "{openapi: 3.1.0, paths: {/a: {$ref: ../up.yaml}, /b: {$ref: link.yaml}, /c: {get: {}}}}"
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("openapi.yaml", root)
        file.writestr("../up.yaml", "get: {}")
        file.writestr(link, "/etc/passwd")
    (tmp_path / "api.zip").write_bytes(data.getvalue())
    reasons = {o.key: o.reason for o in (await import_files(tmp_path / "api.zip")).outcomes}
    assert "outside the archive" in reasons["/a"]
    assert "a link, which is not followed" in reasons["/b"]
    assert reasons["/c@get"] is None


async def test_an_archive_that_holds_a_file_twice_is_refused(tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("openapi.yaml", "{openapi: 3.1.0, paths: {/seen: {get: {}}}}")
        file.writestr("a/../openapi.yaml", "{openapi: 3.1.0, paths: {/served: {get: {}}}}")
    (tmp_path / "api.zip").write_bytes(data.getvalue())
    assert "holds 'openapi.yaml' twice" in await refusal(tmp_path / "api.zip")


async def test_paths_of_windows_and_archives_in_archives_lead_nowhere(tmp_path):
    refs = {
        "/a": "..\\\\up.yaml",
        "/b": "C:\\\\x.yaml",
        "/c": "inner.zip",
        "/d": "inner.zip/x.yaml",
    }
    paths = ", ".join(f'{path}: {{$ref: "{ref}"}}' for path, ref in refs.items())
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("openapi.yaml", f"{{openapi: 3.1.0, paths: {{{paths}, /e: {{get: {{}}}}}}}}")
        file.writestr("inner.zip", archive({"x.yaml": "get: {}"}))
        file.writestr("C:\\x.yaml", "get: {}")
    (tmp_path / "api.zip").write_bytes(data.getvalue())
    result = await import_files(tmp_path / "api.zip")
    assert [draft.binding.path for draft in result.drafts] == ["/e"]


async def test_a_small_archive_cannot_hold_gigabytes(tmp_path):
    root = "{openapi: 3.1.0, paths: {/a: {$ref: bomb.yaml}, /b: {get: {}}}}"
    path = tmp_path / "api.zip"
    path.write_bytes(archive({"openapi.yaml": root, "bomb.yaml": " " * 5_000_000}))
    result = await import_files(path, {"document_limit_bytes": 100_000})
    reasons = {o.key: o.reason for o in result.outcomes}
    assert "larger than imports.document_limit_bytes allows" in reasons["/a"]
    assert reasons["/b@get"] is None
    path.write_bytes(archive({"openapi.yaml": " " * 5_000_000}))
    assert "larger than imports.document" in await refusal(path, {"document_limit_bytes": 100_000})


async def test_a_broken_archive_is_refused(tmp_path):
    path = tmp_path / "api.zip"
    path.write_bytes(b"PK\x03\x04 and nothing else")
    assert "is a broken archive" in await refusal(path)
    path.write_bytes(archive({f"{n}.txt": "" for n in range(50)}))
    assert "holds more than 40 files" in await refusal(path, {"local_files_limit": 8})


async def test_the_number_of_files_is_limited(tmp_path):
    chain = {f"{n}.yaml": f"get: {{operationId: o{n}}}" for n in range(9)}
    paths = ", ".join(f"/{n}: {{$ref: {n}.yaml}}" for n in range(9))
    write(tmp_path, {"openapi.yaml": f"{{openapi: 3.1.0, paths: {{{paths}}}}}", **chain})
    result = await import_files(tmp_path, {"local_files_limit": 4})
    assert [draft.name for draft in result.drafts] == ["o0", "o1", "o2"]
    assert "more than 4 files (setting imports.local_files_limit)" in result.outcomes[0].reason


async def test_properties_may_stand_in_a_file_of_their_own(tmp_path):
    body = "{content: {application/json: {schema: {properties: {$ref: shared.yaml#/all}}}}}"
    root = f"{{openapi: 3.0.3, paths: {{/pets: {{post: {{requestBody: {body}}}}}}}}}"
    shared = "all: {name: {type: string}, size: {$ref: '#/size'}}\nsize: {type: integer}"
    write(tmp_path, {"openapi.yaml": root, "shared.yaml": shared})
    result = await import_files(tmp_path)
    assert [outcome.status for outcome in result.outcomes] == ["imported"]
    assert result.drafts[0].input_schema["properties"].keys() == {"name", "size"}


async def test_files_that_nothing_refers_to_do_not_count(tmp_path):
    """As in a public description of 2,533 files, which lie beside as many others."""
    chain = {f"p/{n}.yaml": f"get: {{operationId: o{n}}}" for n in range(1500)}
    beside = {f"notes/{n}.md": "Read me" for n in range(1500)}
    paths = ", ".join(f"/{n}: {{$ref: p/{n}.yaml}}" for n in range(1500))
    write(tmp_path, {"openapi.yaml": f"{{openapi: 3.1.0, paths: {{{paths}}}}}", **chain, **beside})
    result = await import_files(tmp_path)
    assert len(result.drafts) == 1500
    assert {outcome.status for outcome in result.outcomes} == {"imported"}


async def test_an_unparsable_file_costs_only_dependent_operations(tmp_path):
    root = ROOT.replace("/pets:", "/ok: {get: {}}, /pets:")
    write(tmp_path, {"openapi.yaml": root, "paths/pets.yaml": "a: [\n"})
    result = await import_files(tmp_path)
    assert [draft.key for draft in result.drafts] == ["/ok@get"]
    assert "'paths/pets.yaml' cannot be read: paths/pets.yaml, line 2" in result.notes[0]


async def test_a_url_of_another_host_must_be_public(tmp_path):
    """What a description names, nobody chose; what lies beside it, the operator did."""
    seen: list[object] = []
    async with serve({"x.yaml": "get: {}"}, seen=seen) as other:
        root = (
            f"{{openapi: 3.1.0, paths: {{/o: {{$ref: '{other}/x.yaml'}}, /b: {{$ref: b.yaml}}}}}}"
        )
        write(tmp_path, {"openapi.yaml": root, "b.yaml": "get: {}"})
        local = await import_files(tmp_path)
        async with serve({"openapi.yaml": root, "b.yaml": "get: {}"}) as url:
            remote = await import_files(f"{url}/openapi.yaml")
            assert seen == []
            allowed = await import_files(f"{url}/openapi.yaml", {"private_networks": True})
    for result in (local, remote):
        assert [draft.key for draft in result.drafts] == ["/b@get"]
        assert "is not a public address" in result.outcomes[0].reason
    assert [draft.key for draft in allowed.drafts] == ["/o@get", "/b@get"]


async def test_a_host_name_that_leads_to_a_private_address_is_not_asked(tmp_path):
    seen: list[object] = []
    async with serve({"x.yaml": "get: {}"}, seen=seen) as other:
        name = other.replace("127.0.0.1", "localhost")
        root = f"{{openapi: 3.1.0, paths: {{/o: {{$ref: '{name}/x.yaml'}}, /b: {{get: {{}}}}}}}}"
        write(tmp_path, {"openapi.yaml": root})
        result = await import_files(tmp_path)
    assert seen == []
    assert "is not a public address" in result.outcomes[0].reason


async def test_credentials_go_only_to_their_origin():
    seen: list[object] = []
    other_seen: list[object] = []
    async with serve({"x.yaml": "get: {}"}, seen=other_seen) as other:
        root = (
            f"{{openapi: 3.1.0, paths: {{/o: {{$ref: '{other}/x.yaml'}}, /b: {{$ref: b.yaml}}}}}}"
        )
        async with serve({"openapi.yaml": root, "b.yaml": "get: {}"}, seen=seen) as url:
            named = url.replace("//", "//me:secret@")
            described = await find_source(f"{named}/openapi.yaml", {"private_networks": True})
    assert {path: bool(sent) for path, sent in seen} == {"/openapi.yaml": True, "/b.yaml": True}
    assert other_seen == [("/x.yaml", None)]
    assert b"secret" not in described.document
    assert len(described.read().drafts) == 2


async def test_references_are_relative_to_the_redirected_url():
    files = {f"v2/{name}": text for name, text in FILES.items()}
    async with serve({**files, "latest": "->/v2/openapi.yaml"}) as url:
        is_whole(await import_files(f"{url}/latest"))


async def test_an_overlay_at_a_url_with_credentials_is_refused(tmp_path):
    write(tmp_path)
    message = await refusal(tmp_path, overlay="http://me:secret@localhost/o.yaml")
    assert "holds credentials" in message
    assert "secret" not in message


async def test_a_description_fetched_by_https_leads_to_no_http():
    limits = load(None, {}).imports
    remote = RemoteFiles(
        limits, FetchedDocument(b"", "https://a.example/api"), "https://a.example/api"
    )
    with pytest.raises(Unreadable, match="it leads from https to http"):
        await remote.read("http://a.example/b.yaml", 10)


async def test_swagger_in_several_files_of_both_formats(tmp_path):
    root = {"swagger": "2.0", "paths": {"/a": {"$ref": "a.yaml"}}, "consumes": ["text/csv"]}
    write(
        tmp_path,
        {
            "swagger.json": json.dumps(root),
            "a.yaml": "post: {parameters: [{$ref: 'shared.yaml#/parameters/b'}]}",
            "shared.yaml": "parameters: {b: {in: body, name: b, schema: {$ref: '#/definitions/B'}}}"
            "\ndefinitions: {B: {type: string, x-nullable: true}}",
        },
    )
    [draft] = (await import_files(tmp_path)).drafts
    assert draft.binding.body.media_type == "text/csv"
    assert list(draft.input_schema["$defs"].values()) == [{"type": ["string", "null"]}]
