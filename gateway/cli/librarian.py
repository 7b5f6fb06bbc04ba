"""`toolgate librarian`: commands beside those of the operations of the wing. Everything goes
through the REST API of a running gateway."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from xml.sax.saxutils import escape, quoteattr

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import FAILED, fail
from gateway.cli.common.output import print_json
from gateway.cli.common.settings import settings_option
from gateway.cli.knowledge import upload_files
from gateway.cli.running.client import AS_JOB, RunningGateway, gateway_options, running_gateway
from gateway.cli.running.jobs import finish, wait_for_job

ROOT = "/librarian/v1"
NAMESPACE = "https://xml-pipeline.org/ns/librarian/v1"
PAGE = 500
HOSTS = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "git.sr.ht")
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@click.command("add")
@click.argument("collection")
@click.argument("location")
@click.option(
    "--type", "type_", type=click.Choice(["git", "url", "s3"]), help="What a URL leads to."
)
@click.option("--ref", default="", help="Branch or tag of git.")
@click.option("--filter", "filters", multiple=True, help="Pattern of .gitignore; repeatable.")
@click.option("--below", default="", help="Folder of the documents in the collection.")
@click.option(
    "--every", "every_s", type=click.IntRange(0), default=0, help="Seconds of a schedule."
)
@click.option("--webhook", is_flag=True, help="Have a signed webhook read it again.")
@gateway_options(key_required=False)
@settings_option
def add(
    settings: Settings,
    *,
    collection: str,
    location: str,
    key_file: IO[str] | None,
    url: str | None,
    type_: str | None,
    filters: tuple[str, ...],
    **more: Any,
) -> None:
    """Fill a collection from a directory, or have it follow a git branch, URL or bucket.

    Files of a directory are sent once. A URL is read, and read again with --every or --webhook; the
    secret of the webhook is printed once.
    """
    path, gateway = Path(location), running_gateway(settings, ROOT, url=url, key_file=key_file)
    if "://" not in location:
        if not path.exists():
            fail(f"{location}: expected a URL, or a file or directory that is there")
        report = upload_files(gateway, [path], collection)
        print_json(report)
        if report["failed"]:
            raise SystemExit(FAILED)
        return
    place = {"type": type_ or kind_of(location), "location": location, "filter": filters}
    finish(run(_add_source(gateway, {"collection": collection, **place, **more})))


async def _add_source(gateway: RunningGateway, arguments: Mapping[str, Any]) -> Any:
    """The job that reads the source, after its end."""
    added = (await gateway.call("librarian_add_source", arguments)).value
    print_json(added)
    refresh = {"source": added["source"]["id"], AS_JOB: "true"}
    answer = await gateway.call("librarian_refresh", refresh)
    if not answer.is_job:  # the gateway runs no jobs
        return {"state": "succeeded", "result": answer.value}
    names = ("librarian_get_job", "librarian_cancel_job")
    return await wait_for_job(gateway, answer.value["job"], cancels=True, names=names)


def kind_of(location: str) -> str:
    """Kind of the content of a URL, guessed from its text."""
    parts = urlsplit(location)
    if parts.scheme == "s3":
        return "s3"
    segments = parts.path.strip("/").split("/")
    is_project = parts.hostname in HOSTS and len(segments) == 2  # owner and repository
    return "git" if parts.path.endswith(".git") or is_project else "url"


@click.command("ask")
@click.argument("collection")
@click.argument("question")
@gateway_options(key_required=False)
@settings_option
def ask(
    settings: Settings,
    *,
    collection: str,
    question: str,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Answer a question from a collection, with the lines that it is taken from.

    \b
    Example:
      toolgate librarian ask docs "Where is the port set?" --key-file my.key
    """
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)
    query = {"collection": collection, "question": question}
    print_json(run(gateway.call("librarian_query", query)).value)


@click.command("export")
@click.argument("collection")
@click.option("--output", "-o", type=click.File("wb"), default="-", help="File  [default: stdout].")
@click.option("--embeddings", is_flag=True, help="With the vectors of those that have one.")
@gateway_options(key_required=False)
@settings_option
def export(
    settings: Settings,
    *,
    collection: str,
    output: IO[bytes],
    embeddings: bool,
    key_file: IO[str] | None,
    url: str | None,
) -> None:
    """Export the chunks of a collection as XML."""
    gateway = running_gateway(settings, ROOT, url=url, key_file=key_file)

    async def write() -> None:
        output.write(
            f'<?xml version="1.0" encoding="UTF-8"?>\n<chunks xmlns="{NAMESPACE}">\n'.encode()
        )
        async for chunk in _chunks(gateway, collection, embeddings):
            output.write(xml_chunk(chunk) + b"\n")
        output.write(b"</chunks>\n")

    run(write())


async def _chunks(
    gateway: RunningGateway, collection: str, embeddings: bool
) -> AsyncIterator[Mapping[str, Any]]:
    query: dict[str, Any] = {"collection": collection, "limit": PAGE, "embeddings": embeddings}
    while True:
        page = (await gateway.call("librarian_chunks", query)).value
        for chunk in page["chunks"]:
            yield chunk
        if not page.get("next"):
            return
        query["after"] = page["next"]


def xml_chunk(chunk: Mapping[str, Any]) -> bytes:
    """A chunk as an element of `export.xsd`. Characters that XML has not become U+FFFD."""
    first, last = chunk["lines"]
    source = (
        _element("repo", chunk["collection"])
        + _element("path", chunk["path"])
        + _element("lines", "", start=first, end=last)
    )
    metadata = "".join(_element(name, text) for name, text in _metadata(chunk).items() if text)
    inner = (
        _element("id", chunk["id"])
        + _wrap_element("source", source, version=chunk["version"])
        + _element("type", chunk["kind"])
        + _wrap_element("metadata", metadata)
        + _element("content", chunk["text"])
    )
    if chunk.get("embedding"):
        vector = "[" + ", ".join(map(str, chunk["embedding"])) + "]"
        inner += _wrap_element("embedding", vector, model=chunk["model"])
    return _wrap_element("chunk", inner).encode()


def _metadata(chunk: Mapping[str, Any]) -> dict[str, str]:
    symbol, signature = chunk.get("symbol", ""), chunk.get("signature", "")
    params = signature.partition("(")[2].rpartition(")")[0]
    scope = symbol if chunk["kind"] == "class" else symbol.rpartition(".")[0]
    return {
        "class": scope,
        "symbol": symbol,
        "visibility": chunk.get("visibility", ""),
        "params": params,
        "header": chunk.get("header", ""),
    }


def _element(name: str, text: str, **attributes: int | str) -> str:
    return _wrap_element(name, escape(_plain(text), {"\r": "&#13;"}), **attributes)


def _wrap_element(name: str, inner: str, **attributes: int | str) -> str:
    attribute_text = "".join(f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
    return f"<{name}{attribute_text}>{inner}</{name}>"


def _plain(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
