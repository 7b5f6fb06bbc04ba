"""Tiny packages of npm and PyPI, images and bundles, served at a loopback registry."""

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.mcp_registry import PublishedServers

JSON = {"Content-Type": "application/json"}
MANIFEST = b'{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}'
IMAGE_DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def npm_tarball(name: str, script: str, **members: Any) -> bytes:
    package = {"name": name, "version": "1.0.0", "bin": "run.js", **members}
    files = {"package.json": json.dumps(package), "run.js": f"#!/usr/bin/env node\n{script}\n"}
    return _tarball("package", files)


def _tarball(folder: str, files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"{folder}/{path}")
            info.size, info.mode = len(text.encode()), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def integrity_of(tarball: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()


def publish_npm(
    published: PublishedServers, url: str, name: str, tarball: bytes, **members: Any
) -> str:
    """The integrity of the package that is served."""
    integrity = integrity_of(tarball)
    dist = {"integrity": integrity, "tarball": f"{url}/files/{name}.tgz"}
    version = {"name": name, "version": "1.0.0", "bin": {name: "run.js"}, "dist": dist, **members}
    document = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    published.files |= {
        f"/{name}": (200, json.dumps(document).encode(), JSON),
        f"/{name}/1.0.0": (200, json.dumps(version).encode(), JSON),
        f"/files/{name}.tgz": (200, tarball, {}),
    }
    return integrity


def wheel(name: str, code: str, *requires: str) -> bytes:
    info = f"{name}-1.0.0.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return buffer.getvalue()


def sdist(name: str, mark: Path) -> bytes:
    """A source distribution with a build backend of its own, which leaves a mark."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbackend-path = ["."]\n'
        'build-backend = "backend"\n',
        "backend.py": f"open({str(mark)!r}, 'w').close()\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n",
    }
    return _tarball(f"{name}-1.0.0", files)


def publish_wheel(published: PublishedServers, name: str, data: bytes) -> str:
    """The SHA-256 of the wheel that is served."""
    digest = hashlib.sha256(data).hexdigest()
    file = f"{name}-1.0.0-py3-none-any.whl"
    page = f'<!DOCTYPE html><a href="/files/{file}#sha256={digest}">{file}</a>'
    published.files |= {
        f"/simple/{name}/": (200, page.encode(), {"Content-Type": "text/html"}),
        f"/files/{file}": (200, data, {}),
    }
    return digest


def publish_image(published: PublishedServers, url: str, path: str, tag: str) -> None:
    """An image whose registry wants an anonymous token."""
    bearer = f'Bearer realm="{url}/token",service="images"'
    published.files |= {
        f"/v2/{path}/manifests/{tag}": (401, b"", {"WWW-Authenticate": bearer}),
        "/token": (200, b'{"token": "anonymous"}', JSON),
    }


def bundle(manifest: dict[str, Any], **files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for path, text in files.items():
            archive.writestr(path.replace("__", "/"), text)
    return buffer.getvalue()
