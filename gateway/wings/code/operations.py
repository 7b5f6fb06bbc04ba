"""`run_code` and `run_code_writing`: programs over tools.

Two tools, so that clients and rules can allow the one that reads without the other. What a program
may do inside is the same as what its caller may: see `run_calls`.
"""

from collections.abc import Sequence
from functools import partial

from config.code import CodeSettings
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import invalid
from gateway.sandbox.program_process import ProgramLanguage, javascript_engine
from gateway.wings.code.program_pool import ProgramPool
from gateway.wings.code.program_runner import Runner
from gateway.wings.code.requests_and_views import ProgramView, RunList, RunProgram
from gateway.wings.code.stored_runs import StoredProgram
from gateway.wings.interface import WingParts
from schemas.tool import Annotations

READ, WRITE = "code:read", "code:write"
RUNS = 100  # in a list
DETAILS = """Write Python (standard library) that calls tools: tools.NAME(argument=value),
tools.call("exact-name", {...}), together: tools.all([tools.NAME(id=i) for i in ids]), pages:
tools.pages(tools.NAME, limit=20, ...); await works. tools.search("text") finds tools,
tools.describe("NAME") shows arguments and results, tools.read(uri) gives a resource. Calls return
the structured answer, else text, and raise ToolError (Denied, Invalid, NotFound, ...). The last
expression, `return` or result(x) is the `result`: only what you need; print writes `output`. A call
to be approved pauses the run: `run` (its id) instead of `code` waits for its end, `cancel` ends it.
`files`: URIs for the program; `time_s`, `calls`: lower limits. For a single call, call the tool
itself."""
JAVASCRIPT = """With language "javascript" the same returns promises: await
tools.NAME({argument: value}), tools.pages(tools.NAME, {argument: value}, {limit: 20})."""


class CodeOperations:
    def __init__(self, parts: WingParts, pool: ProgramPool) -> None:
        self._settings: CodeSettings = parts.settings
        self.runner = Runner(parts, pool.open)

    @property
    def operations(self) -> Sequence[Operation]:
        reading = Operation(
            "code_run", "POST", "/run",
            "Run a program that calls tools which read, instead of many calls, a loop or a join.",
            READ, partial(self._run, writes=False), ProgramView, body=RunProgram,
            hints=Annotations(read_only_hint=True, open_world_hint=True), waits=True,
            brief=True, problems=(429,), tool="run_code", details=self._details, job=AsJob(),
        )  # fmt: skip
        listing = Operation(
            "code_list_runs", "GET", "/runs",
            "List your runs of programs that wait, or go on behind a pause or a failure.",
            READ, self._list, RunList, brief=True,
        )  # fmt: skip
        if self._settings.writes == "never":
            return (reading, listing)
        writing = Operation(
            "code_run_writing", "POST", "/run-writing",
            "Run a program as run_code does, which may also call tools that change something.",
            WRITE, partial(self._run, writes=True), ProgramView, body=RunProgram,
            hints=Annotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
            waits=True, brief=True, problems=(429,), tool="run_code_writing", job=AsJob(),
        )  # fmt: skip
        return (reading, writing, listing)

    @property
    def _details(self) -> str:
        parts = {"python": DETAILS, "javascript": JAVASCRIPT}
        return "\n".join(parts[language] for language in languages_of(self._settings))

    async def _list(self, request: OperationInput) -> RunList:
        return RunList(tuple(await self.runner.stored.all(*request.principal.key, RUNS)))

    async def _run(self, request: OperationInput, *, writes: bool) -> ProgramView:
        body, settings, context = request.body, self._settings, request.context
        if context is None:
            raise invalid("Expected a caller.")
        if context.run is not None and context.run.code:
            raise invalid("A program cannot run a program.")
        if bool(body.code) == bool(body.run):
            raise invalid("Expected the code of a program, or the id of a run.")
        if body.cancel and not body.run:
            raise invalid("cancel: expected the id of a run, too.")
        if len(body.code.encode()) > settings.source_bytes:
            text = f"code: expected at most {settings.source_bytes} bytes (code.source_bytes)"
            raise invalid(text)
        if body.language not in (languages := languages_of(self._settings)):
            raise invalid(
                f"language: expected {' or '.join(languages)} (code.languages); javascript needs "
                "the package quickjs-ng, as `pip install toolgate[javascript]` installs it"
            )
        if body.cancel:
            return await self.runner.cancel(request, context, body.run, writes=writes)
        if body.run:
            return await self.runner.follow(request, context, body.run, writes=writes)
        most, time_s = min(body.calls or settings.calls, settings.calls), body.time_s
        program = StoredProgram(
            body.code,
            body.language,
            writes,
            most,
            time_s or max(settings.wall_s, settings.job_s),
            files=body.files,
        )
        return await self.runner.begin(request, context, program)


def languages_of(settings: CodeSettings) -> Sequence[ProgramLanguage]:
    """Languages of the settings that can be run here."""
    has_engine = javascript_engine() is not None
    return [name for name in settings.languages if name != "javascript" or has_engine]
