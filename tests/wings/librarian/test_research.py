"""Research: a model writes code, which asks the library and further models, within limits."""

import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import anyio
import pytest
from msgspec.structs import replace

from config.access import Guardrail
from gateway.app.wings import screening
from gateway.middleware.guardrails import Guardrails
from gateway.operations.job_declarations import Job, NoJob
from gateway.operations.problems import ProblemDetails
from gateway.sandbox.jailed_process import CodeLimits, SessionEnded
from gateway.sandbox.python_session import CodeSession
from gateway.wings.librarian.question_operations import WITHHELD, LessLimits
from gateway.wings.librarian.research import CLOCK, cells_of, final_of
from gateway.wings.librarian.research_runs import RunStore
from tests.fixtures_database import HOST, Cluster
from tests.recycling import Recycling
from tests.servers.provider import Answer, Asked
from tests.wings.identities import WingCaller
from tests.wings.librarian.rig import (
    SETTINGS,
    Librarian,
    blocks,
    librarian_settings,
    share_librarian,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="code is confined on Linux only"),
]

FILES = {
    "docs/ports.md": "# Ports\n\nThe gateway listens on port 8080.\nRedis listens on port 6380.\n",
    "src/server.py": "def serve(port=8080):\n    return listen(port)\n",
    "docs/other.md": "# Other\n\nNothing of interest stands here about ports.\n",
}
QUESTION = "On which port does Redis listen?"
FINAL = """FINAL("Redis listens on 6380.", findings=[{"claim": "Redis has a port", "path":
"docs/ports.md", "lines": [4, 4], "quote": "Redis listens on port 6380"}])"""
CITES = """FINAL('Redis has its own [docs/ports.md:4 "Redis listens on port 6380"].')"""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def library(cluster: Cluster, with_documents: Recycling) -> AsyncIterator[Librarian]:
    async with share_librarian(cluster, with_documents, FILES) as found:
        ann = found.caller(librarian_settings())
        await found.script(blocks("FINAL(1)"))
        if (await ann("research", question="port", strategy="recursive")).incomplete == "sandbox":
            pytest.skip("this machine does not let code be confined")
        yield found


async def run_research(library: Librarian, *codes: str, **changes: Any) -> Any:
    """The answer of a run whose model writes these blocks."""
    await library.script(blocks(*codes))
    arguments = {"question": QUESTION, "strategy": "recursive", **changes.pop("arguments", {})}
    ann = library.caller(librarian_settings(**changes), changes.pop("subject", "ann"))
    with anyio.fail_after(120):
        return await ann("research", **arguments)


def outputs(library: Librarian) -> str:
    """What the model was shown of its code's output, at last."""
    return all_outputs(library)[-1]


def all_outputs(library: Librarian) -> list[str]:
    """All of them, without the marks around what they print."""
    found = [one for one in library.prompts if one.startswith("Output:")]
    return [re.sub(r"\n/?<<[\w-]+>>(?=\n|$)", "", one) for one in found]


async def test_code_searches_reads_and_asks_and_the_answer_is_verified(
    library: Librarian,
) -> None:
    """Code searches reads and asks and the answer is verified (L14)."""
    found = await run_research(
        library,
        "hits = lib.search('Redis port', k=2)\n"
        "print(hits[0]['path'], lib.read('docs/ports.md', 4, 4), len(lib.files()))\n"
        "print([one['lines'] for one in lib.grep('port 6.')], lib.symbols('serve')[0]['path'])\n"
        "print(llm_query_batched(['a', 'b']), llm_query('c'), rlm_query_batched([]))\n"
        "print(len(context), lib.refs('listen')[0]['lines'], lib.neighbors('zzz'))\nSHOW_VARS()",
        CITES,
    )
    shown = outputs(library)
    assert "docs/ports.md Redis listens on port 6380.\n 3" in shown
    assert "[[4, 4]] src/server.py" in shown
    assert "['sub:a', 'sub:b'] sub:c []" in shown
    assert '{"hits": "list", "context": "str"}' in shown
    assert found.answer == "Redis has its own. [docs/ports.md:4]"
    assert found.confidence > 0.3
    assert found.spent.calls == 3
    assert (found.spent.iterations, found.incomplete) == (2, "")
    assert ["code", "docs/ports.md", 1, 4, 4] in await library.shown_texts()


async def test_run_traces_are_shown_only_to_their_owner(library: Librarian) -> None:
    """Run traces are shown only to their owner (L19)."""
    found = await run_research(library, "print(llm_query('x'))", FINAL)
    ann = library.caller(librarian_settings())
    run = await ann("get_run", run=found.run)
    assert [one.kind for one in run.steps] == [
        "begin",
        "model",
        "cell",
        "llm",
        "model",
        "cell",
    ] or {one.kind for one in run.steps} == {"begin", "model", "cell", "llm"}
    assert run.state == "completed"
    assert json.loads(bytes(run.result))["answer"] == found.answer
    assert (await ann("list_runs")).runs[0].run == found.run
    with pytest.raises(ProblemDetails, match="There is no run"):
        await library.caller(librarian_settings(), "bo")("get_run", run=found.run)
    again = await ann("research", question=QUESTION, run=found.run)
    assert again.answer == found.answer


HOSTILE = {
    "fork": "import os\nos.fork()",
    "a process": "import subprocess\nsubprocess.run(['/bin/true'])",
    "a socket": "import socket\nsocket.create_connection(('127.0.0.1', 80))",
    "a file": "open('/etc/passwd').read()",
    "a file of its own": "open('/tmp/x', 'w').write('x')",
    "1 GB": "print('x' * 10**9)",
    "an unknown name": "lib._ask('delete', 'docs/ports.md')",
    "wrong arguments": "lib.search(3, 'x')",
    "a name of the host": "lib._ask('__init__')",
    "a pattern without end": "lib.grep('(' * 5000)",
    "a document of others": "lib.read('docs/secret.md')",
    "too many prompts": "llm_query_batched(['x'] * 10_000)",
    "another model": "llm_query('x', model='gpt')",
}


async def test_hostile_code_gets_only_errors(library: Librarian) -> None:
    """Hostile code gets only errors (L14)."""
    tried = "\n".join(
        f"try:\n    exec({code!r})\n    print({name!r}, 'DONE')\n"
        f"except BaseException as error:\n    print({name!r}, type(error).__name__)"
        for name, code in HOSTILE.items()
    )
    found = await run_research(library, tried, FINAL, limits={"calls": 5})
    shown = outputs(library)
    assert "DONE" not in shown, shown
    assert all(name in shown for name in HOSTILE)
    assert found.spent.calls == 0


async def test_long_output_is_cut_and_host_names_are_restored(
    library: Librarian,
) -> None:
    """Long output is cut and host names are restored (L14)."""
    await run_research(
        library,
        "llm_query = lib = None\nprint('a' * 10**6, end='')\nprint('end')",
        "print(llm_query('x'), len(lib.files()))",
        FINAL,
    )
    first, second = all_outputs(library)
    assert len(first) < 21_000
    assert "characters left out" in first
    assert first.endswith("end\n")
    assert second == "Output:\nsub:x 3\n"


async def test_an_endless_block_is_ended_and_earlier_variables_survive(
    library: Librarian,
) -> None:
    """An endless block is ended and earlier variables survive (L14)."""
    found = await run_research(
        library,
        "kept = llm_query('once')",
        "while True: pass",
        "print(kept)",
        FINAL,
        research={"cell_s": 1.0},
    )
    assert any("The block was ended" in one for one in library.prompts)
    assert outputs(library) == "Output:\nsub:once\n"
    assert library.prompts.count("once") == 1
    assert found.incomplete == ""


async def test_concurrent_calls_share_one_ledger(library: Librarian) -> None:
    """Concurrent calls share one ledger (L14)."""
    asked = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    got = list(pool.map(lambda n: llm_query(f'p{n}'), range(30)))\n"
        "print(sum(one.startswith('sub') for one in got), sum('limit' in one for one in got))"
    )
    found = await run_research(library, asked, FINAL, limits={"calls": 7})
    assert outputs(library) == "Output:\n7 23\n"
    assert (found.spent.calls, found.incomplete) == (7, "calls")
    assert found.answer.startswith("Redis listens on 6380.")


async def test_code_that_keeps_asking_ends_the_run(library: Librarian) -> None:
    """Code that keeps asking ends the run (L16)."""
    asked = "answer['content'] = 'Perhaps [docs/ports.md:4 \"Redis listens on port\"]'"
    forever = "n = 0\nwhile True:\n    n += 1\n    llm_query(f'q{n}')"
    found = await run_research(library, asked, forever, limits={"calls": 2})
    assert found.incomplete == "calls"
    assert found.answer == "Perhaps [docs/ports.md:4]"
    assert found.spent.calls == 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"iterations": 2}, "iterations"),
        ({"tokens": 1000}, "tokens"),
        ({"cost": 1e-6}, "cost"),
        ({"lookups": 1}, "lookups"),
    ],
)
async def test_each_limit_leaves_the_best_answer(
    library: Librarian, limits: dict[str, Any], reason: str
) -> None:
    """Each limit leaves the best answer (L16)."""
    code = "for n in range(200):\n    try: lib.files()\n    except LibraryError: pass"
    found = await run_research(library, code, limits=limits, arguments={"limits": {"depth": 0}})
    assert found.incomplete == reason
    assert "[docs/ports.md:4]" in found.answer  # the sentences that have the words
    assert found.spent.iterations <= 2


async def test_the_time_limit_holds_while_a_model_is_silent(library: Librarian) -> None:
    """The time limit holds while a model is silent (L16)."""
    await library.script(blocks("pass"))
    library.provider.answers[:] = [Answer(end="hang")]
    ann = library.caller(librarian_settings())
    with anyio.fail_after(60):
        found = await ann(
            "research", question=QUESTION, strategy="recursive", limits={"seconds": 0.5}
        )
    assert found.incomplete == "seconds"
    assert "6380" in found.answer


async def test_children_spend_the_budget_of_their_parent(library: Librarian) -> None:
    """Children spend the budget of their parent (L15)."""
    await library.script(lambda told, prompt: child(prompt) if told else f"sub:{prompt}")
    ann = library.caller(librarian_settings(limits={"iterations": 3}))
    found = await ann("research", question=QUESTION, strategy="recursive")
    assert found.spent.iterations == 3  # the root's two, and its child's
    assert found.incomplete == "depth"  # the child's child is a question to the model
    assert "grandchild" in found.answer
    run = await ann("get_run", run=found.run)
    assert {one.node for one in run.steps} == {"", next(one.node for one in run.steps if one.node)}


def child(prompt: str) -> str:
    if prompt.startswith(f"Question: {QUESTION}"):
        return "```repl\nprint(rlm_query('be a child'))\n```"
    if prompt.startswith("Question: be a child"):
        return "```repl\nFINAL('of ' + rlm_query('grandchild'))\n```"
    return f"```repl\nFINAL({prompt.removeprefix('Output:').strip()!r})\n```"


@pytest.mark.parametrize("now", [0.0, 4e9])
async def test_a_jumping_clock_ends_no_run(
    library: Librarian, monkeypatch: pytest.MonkeyPatch, now: float
) -> None:
    """A jumping clock ends no run (F1.24)."""
    monkeypatch.setattr(time, "time", lambda: now)
    found = await run_research(library, "import time\nprint(time.time())", FINAL)
    assert outputs(library) == f"Output:\n{CLOCK}\n"
    assert (found.incomplete, found.spent.seconds < 100) == ("", True)


ENDLESS = {
    "sleeping": "import time\nwhile True: time.sleep(1)",
    "computing": "while True: pass",
    "asking": "n = 0\nwhile True:\n    n += 1\n    llm_query(f'q{n}')",
    "looking": "while True: lib.search('port')",
    "waiting": "llm_query_batched(['silent 1', 'silent 2', 'silent 3'])",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
async def test_a_cancelled_run_ends_at_once(library: Librarian, code: str) -> None:
    """A cancelled run ends at once (L19)."""
    await library.script(blocks(f"llm_query('begun')\n{code}"))
    [say] = library.provider.answers
    began = anyio.Event()

    def silent(asked: Asked) -> Answer:
        answer = say(asked)
        if library.prompts[-1] == "begun":
            began.set()
        hangs = library.prompts[-1].startswith("silent")
        return Answer(end="hang", pieces=[b" "]) if hangs else answer

    library.provider.answers[:] = [silent]
    ann = library.caller(librarian_settings(limits={"calls": 10**6, "lookups": 10**6}))
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            await ann("research", question=QUESTION, strategy="recursive")

        group.start_soon(ask)
        with anyio.fail_after(60):
            await began.wait()
        await anyio.sleep(0.2)  # into the loop
        group.cancel_scope.cancel()
        cancelled = anyio.current_time()
    assert anyio.current_time() - cancelled < 5, "the goal is 1 s, and a loaded machine takes more"
    asked = len(library.prompts)
    assert (await ann("list_runs")).runs[0].state == "cancelled"
    await anyio.sleep(0.1)
    assert len(library.prompts) == asked


async def test_false_citations_of_research_are_dropped(library: Librarian) -> None:
    """False citations of research are dropped (L17)."""
    lie = """FINAL('Redis [src/none.py:1-2] on [docs/ports.md:4]. '
    'So [docs/ports.md:1 "Redis listens on port 9999"].', findings=[
    {"claim": "x", "path": "../../etc/passwd", "lines": [1], "quote": "root:x:0:0:root"},
    {"path": 3}, None,
    {"claim": "y", "path": "docs/ports.md", "lines": [4000], "quote": "Redis listens on port"}])"""
    found = await run_research(library, lie)
    assert found.confidence == 0
    assert not any(one.cited for one in found.sources)
    assert "[" not in found.answer
    assert found.answer.splitlines()[0] == "Redis on. (unverified)"


@pytest.mark.parametrize("operation", ["query", "research"])
async def test_guardrails_keep_secrets_from_models(library: Librarian, operation: str) -> None:
    """Guardrails keep secrets from models (F1.32)."""
    redact = Guardrail("result", "redact", tools=("librarian_search",), pattern="Redis listens")
    deny = Guardrail("result", "deny", sources=("librarian",), pattern="def serve")
    rules = {"redact": redact, "deny": deny}
    guards = Guardrails(replace(SETTINGS.guardrails, rules=rules))
    screen = screening(lambda: guards, "librarian")
    settings = librarian_settings(model="scripted", answers={"answers": 0})
    ann = library.caller(settings, screen=screen)
    code = "print(lib.read('docs/ports.md'))\nprint(llm_query(lib.read('src/server.py')))"
    await library.script(blocks(code, "FINAL('It is so.')"))
    more = {} if operation == "query" else {"strategy": "recursive"}
    await ann(operation, question="Who listens on a port?", **more)
    assert any("port 8080" in one for one in library.prompts)
    assert WITHHELD in library.prompts
    assert not any("Redis listens" in one or "def serve" in one for one in library.prompts)


async def test_mapreduce_reads_passages_without_running_code(library: Librarian) -> None:
    """Mapreduce reads passages without running code (L13)."""

    def answer_model(told: str, prompt: str) -> str:
        if "from these findings" in told:
            return '{"sentences": [{"text": "On 6380.", "findings": [1]}]}'
        quote = "Redis listens on port 6380"
        found = [{"claim": "It is 6380", "quote": quote}] if quote in prompt else []
        return json.dumps({"findings": found})

    await library.script(answer_model)
    ann = library.caller(librarian_settings(research={"without_recursion": ("scripted",)}))
    found = await ann("research", question=QUESTION, strategy="recursive")
    assert found.answer == "On 6380. [docs/ports.md:4]"
    auto = library.caller(librarian_settings(research={"auto_share": 0.0}, answers={"answers": 0}))
    assert (await auto("research", question=QUESTION)).spent.iterations == 0


async def test_runs_of_a_caller_are_limited(library: Librarian) -> None:
    """Runs of a caller are limited (L24)."""
    settings = librarian_settings(research={"runs_per_hour": 1})
    cy = library.caller(settings, "bo")
    await library.script(blocks(FINAL))
    await cy("research", question=QUESTION, strategy="recursive")
    with pytest.raises(ProblemDetails, match="at most 1 runs in an hour") as caught:
        await cy("research", question=QUESTION)
    assert caught.value.status == 429
    # The clock was a year ahead, and is set back.
    ahead = "UPDATE librarian_run_t SET created_ts = created_ts + interval '1 year'"
    await library.rig.run(ahead)
    assert (await cy("research", question=QUESTION)).run
    await library.rig.run(f"{ahead.replace('+', '-')} WHERE created_ts > now() + interval '1 day'")


async def test_research_without_a_model_extracts_sentences(library: Librarian) -> None:
    """Research without a model extracts sentences (L14)."""
    found = await library.caller(librarian_settings(research={"model": ""}))(
        "research", question=QUESTION
    )
    assert found.incomplete == "no_model"
    assert "6380" in found.answer


class Killed(BaseException):
    """The process ends here."""


class Mortal(RunStore):
    """Is killed before a write to the database, counted from 0."""

    left = 0

    async def put(self, *args: Any) -> None:
        self.die()
        await super().put(*args)

    async def end_step(self, *args: Any) -> None:
        self.die()
        await super().end_step(*args)

    def die(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


async def begin_killed(caller: WingCaller, writes: int, **more: Any) -> None:
    """Begin a run that is killed before a write."""
    questions = caller.operations["librarian_research"].handle.__self__  # type: ignore[attr-defined]
    questions._runs.__class__, questions._runs.left = Mortal, writes
    with suppress(Killed, BaseExceptionGroup):
        await caller("research", question=QUESTION, strategy="recursive", **more)
    questions._runs.__class__ = RunStore


async def test_a_diverging_replay_ends_with_a_partial_answer(library: Librarian) -> None:
    """A diverging replay ends with a partial answer (L21)."""
    settings = librarian_settings()
    await library.script(blocks("x = llm_query('first')", "print(x)", FINAL))
    ann = library.caller(settings)
    await begin_killed(ann, 6)
    [run, *_] = (await ann("list_runs")).runs
    await library.rig.run(
        "UPDATE librarian_step_t SET digest = 'other' WHERE run_id = %(run)s AND kind = 'llm'",
        run=run.run,
    )
    found = await ann("research", question=QUESTION, run=run.run)
    assert found.incomplete == "diverged"
    assert "6380" in found.answer
    assert library.prompts.count("first") == 1


async def test_a_limit_reached_before_a_kill_holds_after_resuming(
    library: Librarian,
) -> None:
    """A limit reached before a kill holds after resuming (L21)."""
    settings = librarian_settings(limits={"calls": 1})
    await library.script(blocks("print(llm_query_batched(['one', 'two', 'three']))", FINAL))
    ann = library.caller(settings)
    await begin_killed(ann, 10)
    [run, *_] = (await ann("list_runs")).runs
    kinds = [one.kind for one in (await ann("get_run", run=run.run)).steps]
    assert (kinds.count("llm"), kinds[-1]) == (3, "cell")
    found = await ann("research", question=QUESTION, run=run.run)
    assert (found.spent.calls, found.incomplete) == (1, "calls")


@pytest.mark.parametrize(("limit", "most"), [("tokens", 20_000), ("cost", 0.02)])
async def test_a_question_over_the_limit_is_refused_after_a_kill(
    library: Librarian, limit: str, most: float
) -> None:
    """A question over the limit is refused after a kill (L21)."""
    await library.script(blocks("print(llm_query('word ' * 25_000)[:60])", FINAL))
    ann = library.caller(librarian_settings(limits={limit: most}))
    await begin_killed(ann, 6)
    [run, *_] = (await ann("list_runs")).runs
    kinds = [one.kind for one in (await ann("get_run", run=run.run)).steps]
    assert kinds == ["begin", "model", "llm", "cell"]
    found = await ann("research", question=QUESTION, run=run.run)
    assert f"Error: Not sent: the limit of {limit} is reached" in outputs(library)
    assert (found.spent.calls, found.incomplete) == (1, limit)


@pytest.mark.parametrize("limits", [{"tokens": 1}, {"cost": 1e-9}, {"calls": 1}])
async def test_a_limited_plan_ends_alike_before_and_after_a_kill(
    library: Librarian, limits: dict[str, float]
) -> None:
    """A limited plan ends alike before and after a kill (L21)."""
    await library.script(lambda *_: "{}")
    ann = library.caller(librarian_settings(limits=limits, answers={"answers": 0}))
    asked = {"question": QUESTION, "strategy": "mapreduce"}
    before = await ann("research", **asked)
    await library.rig.run(
        "UPDATE librarian_run_t SET state = 'running', result = NULL WHERE run_id = %(run)s",
        run=before.run,
    )
    after = await ann("research", **asked, run=before.run)
    assert after.incomplete == before.incomplete == next(iter(limits))
    assert (after.answer, after.sources) == (before.answer, before.sources)


async def test_a_run_stops_after_its_grant_was_revoked(library: Librarian) -> None:
    """A run stops after its grant was revoked (L21)."""
    put = library.rig.caller()
    bo = library.caller(librarian_settings(research={"runs_per_hour": 9}), "bo")
    await library.script(blocks("print(llm_query('first'))", FINAL))
    await begin_killed(bo, 4)
    [run, *_] = (await bo("list_runs")).runs
    await put("put_collection", collection="code", kind="code", grants={})
    try:
        with pytest.raises(ProblemDetails, match="may read no longer"):
            await bo("research", question=QUESTION, run=run.run)
        with pytest.raises(ProblemDetails, match="may read no longer"):
            await bo("get_run", run=run.run)
    finally:
        await put("put_collection", collection="code", kind="code", grants={"user:bo": "read"})


async def test_cached_answers_are_shared_by_readers_of_all_their_sources(
    library: Librarian,
) -> None:
    """Cached answers are shared by readers of all their sources (L20)."""
    await library.rig.caller()("put_collection", collection="own", kind="code")
    await library.script(blocks("FINAL(llm_query('what it is'))"))
    settings = librarian_settings()
    asked = {"question": QUESTION, "strategy": "recursive"}
    for who, cached in (("ann", 0), ("bo", 0), ("bo", 1), ("ann", 1)):
        found = await library.caller(settings, who)("research", **asked)
        assert (found.spent.cached, found.spent.calls) == (cached, 1 - cached), who


async def test_answers_of_a_run_are_hidden_with_the_grant(library: Librarian) -> None:
    """Answers of a run are hidden with the grant (L20)."""
    put, bo = library.rig.caller(), library.caller(librarian_settings(), "bo")
    await library.script(blocks(FINAL))
    done = await bo("research", question=QUESTION, strategy="recursive")
    assert "6380" in done.answer
    assert (await bo("get_run", run=done.run)).result is not None
    await put("put_collection", collection="code", kind="code", grants={})
    try:
        with pytest.raises(ProblemDetails, match="may read no longer"):
            await bo("research", question=QUESTION, run=done.run)
        runs = (await bo("list_runs")).runs
        assert (runs[0].run, runs[0].result) == (done.run, None)
    finally:
        await put("put_collection", collection="code", kind="code", grants={"user:bo": "read"})


async def test_cancelling_a_job_ends_its_run(library: Librarian) -> None:
    """Cancelling a job ends its run (L19)."""
    job: Job = NoJob()
    ann, id_ = library.caller(librarian_settings()), str(uuid4())
    await library.script(blocks(FINAL))
    await begin_killed(ann, 3, job=job, request_id=id_)
    run, values = library.rig.run, {"host": HOST, "job": id_}
    await run(
        "INSERT INTO job_t (host_id, job_id, operation, principal_id, principal, request)"
        " VALUES (%(host)s, %(job)s, 'librarian_research', 'ann', '{}', 'null')",
        **values,
    )
    assert (await ann("get_run", run=id_)).state == "running"  # another process takes it up
    await run("UPDATE job_t SET state = 'cancelled' WHERE job_id = %(job)s", **values)
    assert (await ann("get_run", run=id_)).state == "cancelled"
    await run("ALTER TABLE job_t RENAME TO no_job_t")  # as with jobs.enabled: false
    try:
        assert (await ann("get_run", run=id_)).state == "cancelled"
        await RunStore(library.rig.database.pool, librarian_settings().research).sweep(HOST)
    finally:
        await run("ALTER TABLE no_job_t RENAME TO job_t")
        await run("DELETE FROM job_t WHERE job_id = %(job)s", **values)


async def test_nul_characters_are_an_error_of_the_code(
    library: Librarian,
) -> None:
    """NUL characters are an error of the code (L14)."""
    asked = "\n".join(
        f"try: print(lib.{call})\nexcept LibraryError: print('refused')"
        for call in (
            r"read('a\0')", r"symbols('a\0')", r"refs('a\0')", r"files('', 'a\0')",
            r"neighbors('a\0')",
        )
    )  # fmt: skip
    cited = r"""FINAL('[x\0y:1 "a quote of this length"]', findings=[{'claim': 'Redis',
    'path': 'a\0', 'lines': [1, 1], 'quote': 'a quote of this length'}])"""
    found = await run_research(library, asked, cited)
    assert outputs(library) == "Output:\nrefused\nrefused\nrefused\nrefused\n[]\n"
    assert (found.confidence, found.incomplete) == (0, "")


async def test_concurrent_child_processes_are_limited(library: Librarian) -> None:
    """Concurrent child processes are limited (L15)."""
    asked: list[str] = []

    def answer_model(told: str, prompt: str) -> str:
        asked.append(prompt.split("\n")[0])
        if prompt.startswith(f"Question: {QUESTION}"):
            return "```repl\nprint(rlm_query_batched(['a', 'b', 'c']))\n```"
        is_new = prompt.startswith("Question: ")
        return f"```repl\n{'print(1)' if is_new else 'FINAL(1)'}\n```"

    await library.script(answer_model)
    ann = library.caller(librarian_settings(limits={"concurrency": 1}))
    await ann("research", question=QUESTION, strategy="recursive")
    children = [one.removeprefix("Question: ") for one in asked[1:7]]
    assert children[1::2] == ["Output:"] * 3  # one has ended before the next one begins
    assert sorted(children[::2]) == ["a", "b", "c"]


def test_code_and_final_answers_are_parsed_from_model_text() -> None:
    """Code and final answers are parsed from model text (L14)."""
    assert cells_of("a\n```repl\nx = 1\n```\nb\n```python\ny\n```") == ["x = 1", "y"]
    assert cells_of("```repl\nx = 1") == ["x = 1"]
    assert cells_of("I know:\nFINAL(It's 3.)") == ['FINAL("It\'s 3.")']
    assert cells_of('FINAL_VAR("found")') == ["FINAL_VAR('found')"]
    assert cells_of("```json\n{}\n``` FINAL") == []
    assert final_of({"answer": ["x"], "findings": "y"}) == ("", [])
    assert final_of(3) == ("3", [])


def test_callers_may_only_lower_limits() -> None:
    """Callers may only lower limits (L15)."""
    most = librarian_settings().research.limits
    less = LessLimits(calls=1, tokens=10**9, cost=2.0).within(most)
    assert (less.calls, less.tokens, less.cost) == (1, most.tokens, 2.0)
    flat = librarian_settings(limits={"depth": 0}).research.limits
    assert LessLimits(depth=5).within(flat).depth == 0


async def test_an_invalid_frame_ends_the_session(library: Librarian) -> None:
    """An invalid frame ends the session (L14)."""
    limits = session_limits()
    code = (
        "import os\nfor fd in range(3, 10):\n    try: os.write(fd, b'\\xff' * 100)\n"
        "    except OSError: pass"
    )

    async def answer(_name: str, _arguments: Any) -> Any:
        return None

    async with CodeSession.open(limits) as session:
        with pytest.raises(SessionEnded, match=r"too long|no frame"):
            await session.run(code, answer)


async def test_the_host_cuts_output_reported_by_a_cell(library: Librarian) -> None:
    """The host cuts output reported by a cell (L14)."""
    code = (
        "import json, os\nsaid = json.dumps({'output': 'x' * 10**5, 'partial': 'y' * 10**5})\n"
        "for fd in range(3, 10):\n"
        "    try: os.write(fd, len(said).to_bytes(4, 'big') + said.encode())\n"
        "    except OSError: pass"
    )

    async def answer(_name: str, _arguments: Any) -> Any:
        return None

    async with CodeSession.open(session_limits()) as session:
        result = await session.run(code, answer)
    assert 0 < len(result.output) <= 6000
    assert len(result.partial) == 1000


def session_limits() -> CodeLimits:
    return CodeLimits(
        memory_bytes=256 << 20, cell_s=10.0, session_s=100.0, output_characters=1000,
        frame_bytes=1 << 20,
    )  # fmt: skip


async def test_a_final_answer_of_another_form_is_told_to_the_model(library: Librarian) -> None:
    """FINAL with an object that has no text is an error that the model sees, so that it can answer
    again (mending 38)."""
    found = await run_research(library, "FINAL({'port': 6380})", CITES)
    assert "FINAL expects a text" in outputs(library)
    assert "'port'" in outputs(library)
    assert found.answer == "Redis has its own. [docs/ports.md:4]"


async def test_an_object_outside_of_code_is_an_answer(library: Librarian) -> None:
    """FINAL with the JSON of an answer and findings is read as that (mending 38)."""
    text = json.dumps({"answer": "Redis has its own.", "findings": [
        {"claim": "Redis has its own.", "path": "docs/ports.md", "lines": [4, 4],
         "quote": "Redis listens on port 6380"}]})  # fmt: skip
    await library.script(lambda told, prompt: f"FINAL({text})")
    ann = library.caller(librarian_settings())
    with anyio.fail_after(120):
        found = await ann("research", question=QUESTION, strategy="recursive")
    assert "Redis has its own. [docs/ports.md:4]" in found.answer
    assert "{" not in found.answer
