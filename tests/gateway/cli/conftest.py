"""The command line in the test's own process: `toolgate("tools", "list")`."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from config.settings import DatabaseSettings
from gateway.cli.main import cli
from tests.fixtures_gateway import pets

Toolgate = Callable[..., "Ran"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bare(folder: Path) -> Iterator[Toolgate]:
    """Runs commands that get no further than the settings."""

    def run(*args: str, stdin: str | None = None, **env: str) -> Ran:
        result = CliRunner().invoke(cli, args, stdin, env, prog_name="toolgate")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    before = logging.getLogger().handlers[:]
    yield run
    logging.getLogger().handlers[:] = before  # ours writes to a stream that is closed by now


@pytest.fixture
def toolgate(bare: Toolgate, database_settings: DatabaseSettings) -> Toolgate:
    """Runs commands on a database of the test's own."""

    def run(*args: str, stdin: str | None = None, **env: str) -> Ran:
        return bare(*args, stdin=stdin, TOOLGATE_DATABASE__URL=database_settings.url, **env)

    return run


@pytest.fixture
def description(folder: Path) -> Path:
    """`pets.json`, in the working directory."""
    path = folder / "pets.json"
    path.write_text(json.dumps(pets()))
    return path


@pytest.fixture
def with_pets(toolgate: Toolgate, description: Path) -> Toolgate:
    """Runs commands on a database that has the source `pets`."""
    ran = toolgate(
        "import", "openapi", "pets.json", "--name", "pets", "--base-url", "http://127.0.0.1:9"
    )
    assert ran.code == 0, ran.err
    return toolgate


@contextmanager
def answering(
    files: Mapping[str, bytes | Callable[[Any], Any]],
    otherwise: HTTPStatus = HTTPStatus.NOT_FOUND,
) -> Iterator[int]:
    """The port of a server that has these files, by path, and answers all else with a status.
    A file may be made of the JSON that is sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self, sent: bytes = b"null") -> None:
            file = files.get(self.path, b"")
            content = json.dumps(file(json.loads(sent))).encode() if callable(file) else file
            self.send_response(200 if self.path in files else otherwise)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
