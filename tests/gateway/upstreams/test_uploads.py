"""Files that lie elsewhere: fetched from real servers, sent to a real service."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec import Raw
from msgspec.json import encode

from gateway.context import Context, Identity, Principal
from gateway.upstreams.http.uploads import FETCHED_LIMIT, Uploads
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from registry.documents import ssrf_protection
from schemas.binding import Body, OpenAPIBinding, Part
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.conftest import limits, open_client, source
from tests.gateway.upstreams.parts import field as field_of
from tests.gateway.upstreams.parts import parts_of
from tests.servers.rest import Flaky, Recorder, read_seen, respond

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("ann", "t")), V2025_06_18, "r-1")
FORM = Body(
    "multipart/form-data",
    properties=(("note", "note"), ("f", "f")),
    parts=(Part("f", file=True),),
)
BYTES = Body("application/octet-stream", argument="f", file=True)


def tool(body, method="POST"):
    binding = OpenAPIBinding(method, "/files", (), body)
    return Tool(
        "uuid", "upload", None, "Sends", Raw(b"{}"), None, Annotations(), binding, "pets", "d"
    )


@dataclass
class Resources:
    """What this gateway's `resources/read` would say, and who asked."""

    contents: Mapping[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def read(self, uri, context):
        self.asked.append((uri, context.principal.id))
        return {"contents": Raw(self.contents[uri])} if uri in self.contents else None


@dataclass
class Calls:
    """Calls of one tool through an upstream whose settings are these."""

    url: str
    resources: Resources
    changes: Mapping[str, object]

    async def __call__(self, body, method="POST", **arguments):
        async with open_client(**self.changes) as client:
            uploads = Uploads(lambda: limits(**self.changes), self.resources.read)
            upstream = OpenAPIUpstream(client, uploads)
            return await upstream.call(tool(body, method), source(self.url), arguments, CONTEXT)

    async def refusal_text(self, body=BYTES, **arguments):
        """Why nothing was sent, in words that name no address."""
        result = await self(body, **arguments)
        assert result.is_error
        text = result.content[0].text
        assert "127.0.0.1" not in text
        return text


@pytest.fixture
def calls(serve):
    async def make(service, resources=None, private=True, **changes):
        changes = {"upload_private_networks": private, **changes}
        return Calls(await serve(service), resources or Resources(), changes)

    return make


async def serve_chunks(_scope, receive, send):
    """A file whose length is not told."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(50):
        await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def redirecting(location, status=302):
    return Recorder(status, b"", headers=[("location", location)])


async def test_a_file_of_a_url_is_a_part_with_its_name_and_type(calls, serve):
    service, files = Recorder(), Recorder(200, b"GIF89a", "image/gif")
    call = await calls(service)
    result = await call(FORM, note="x", f=await serve(files) + "/a%20b.gif?token=1#top")
    assert not result.is_error
    [seen] = service.seen
    note, file = parts_of(*seen.all("content-type"), seen.body)
    assert field_of(note) == ("note", None, None, b"x")
    assert field_of(file) == ("f", "a b.gif", "image/gif", b"GIF89a")
    assert seen.all("content-length") == [str(len(seen.body))]


async def test_a_body_of_bytes_has_the_type_that_the_description_says(calls, serve):
    service, files = Recorder(), Recorder(200, b"\0\1", "image/png")
    call = await calls(service)
    await call(BYTES, f=await serve(files))
    await call(Body("image/*", argument="f", file=True), f=await serve(files))
    assert [seen.body for seen in service.seen] == [b"\0\1", b"\0\1"]
    types = [seen.all("content-type") for seen in service.seen]
    assert types == [["application/octet-stream"], ["image/png"]]
    assert service.seen[0].all("content-length") == ["2"]


async def test_a_file_of_unknown_length_is_streamed_in_chunks(calls, serve):
    service = Recorder()
    call = await calls(service)
    await call(BYTES, f=await serve(serve_chunks))
    [seen] = service.seen
    assert seen.body == b"x" * 5000
    assert seen.all("content-length") == []
    assert seen.all("transfer-encoding") == ["chunked"]


async def test_several_files_from_everywhere(calls, serve):
    blob = encode([{"uri": "x", "mimeType": "image/png", "blob": "iVBO"}])
    service = Recorder()
    call = await calls(service, Resources({"notes://1": blob}))
    await call(FORM, f=[await serve(Recorder(200, b"one", "text/x")), "notes://1", "dHdv"])
    [seen] = service.seen
    contents = [field_of(part)[3] for part in parts_of(*seen.all("content-type"), seen.body)]
    assert contents == [b"one", b"\x89PN", b"two"]


async def test_a_resource_is_read_as_the_caller(calls):
    text = encode([{"uri": "notes://a/b.md", "mimeType": "text/markdown", "text": "é"}])
    service, resources = Recorder(), Resources({"notes://a/b.md": text})
    call = await calls(service, resources)
    await call(FORM, f="notes://a/b.md")
    await call(BYTES, f={"uri": "notes://a/b.md"})
    [part] = parts_of(*service.seen[0].all("content-type"), service.seen[0].body)
    assert field_of(part) == ("f", "b.md", "text/markdown", "é".encode())
    assert service.seen[1].body == "é".encode()
    assert resources.asked == [("notes://a/b.md", "ann")] * 2


@pytest.mark.parametrize("contents", [None, b"[]", b'[{"uri":"x","blob":"!"}]', b"{}"])
async def test_a_resource_that_cannot_be_read_is_said(calls, contents):
    service = Recorder()
    call = await calls(service, Resources({} if contents is None else {"a://b": contents}))
    assert await call.refusal_text(f="a://b") == "f: there is no such resource"
    assert service.seen == []


PRIVATE = "f: its URL leads into a private network (upstream.upload_private_networks)"


async def test_private_addresses_are_refused(calls, serve):
    """`localhost` is resolved and then judged, an address is judged as it stands."""
    service, files = Recorder(), Recorder()
    call = await calls(service, private=False)
    url = await serve(files)
    named = url.replace("127.0.0.1", "localhost")
    for private in (url, named, "http://[::1]:1/", "http://10.0.0.1/"):
        assert await call.refusal_text(f=private) == PRIVATE
    assert (service.seen, files.seen) == ([], [])


async def test_a_public_address_redirecting_to_a_private_address_is_refused(
    calls, serve, monkeypatch
):
    # there is no public address in a test: one of the private ones has to pass for it
    monkeypatch.setattr(ssrf_protection, "is_public", lambda address: address == "127.0.0.1")
    service, files = Recorder(), Recorder(200, b"public")
    call = await calls(service, private=False)
    assert not (await call(BYTES, f=await serve(files))).is_error
    assert await call.refusal_text(f=await serve(redirecting("http://10.0.0.1/x"))) == PRIVATE
    assert await call.refusal_text(f=await serve(redirecting("//[fd00::1]/x"))) == PRIVATE
    assert [seen.body for seen in service.seen] == [b"public"]


async def test_redirects_are_followed_a_few_times(calls, serve):
    service, files = Recorder(), Recorder(200, b"file")
    call = await calls(service)
    moved = await serve(redirecting(await serve(files) + "/there", 308))
    await call(BYTES, f=moved)
    assert [seen.body for seen in service.seen] == [b"file"]
    assert [seen.target for seen in files.seen] == ["/there"]
    circle = await serve(redirecting("/again"))
    assert await call.refusal_text(f=circle) == "f: its URL redirects more than 5 times"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://x/y", "data:,x"])
async def test_a_redirect_leads_to_http_only(calls, serve, location):
    call = await calls(Recorder())
    url = await serve(redirecting(location))
    assert await call.refusal_text(f=url) == "f: its URL redirects to what is not fetched"


async def test_an_answer_other_than_200_is_no_file(calls, serve):
    service = Recorder()
    call = await calls(service)
    assert await call.refusal_text(f=await serve(Recorder(404))) == "f: its URL answered 404"
    assert await call.refusal_text(f="http://127.0.0.1:1/") == "f: its URL cannot be fetched"
    assert await call.refusal_text(f="http://") == "f: its URL cannot be fetched"
    assert service.seen == []


TOO_LARGE = "the files are larger than 1,000 bytes (upstream.upload_limit_bytes)"


async def test_files_above_the_limit_are_not_sent(calls, serve):
    service = Recorder()
    text = encode([{"uri": "a://b", "text": "x" * 600}])
    call = await calls(service, Resources({"a://b": text}), upload_limit_bytes=1000)
    assert await call.refusal_text(f=await serve(Recorder(200, b"x" * 1001))) == TOO_LARGE
    assert await call.refusal_text(FORM, f=["a://b", "a://b"]) == TOO_LARGE
    assert service.seen == []
    assert not (await call(BYTES, f=await serve(Recorder(200, b"x" * 1000)))).is_error


async def test_a_file_that_turns_out_too_large_breaks_the_request_off(calls, serve):
    call = await calls(Recorder(), upload_limit_bytes=1000)
    assert await call.refusal_text(f=await serve(serve_chunks)) == TOO_LARGE


async def test_a_stream_is_sent_once_and_buffered_files_are_sent_again(calls, serve):
    text = encode([{"uri": "a://b", "text": "held"}])
    service = Flaky([503, 200])
    call = await calls(service, Resources({"a://b": text}))
    result = await call(BYTES, "PUT", f=await serve(Recorder(200, b"stream")))
    assert (result.is_error, service.bodies) == (True, [b"stream"])
    service.bodies.clear()
    result = await call(BYTES, "PUT", f="a://b")
    assert (result.is_error, service.bodies) == (False, [b"held", b"held"])


async def test_nothing_of_the_caller_is_told_to_where_the_file_lies(calls, serve):
    seen = []

    async def files(scope, receive, send):
        seen.append(await read_seen(scope, receive))
        await respond(send, 200, b"x")

    call = await calls(Recorder())
    await call(BYTES, f=await serve(files))
    names = {name for name, _ in seen[0].headers}
    assert names == {"host", "accept", "accept-encoding", "user-agent"}


async def test_more_files_than_there_are_connections_to_spare_are_refused(calls, serve):
    service, files = Recorder(), Recorder(200, b"x")
    call, url = await calls(service), await serve(files)
    text = await call.refusal_text(FORM, f=[url] * (FETCHED_LIMIT + 1))
    assert text == f"more than {FETCHED_LIMIT} files that lie elsewhere"
    assert (service.seen, files.seen) == ([], [])


@pytest.mark.parametrize("body", [FORM, BYTES])
async def test_metadata_of_a_resource_cannot_forge_headers(calls, body):
    forged = {"uri": "a://b/c.png", "mimeType": "image/png\r\nX-Forged: 1", "text": "x"}
    service = Recorder()
    call = await calls(service, Resources({"a://b/c.png": encode([forged])}))
    result = await call(body, f="a://b/c.png")
    assert not result.is_error
    [seen] = service.seen
    assert b"X-Forged" not in seen.body
    assert seen.all("x-forged") == []
