"""What a file is called, and what becomes of one that cannot be kept."""

from functools import partial
from typing import Any, cast

import pytest

from gateway.context import Principal
from gateway.http_client.http1 import Http1Request
from gateway.upstreams.http.downloads import NAME_LIMIT, Downloads, name_of
from gateway.upstreams.http.source_pools import UpstreamFailed
from schemas.errors import Unavailable
from tests.fixtures_servers import Serve
from tests.gateway.upstreams.conftest import GET, open_client, source
from tests.servers.rest import Recorder


class Response:
    """What `name_of` looks at: headers that no server would let a test send come in, too."""

    def __init__(self, disposition: str | None, path: str) -> None:
        self.headers = {} if disposition is None else {"Content-Disposition": disposition}
        self.request = Http1Request("GET", path, {})


@pytest.mark.parametrize(
    ("disposition", "path", "name"),
    [
        ('attachment; filename="a b.pdf"', "/x", "a b.pdf"),
        ("attachment; filename=a.pdf", "/x", "a.pdf"),
        ("inline; filename*=UTF-8''caf%C3%A9.pdf", "/x", "café.pdf"),
        ("attachment; filename=\"x.pdf\"; filename*=UTF-8''y.pdf", "/x", "y.pdf"),
        ('attachment; filename="../../etc/passwd"', "/x", "passwd"),
        ('attachment; filename="C:\\\\dir\\\\a.txt"', "/x", "a.txt"),
        ('attachment; filename=".."', "/x", "download"),
        ('attachment; filename=""', "/files/report.csv", "report.csv"),
        ("attachment", "/files/report%20one.csv?key=secret", "report one.csv"),
        (None, "/files/", "download"),
        (None, "/", "download"),
        ("filename*=nonsense''%FF", "/a.bin", "a.bin"),
        ("attachment; filename=\x00a\x7f.pdf", "/x", "a.pdf"),
        ("", "/" + "n" * 500, "n" * NAME_LIMIT),
    ],
)
def test_a_file_has_a_name_that_leads_nowhere(
    disposition: str | None, path: str, name: str
) -> None:
    assert name_of(cast("Any", Response(disposition, path))) == name


class Away:
    """What keeps answers, while it does not answer."""

    async def begin(self, *_about: Any) -> Any:
        raise Unavailable("The store does not answer; try again later")


@pytest.mark.anyio
async def test_an_unstorable_download_is_not_requested_again(serve: Serve) -> None:
    """`Unavailable` would say that nothing was done, and give back an approval."""
    service = Recorder(body=b"x" * 5000, media_type="image/png")
    downloads = Downloads(cast("Any", Away()), 1000, 10_000)
    reader = partial(downloads.read, Principal("ada", "t"), "id")
    async with open_client() as client:
        with pytest.raises(UpstreamFailed, match="answered more than can be kept now"):
            await client.send(source(await serve(service)), GET, reader)
    assert len(service.seen) == 1
