"""One description through the importer, and what it makes of it through the mapping."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from config.load import load
from gateway.upstreams.graphql import upstream as graphql
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.rest.upstream import RequestTemplate
from registry.importers.drafts import ImportedDescription
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import Origins, find
from schemas.binding import GraphQLBinding, OpenAPIBinding
from schemas.errors import ImportRejected, InvalidParams
from tests.roundtrip.generate import arguments

CPU_LIMIT_S = 6.0  # a thousand tools, each tried at its import, take 2 to 3 on a busy machine
TIME = "time"  # where it went wrong that took too long
DRAFTS = 4  # of one mutant, whose mapping is tried
FIELDS = (
    ["id"],
    ["id", "name.x", "a.b.c"],
    [],
    ["__typename"],
    ["a} b {c"],
    [""],
    [".".join("a" * 99)],
)
SETTINGS = load(None, {"TOOLGATE_CONFIG": ""})


@dataclass(frozen=True, slots=True)
class Verdict:
    tools: int  # -1: refused as a whole
    cpu_s: float  # of the import
    wrong: str = ""  # what must not be; "" for nothing
    where: str = ""  # the last line of ours in the trace


def check(path: Path, r: Random) -> Verdict:
    begin = time.process_time()
    try:
        imported = asyncio.run(read(path))
    except ImportRejected:
        return _judge_time(-1, begin)
    except BaseException as crash:
        return _describe_crash("import", crash, time.process_time() - begin)
    verdict = _judge_time(len(imported.drafts), begin)
    return verdict if verdict.wrong else _map_drafts(imported, r, verdict)


async def read(path: Path) -> ImportedDescription:
    graph = path.suffix == ".graphql" or path.stem == "introspection"
    kind: Any = "graphql" if graph else "openapi"
    base = "http://127.0.0.1:9/" if kind == "graphql" else None
    spec = ImportSpec("mutant", str(path), base_url=base, kind=kind)
    found = await find(spec, SETTINGS.imports, Origins())
    return found.read()


def _judge_time(tools: int, begin: float) -> Verdict:
    """Processor time: a busy machine is not a slow importer."""
    cpu_s = time.process_time() - begin
    late = f"took {cpu_s:.1f} s of processor time" if cpu_s > CPU_LIMIT_S else ""
    return Verdict(tools, cpu_s, late, TIME if late else "")


def _map_drafts(imported: ImportedDescription, r: Random, verdict: Verdict) -> Verdict:
    for draft in r.sample(imported.drafts, min(DRAFTS, len(imported.drafts))):
        try:
            made = arguments(draft.input_schema, r, r.randrange(4))
        except (RecursionError, ValueError, ArithmeticError, TypeError, KeyError):
            continue  # of the generator, which is not under test
        if made is None:
            continue
        of_graphql = isinstance(draft.binding, GraphQLBinding)
        mapping: Any = graphql.build if of_graphql else _request
        if of_graphql and r.random() < 0.5:
            made["_fields"] = r.choice(FIELDS)
        try:
            mapping(draft.binding, made)
        except InvalidParams:
            continue
        except BaseException as crash:
            return _describe_crash(f"call of {draft.key} with {made!r:.300}", crash, verdict.cpu_s)
    return verdict


def _request(binding: OpenAPIBinding, made: dict[str, Any]) -> HttpRequest:
    return RequestTemplate(binding).request(made)


def _describe_crash(step: str, crash: BaseException, cpu_s: float) -> Verdict:
    frame, where = crash.__traceback__, ""
    while frame is not None:
        code = frame.tb_frame.f_code
        if "/site-packages/" not in code.co_filename:
            where = f"{Path(code.co_filename).name}:{frame.tb_lineno} {code.co_name}"
        frame = frame.tb_next
    return Verdict(-1, cpu_s, f"{step}: {crash!r:.300}", f"{type(crash).__name__} {where}")
