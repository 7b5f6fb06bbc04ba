"""Files of a git repository, read from its objects: nothing is checked out, no hook, filter or
submodule is run. Run in a process of its own.

A branch is fetched over https alone, from public addresses unless private networks are allowed: the
address that is checked is the one that is connected to, also after a redirect.
"""

import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import urllib3
from dulwich.client import HttpGitClient, HTTPUnauthorized
from dulwich.errors import GitProtocolError, NotGitRepository
from dulwich.object_store import PackBasedObjectStore, iter_tree_contents
from dulwich.objects import Commit, ObjectID, Tag
from dulwich.refs import Ref
from dulwich.repo import Repo
from msgspec.structs import replace
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NewConnectionError

from gateway.wings.documents.reading.archives import safe_name
from gateway.wings.documents.reading.reader_messages import GitFetch, GitHead
from gateway.wings.documents.reading.reading_limits import GUARD, ReadingRefused
from gateway.wings.documents.reading.source_files import (
    Entry,
    LeftOut,
    SourceFile,
    WantedFiles,
    git_url,
)
from registry.documents.ssrf_protection import PrivateAddress, is_public

_LFS = b"version https://git-lfs.github.com/spec/"
_TIMEOUT_S = 60.0  # of a connection, and of each read from it
_DEPTH = 100  # of directories


def git_files(task: GitFetch) -> Iterator[GitHead | Entry]:
    """The commit and its files. Raises ReadingRefused."""
    task = replace(task, url=git_url(task.url))
    with tempfile.TemporaryDirectory(prefix="toolgate-git-") as folder:
        repository = Repo.init_bare(folder)
        try:
            commit = _fetch(repository, task)
            if commit is None:
                yield GitHead(task.files.state, unchanged=True)
                return
            yield GitHead(commit.id.decode())
            yield from _files(repository, commit, task.files)
        except HTTPUnauthorized as error:
            raise ReadingRefused("the repository needs other credentials") from error
        except NotGitRepository as error:
            raise ReadingRefused("there is no such repository, or it needs credentials") from error
        except (GitProtocolError, HTTPError, OSError, KeyError, ValueError) as error:
            raise ReadingRefused(f"the repository cannot be fetched: {_reason(error)}") from error
        finally:
            repository.close()


def _reason(error: Exception) -> str:
    """Reason of a failure without URLs: they may have been chosen by others."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PrivateAddress):
            return f"{cause}; refused unless {GUARD} is true"
        reason = getattr(cause, "reason", None)
        cause = reason if isinstance(reason, BaseException) else cause.__cause__
    return type(error).__name__


def _fetch(repository: Repo, task: GitFetch) -> Commit | None:
    """None: the branch is where it was."""
    client = HttpGitClient(
        task.url,
        pool_manager=_GuardedManager(task),
        username=task.user or None,
        password=task.password or None,
    )
    chosen: list[ObjectID] = []

    def wants(refs: Mapping[Ref, ObjectID | None], depth: int | None = None) -> list[ObjectID]:  # noqa: ARG001
        if client.dumb:  # what it sends is not counted
            raise ReadingRefused("the server does not speak the smart protocol of git")
        chosen.append(_choose_object(refs, task.ref))
        return [] if chosen[0].decode() == task.files.state else chosen

    budget_bytes = task.files.limits.source_bytes
    pack, commit, abort = repository.object_store.add_pack()

    def write(data: bytes) -> int:
        nonlocal budget_bytes
        budget_bytes -= len(data)
        if budget_bytes < 0:
            raise ReadingRefused("the repository is larger than is allowed")
        return pack.write(data)

    try:
        path = urllib3.util.parse_url(task.url).path or "/"
        client.fetch_pack(path, wants, repository.get_graph_walker(), write, depth=1)
    except BaseException:
        abort()
        raise
    if chosen[0].decode() == task.files.state:
        abort()
        return None
    commit()
    return _commit(repository, chosen[0])


def _choose_object(refs: Mapping[Ref, ObjectID | None], ref: str) -> ObjectID:
    """The object of a branch or tag, or of the default branch."""
    names = (f"refs/heads/{ref}", f"refs/tags/{ref}") if ref else ("HEAD",)
    for name in names:
        if (object_id := refs.get(Ref(name.encode()))) is not None:
            return object_id
    if not ref:
        raise ReadingRefused("the repository is empty")
    raise ReadingRefused(f"the repository has no branch or tag {ref[:100]!r}")


def _commit(repository: Repo, id_: ObjectID) -> Commit:
    target = repository[id_]
    while isinstance(target, Tag):  # an annotated one
        target = repository[target.object[1]]
    if not isinstance(target, Commit):
        raise ReadingRefused("the tag does not lead to a commit")
    return target


def _files(repository: Repo, commit: Commit, selection: WantedFiles) -> Iterator[Entry]:
    """The files of a commit; links and submodules are left out."""
    store, count, budget_bytes = repository.object_store, 0, selection.limits.source_bytes
    for entry in iter_tree_contents(store, commit.tree, max_depth=_DEPTH):
        raw = (entry.path or b"").decode("utf-8", "replace")
        path = safe_name(raw, selection.limits)
        if not path or entry.mode is None or entry.sha is None or not selection.selects(path):
            continue
        count += 1  # links too: a tree that stands in a tree many times has any number of paths
        if count > selection.limits.files:
            raise ReadingRefused(f"the repository has more than {selection.limits.files:,} files")
        if not stat.S_ISREG(entry.mode):
            kind = "a link" if stat.S_ISLNK(entry.mode) else "a submodule"
            yield LeftOut(path, f"it is {kind}")
            continue
        file = _blob(store, path, entry.sha, selection)
        budget_bytes -= len(file.data or b"") if isinstance(file, SourceFile) else 0
        if budget_bytes < 0:
            raise ReadingRefused(
                f"the files are larger than {selection.limits.source_bytes:,} bytes"
            )
        yield file


def _blob(store: PackBasedObjectStore, path: str, sha: ObjectID, selection: WantedFiles) -> Entry:
    id_ = f"git:{sha.decode()}"
    if selection.content_ids.get(path) == id_:
        return SourceFile(path, id_, None)
    _, data = store.get_raw(sha)
    if len(data) > selection.limits.container_bytes:
        reason = f"it is larger than {selection.limits.container_bytes:,} bytes"
        return LeftOut(path, reason, unread=True)
    if data.startswith(_LFS):
        return LeftOut(path, "it is a pointer of Git LFS", unread=True)
    return SourceFile(path, id_, data)


class _GuardedConnection(HTTPSConnection):
    """A connection to an address that was checked."""

    private_networks = False

    def _new_conn(self) -> socket.socket:
        try:
            return self._connect_guarded()
        except OSError as error:  # as PrivateAddress is
            raise NewConnectionError(self, "cannot connect") from error

    def _connect_guarded(self) -> socket.socket:
        """Connect to an address of the host. All have to be public."""
        addresses_found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in addresses_found]
        for address in addresses:
            if not self.private_networks and not is_public(address):
                raise PrivateAddress(self.host, address)
        failure = OSError(f"{self.host} has no address")
        for address in addresses:
            try:
                return socket.create_connection((address, self.port), _TIMEOUT_S)
            except OSError as error:
                failure = error
        raise failure


class _PrivateConnection(_GuardedConnection):
    private_networks = True


class _GuardedConnections(HTTPSConnectionPool):
    ConnectionCls = _GuardedConnection


class _PrivateConnections(HTTPSConnectionPool):
    ConnectionCls = _PrivateConnection


class _GuardedManager(urllib3.PoolManager):
    """Connections over https, to public addresses unless private networks are allowed; with
    credentials, to the host of the repository alone, also after a redirect."""

    def __init__(self, task: GitFetch) -> None:
        super().__init__(retries=urllib3.Retry(3, connect=0, read=0), timeout=_TIMEOUT_S)
        pool = _PrivateConnections if task.private_networks else _GuardedConnections
        self.pool_classes_by_scheme = {"https": pool}
        self._only = _origin(task.url) if task.password else None

    def urlopen(self, method: str, url: str, redirect: bool = True, **more: Any) -> Any:  # type: ignore[override]
        if self._only is not None and _origin(url) != self._only:
            raise ReadingRefused("the repository refers to another host")
        return super().urlopen(method, url, redirect, **more)


def _origin(url: str) -> tuple[str | None, str | None, int]:
    parts = urllib3.util.parse_url(url)
    return parts.scheme, parts.host, parts.port or 443
