"""An older Toolgate beside this one, at one database: what an update meets while gateways are
replaced one by one, and a downgrade afterwards.

`python .ci/side_by_side.py [REF]` builds the wheel of the commit or tag REF (the last tag, or else
the oldest commit with the migrations of this tree, which may change in place until the first
release) from git, migrates a new database with this tree, and serves from
it with both. Each has to see a tool that the other imported, and answer its calls.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GIT = shutil.which("git") or "git"
PATIENCE_S = 120
MIGRATIONS = ("registry/migrations", "registry/jobs/migrations")
LISTED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
SERVING = "JSON-RPC at "
TOOLGATE = (sys.executable, "-c", "from gateway.__main__ import main; main()")


def older() -> str:
    """The last tag; without one, the oldest commit whose migrations are those of this tree."""
    tag = git("describe", "--tags", "--abbrev=0")
    return tag or git("rev-list", "-1", "HEAD", "--", *MIGRATIONS)


def git(*words: str) -> str:
    done = subprocess.run([GIT, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def installed(ref: str, folder: Path) -> Path:
    """The packages of `ref`, built as a wheel; dependencies are those of this environment."""
    archive = subprocess.run([GIT, "archive", ref], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(folder / "tree", filter="data")
    pip = [sys.executable, "-m", "pip"]
    own = ["--quiet", "--no-deps", "--no-build-isolation"]
    target = folder / "installed"
    subprocess.run([*pip, "install", *own, "--target", target, folder / "tree"], check=True)
    return target


@contextmanager
def gateway(env: Mapping[str, str], folder: Path) -> Iterator[str]:
    """The URL of `/rpc` of a gateway that serves."""
    process = subprocess.Popen(
        [*TOOLGATE, "serve"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        for line in process.stdout or ():
            if SERVING in line:
                yield line.partition(SERVING)[2].split()[0].rstrip(".,")
                return
        sys.exit("side by side: a gateway ended before it served")
    finally:
        process.terminate()
        process.wait()


def ask(url: str, message: Mapping[str, object]) -> object:
    body = json.dumps(message).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
        return json.load(answer)


def sees(url: str, tool: str) -> None:
    """Wait until a gateway lists the tool."""
    until = time.monotonic() + PATIENCE_S
    while f'"{tool}"' not in json.dumps(ask(url, LISTED)):
        if time.monotonic() > until:
            sys.exit(f"side by side: {url} never listed {tool}")
        time.sleep(0.2)


def description(tool: str) -> str:
    operation = {"operationId": tool, "responses": {"200": {"description": "Done."}}}
    info = {"title": tool, "version": "1"}
    return json.dumps({"openapi": "3.1.0", "info": info, "paths": {f"/{tool}": {"get": operation}}})


def main(ref: str) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolgate-beside-")))
        folder.chmod(0o711)
        old_packages = installed(ref, folder)
        common = {
            **os.environ,
            "TOOLGATE_DATABASE__DATA_DIR": str(folder / "database"),
            "TOOLGATE_SERVER__PORT": "0",
            "TOOLGATE_EMBEDDING__PROVIDER": "disabled",
        }
        new = {**common, "PYTHONPATH": str(ROOT)}
        old = {**common, "PYTHONPATH": str(old_packages)}
        run(new, folder, "migrate")
        run(old, folder, "migrate", "--check")
        url = stack.enter_context(gateway(new, folder))
        beside = stack.enter_context(gateway(old, folder))
        for env, tool in ((new, "fromNew"), (old, "fromOld")):
            (folder / f"{tool}.json").write_text(description(tool))
            base = ["--base-url", "http://127.0.0.1:9"]
            run(env, folder, "import", "openapi", f"{tool}.json", "--name", tool.lower(), *base)
            for one in (url, beside):
                sees(one, tool)
                ask(one, {**LISTED, "method": tool})
    print(f"side by side: this tree and {ref} served from one database")  # noqa: T201


def run(env: Mapping[str, str], folder: Path, *words: str) -> None:
    done = subprocess.run([*TOOLGATE, *words], cwd=folder, env=env, check=False)
    if done.returncode != 0:
        sys.exit(f"side by side: toolgate {' '.join(words)} failed ({done.returncode})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else older())
