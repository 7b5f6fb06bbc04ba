"""Files from git, URLs and S3: what is fetched, and what is refused."""

import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server

import anyio
import pytest
from dulwich.objects import Blob, Commit, Tree
from dulwich.refs import Ref
from dulwich.repo import MemoryRepo
from dulwich.server import DictBackend
from dulwich.web import make_wsgi_chain

from gateway.wings.documents.reading.git import git_files
from gateway.wings.documents.reading.process_pool import ReadingWorkers
from gateway.wings.documents.reading.reader_messages import GitFetch, GitHead
from gateway.wings.documents.reading.reading_limits import ReadingLimits, ReadingRefused
from gateway.wings.documents.reading.source_files import LeftOut, SourceFile, WantedFiles
from gateway.wings.documents.reading.url_and_s3_files import (
    Bucket,
    FetchOptions,
    bucket_files,
    url_file,
)
from tests.servers.tls import Authority

pytestmark = pytest.mark.anyio
PRIVATE = FetchOptions(private_networks=True)
WHO = b"A <a@example.com>"


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve_wsgi(app: Any, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The address of a WSGI application on loopback."""
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def commit_files(repository: MemoryRepo, files: dict[bytes, tuple[int, bytes]]) -> None:
    """Commit files, in one directory or one below it, to the branch main."""
    trees: dict[bytes, Tree] = {b"": Tree()}
    for path, (mode, data) in files.items():
        above, _, name = path.rpartition(b"/")
        blob = Blob.from_string(data)
        repository.object_store.add_object(blob)
        trees.setdefault(above, Tree()).add(name, mode, blob.id)
    root = trees.pop(b"")
    for name, tree in trees.items():
        repository.object_store.add_object(tree)
        root.add(name, 0o40000, tree.id)
    commit_tree(repository, root)


def commit_nested_tree(repository: MemoryRepo, depth: int) -> None:
    """Commit a tree that has 8 of one tree below, and so on: links at 8 ** depth paths."""
    blob = Blob.from_string(b"target")
    repository.object_store.add_object(blob)
    mode, id_ = 0o120000, blob.id
    for _ in range(depth):
        tree = Tree()
        for name in b"abcdefgh":
            tree.add(bytes([name]), mode, id_)
        repository.object_store.add_object(tree)
        mode, id_ = 0o40000, tree.id
    commit_tree(repository, tree)


def commit_tree(repository: MemoryRepo, root: Tree) -> None:
    repository.object_store.add_object(root)
    commit = Commit()
    commit.tree = root.id
    commit.author = commit.committer = WHO
    commit.author_time = commit.commit_time = 0
    commit.author_timezone = commit.commit_timezone = 0
    commit.message = b"change"
    repository.object_store.add_object(commit)
    repository.refs[b"refs/heads/main"] = commit.id  # type: ignore[index]
    repository.refs.set_symbolic_ref(b"HEAD", b"refs/heads/main")  # type: ignore[arg-type]


FILES = {
    b"README.md": (0o100644, b"# Project"),
    b"src/a.py": (0o100644, b"def f(): pass"),
    b"src/model.bin": (0o100644, b"version https://git-lfs.github.com/spec/v1\noid x\n"),
    b"link": (0o120000, b"/etc/passwd"),
    b".gitattributes": (0o100644, b"*.py filter=evil\n"),
}


@dataclass
class GitServer:
    url: str
    repository: MemoryRepo
    authorized: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    folder = tmp_path_factory.mktemp("git")
    authority = Authority(folder)
    repository, empty, links = MemoryRepo(), MemoryRepo(), MemoryRepo()
    commit_files(repository, FILES)
    commit_nested_tree(links, 7)
    repositories = {"/project": repository, "/empty": empty, "/links": links}
    chain = make_wsgi_chain(DictBackend(repositories))
    server = GitServer("", repository)

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        server.authorized.append(environ.get("HTTP_AUTHORIZATION", ""))
        if environ["PATH_INFO"].startswith("/away"):
            start_response("302 Found", [("Location", "http://127.0.0.1:1/info/refs")])
            return []
        if environ["PATH_INFO"].startswith("/moved"):
            away = server.url.replace("127.0.0.1", "localhost")
            query = f"info/refs?{environ['QUERY_STRING']}"
            start_response("302 Found", [("Location", f"{away}/project/{query}")])
            return []
        if environ["PATH_INFO"].startswith("/dumb"):
            head = server.repository.refs[Ref(b"refs/heads/main")]
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [head + b"\trefs/heads/main\n"]
        if environ["PATH_INFO"].startswith("/locked"):
            start_response("401 Unauthorized", [("WWW-Authenticate", "Basic")])
            return []
        return chain(environ, start_response)

    with pytest.MonkeyPatch.context() as patch, serve_wsgi(app, authority.sign("server")) as url:
        patch.setenv("SSL_CERT_FILE", str(authority.file))
        server.url = url
        yield server
    repository.close()
    empty.close()
    links.close()


def task(git: GitServer, path: str = "/project", **changes: Any) -> GitFetch:
    return GitFetch(git.url + path, **{"private_networks": True, **changes})


def test_files_of_a_repository_are_read_from_its_objects(git: GitServer) -> None:
    head, *found = git_files(task(git, user="me", password="secret"))
    assert isinstance(head, GitHead)
    assert [one.path for one in found if isinstance(one, SourceFile)] == [
        ".gitattributes", "README.md", "src/a.py",
    ]  # fmt: skip
    assert {one.path: one.reason for one in found if isinstance(one, LeftOut)} == {
        "link": "it is a link", "src/model.bin": "it is a pointer of Git LFS",
    }  # fmt: skip
    assert git.authorized[-1].startswith("Basic ")


def test_submodules_are_left_out_and_not_fetched(git: GitServer) -> None:
    """Submodules are left out and not fetched (F1.11)."""
    modules = b'[submodule "%s"]\n\tpath = %s\n\turl = %s\n'
    urls = (b"ext::sh -c id", b"file:///etc", b"../locked", git.url.encode() + b"/links")
    tree, described = Tree(), b""
    for number, url in enumerate(urls):
        name = b"module%d" % number
        described += modules % (name, name, url)
        tree.add(name, 0o160000, b"%040d" % number)  # of a commit that is not in the repository
    for name, data in ((b"README.md", b"# Project"), (b".gitmodules", described)):
        blob = Blob.from_string(data)
        git.repository.object_store.add_object(blob)
        tree.add(name, 0o100644, blob.id)
    commit_tree(git.repository, tree)
    asked = len(git.authorized)
    _, *found = git_files(task(git))
    commit_files(git.repository, FILES)
    assert len(git.authorized) - asked == 2, "for its refs and its objects"
    read = {one.path: one.data for one in found if isinstance(one, SourceFile)}
    assert read == {".gitmodules": described, "README.md": b"# Project"}
    left_out = [(one.path, one.reason) for one in found if isinstance(one, LeftOut)]
    assert left_out == [(f"module{number}", "it is a submodule") for number in range(len(urls))]


def test_blobs_that_are_known_are_not_handed_over(git: GitServer) -> None:
    known = {one.path: one.id for one in git_files(task(git)) if isinstance(one, SourceFile)}
    commit_files(git.repository, {**FILES, b"README.md": (0o100644, b"# New")})  # as a force-push
    found = git_files(task(git, ref="main", files=WantedFiles(content_ids=known)))
    changed = [one.path for one in found if isinstance(one, SourceFile) and one.data is not None]
    commit_files(git.repository, FILES)
    assert changed == ["README.md"]


@pytest.mark.parametrize(
    ("path", "changes", "reason"),
    [
        ("/empty", {}, "empty"),
        ("/none", {}, "no such repository"),
        ("/locked", {}, "needs other credentials"),
        ("/project", {"ref": "other"}, "no branch or tag 'other'"),
        (
            "/project",
            {"private_networks": False},
            "refused unless knowledge.private_networks is true",
        ),
        ("/away", {}, "cannot be fetched"),
        ("/moved", {"password": "secret"}, "another host"),
        ("/dumb", {"ref": "main"}, "smart protocol"),
        ("/project", {"files": WantedFiles(limits=ReadingLimits(source_bytes=50))}, "larger than"),
        ("/project", {"files": WantedFiles(limits=ReadingLimits(files=1))}, "more than 1 files"),
        ("/links", {"files": WantedFiles(limits=ReadingLimits(files=99))}, "more than 99 files"),
    ],
)
def test_repositories_that_are_not_read(
    git: GitServer, path: str, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ReadingRefused, match=reason):
        list(git_files(task(git, path, **changes)))


@pytest.mark.parametrize(
    "url",
    ["ext::sh -c id", "file:///etc", "ssh://host/x", "git@host:x", "http://host/x", "/tmp/x",
     "https://", "https://me:secret@host/x"],
)  # fmt: skip
def test_urls_that_are_no_repository(url: str) -> None:
    with pytest.raises(ReadingRefused) as raised:
        list(git_files(GitFetch(url)))
    assert "secret@" not in str(raised.value)


async def test_a_repository_is_read_in_a_process(git: GitServer) -> None:
    workers = ReadingWorkers(1)
    with anyio.fail_after(90):
        async with workers.files(task(git), 60.0) as answers:
            found = [one async for one in answers]
    assert [one.path for one in found if isinstance(one, SourceFile)][-1] == "src/a.py"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


async def test_a_repository_that_is_not_read_to_its_end_leaves_no_files(
    git: GitServer, folder: Path
) -> None:
    with anyio.fail_after(90):
        async with ReadingWorkers(1).files(task(git), 60.0) as answers:
            await anext(answers)
            [mine] = folder.iterdir()
            assert mine.name.startswith("toolgate-reading-")
    assert list(folder.iterdir()) == []


async def test_so_many_repositories_are_read_at_once(git: GitServer) -> None:
    workers, reading, most = ReadingWorkers(1), 0, 0

    async def read() -> None:
        nonlocal reading, most
        async with workers.files(task(git), 60.0) as answers:
            reading += 1
            most = max(most, reading)
            async for _ in answers:
                pass
            reading -= 1

    with anyio.fail_after(90):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(read)
    assert most == 1


KEYS = {"docs/a.md": b"# A", "docs/b c.md": b"# B", "docs/../evil": b"x", "other.md": b"x"}


@dataclass
class Web:
    url: str
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    """A web server, and a bucket of two keys a listing."""
    server = Web("")

    def listing(query: dict[str, list[str]]) -> bytes:
        keys = [key for key in sorted(KEYS) if key.startswith(query.get("prefix", [""])[0])]
        at = int(query.get("continuation-token", ["0"])[0])
        contents = "".join(
            f"<Contents><Key>{key.replace(' ', '+')}</Key><ETag>&quot;{len(key)}&quot;</ETag>"
            f"<Size>{len(KEYS[key]) - 1}</Size></Contents>"
            for key in keys[at : at + 2]
        )
        more = at + 2 < len(keys)
        return (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{contents}"
            f"<NextContinuationToken>{at + 2}</NextContinuationToken></ListBucketResult>"
        ).encode()

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        path, query = environ["PATH_INFO"], parse_qs(environ["QUERY_STRING"])
        server.asked.append(environ["QUERY_STRING"])
        if path == "/away":
            start_response("302 Found", [("Location", "http://[::ffff:169.254.169.254]/latest")])
            return []
        if query.get("X-Amz-Credential", ["expired"])[0].startswith("expired"):
            start_response("403 Forbidden", [])
            return [b"<Error><Code>ExpiredToken</Code></Error>"]
        body = listing(query) if path.rstrip("/") == "/bucket" else KEYS[path[8:]]
        start_response("200 OK", [])
        return [body]

    with serve_wsgi(app) as url:
        server.url = url
        yield server


def bucket(web: Web, **changes: Any) -> Bucket:
    given = {"endpoint": web.url, "key_id": "valid", "secret": "s3cret", "prefix": "docs/"}
    return Bucket("bucket", **{**given, **changes})


async def collect_files(files: AsyncIterator[Any]) -> list[Any]:
    with anyio.fail_after(60):
        return [one async for one in files]


async def test_files_of_a_bucket(web: Web) -> None:
    files = await collect_files(bucket_files(bucket(web), PRIVATE, WantedFiles()))
    assert [(one.path, one.data) for one in files if isinstance(one, SourceFile)] == [
        ("docs/a.md", b"# A"), ("docs/b c.md", b"# B"),
    ]  # fmt: skip
    assert [one.path for one in files if isinstance(one, LeftOut)] == ["docs/../evil"]
    assert all("s3cret" not in query for query in web.asked)
    known = {one.path: one.id for one in files if isinstance(one, SourceFile)}
    again = await collect_files(bucket_files(bucket(web), PRIVATE, WantedFiles(content_ids=known)))
    assert [one.data for one in again if isinstance(one, SourceFile)] == [None, None]


@pytest.mark.parametrize(
    ("changes", "fetching", "reason"),
    [
        ({"key_id": "expired"}, PRIVATE, "answered 403"),
        ({"key_id": ""}, PRIVATE, "answered 403"),
        ({}, FetchOptions(), "not a public address"),
        ({"endpoint": "no url"}, PRIVATE, "cannot be read"),
    ],
)
async def test_buckets_that_are_not_read(
    web: Web, changes: dict[str, Any], fetching: FetchOptions, reason: str
) -> None:
    with pytest.raises(ReadingRefused, match=reason) as raised:
        await collect_files(bucket_files(bucket(web, **changes), fetching, WantedFiles()))
    assert "Signature" not in str(raised.value)


async def test_a_bucket_of_too_many_files(web: Web) -> None:
    wanted = WantedFiles(limits=ReadingLimits(files=1))
    with pytest.raises(ReadingRefused, match="more than 1 files"):
        await collect_files(bucket_files(bucket(web), PRIVATE, wanted))


async def test_a_listing_without_end_is_refused(web: Web) -> None:
    wanted = WantedFiles(limits=ReadingLimits(listings=1))
    with pytest.raises(ReadingRefused, match="more than 1 pages"):
        await collect_files(bucket_files(bucket(web), PRIVATE, wanted))


async def test_received_bytes_of_a_bucket_are_counted(web: Web) -> None:
    """Its listing states one byte less for each."""
    wanted = WantedFiles(limits=ReadingLimits(source_bytes=5))
    with pytest.raises(ReadingRefused, match="larger than 5 bytes"):
        await collect_files(bucket_files(bucket(web), PRIVATE, wanted))


async def test_the_names_of_a_bucket_are_selected_outside_of_the_event_loop(web: Web) -> None:
    threads = set()

    class Wanted(WantedFiles, frozen=True):
        def selects(self, path: str) -> bool:
            threads.add(threading.get_ident())
            return super().selects(path)

    await collect_files(bucket_files(bucket(web), PRIVATE, Wanted()))
    assert threads
    assert threading.get_ident() not in threads


async def test_a_file_at_a_url(web: Web) -> None:
    url = f"{web.url}/bucket/docs/a.md?X-Amz-Credential=valid"
    file = (await url_file(url, PRIVATE, WantedFiles())).file
    assert file is not None
    assert (file.path, file.data) == ("127.0.0.1/bucket/docs/a.md", b"# A")
    assert (urlsplit(web.url).hostname or "") in file.path


@pytest.mark.parametrize(
    ("path", "fetching", "limits", "reason"),
    [
        ("/bucket/docs/a.md", FetchOptions(), ReadingLimits(), "not a public address"),
        ("/bucket/docs/a.md?token=hidden", PRIVATE, ReadingLimits(), "answered 403"),
        (
            "/bucket?X-Amz-Credential=valid",
            PRIVATE,
            ReadingLimits(container_bytes=9),
            "larger than",
        ),
    ],
)
async def test_urls_that_are_not_read(
    web: Web, path: str, fetching: FetchOptions, limits: ReadingLimits, reason: str
) -> None:
    with pytest.raises(ReadingRefused, match=reason) as raised:
        await url_file(web.url + path, fetching, WantedFiles(limits=limits))
    assert "hidden" not in str(raised.value)
    assert "imports.document" not in str(raised.value)


@pytest.mark.parametrize("url", ["ftp://host/x", "file:///etc/passwd", "http://me:secret@host/"])
async def test_urls_of_other_kinds(url: str) -> None:
    with pytest.raises(ReadingRefused, match="expected an http or https URL"):
        await url_file(url, PRIVATE, WantedFiles())


async def test_a_private_url_is_refused_by_the_setting_that_decides() -> None:
    """The refusal of a wing's URL names the setting of the wings, once (mending 41)."""
    with pytest.raises(ReadingRefused) as refused:
        await url_file("http://127.0.0.1:9/x.md?key=k", FetchOptions(), WantedFiles())
    assert str(refused.value) == (
        "127.0.0.1 is not a public address; refused unless knowledge.private_networks is true"
    )
