"""Runs the code blocks of a page as a reader does: in order, in one folder.

A block with a `title` is a file of that name; one that is titled "Terminal" runs until the end.
Other blocks of `sh` run to their end. A block of `text` or `json` after one is what it prints: each
line is found in the output, where `...` stands for anything.

People open the invitations that a block prints, and set a password; programs that open a browser
get `person.py`, which logs them in, in the order of their invitations.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from registry.embedding.status import status
from tests.documentation.pages import ROOT
from tests.documentation.person import accept_invitation
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.fixtures_servers import free_ports
from tests.gateway.cli.processes import command
from tests.polling import until

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
GATEWAY, SERVICE = "127.0.0.1:8765", "8766"
REPLACED = dict.fromkeys(  # tests/test_installed.py installs it
    ("pip install toolgate", "pip install --upgrade toolgate"), "toolgate --version"
)
INVITATION = re.compile(r"http://\S+/login/invitation\S+")
READS = re.compile(r'\A(toolgate audit search[^\n;]*|curl [^;]*"use_skill"[^;]*)\s*\Z')
LISTS = re.compile(r'\A\s*curl [^;]*"tools/list"')  # perhaps with a key that is just made
PAUSE_S = 0.1  # before a question is asked again
PROGRAMS = Path(sys.executable).parent
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
COMMENT = re.compile(r"(^|\s)#.*")
TEXT_OF = re.compile(r"\$\(cat ([\w.-]+)\)")
EXPANDED = re.compile(rf"'[^']*'|\"{TEXT_OF.pattern}\"")  # `$` in it needs no shell
SHELL = re.compile(r"[|&;<*?(){}~]|>(?! \S+$)|^\w+=", re.MULTILINE)  # all but `> FILE` at the end


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str

    @property
    def stays(self) -> bool:
        """Whether it runs until the end."""
        return self.title.startswith("Terminal")


def blocks(path: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(path.read_text())]


@dataclass
class Walk:
    """The state of a reader."""

    folder: Path
    env: Mapping[str, str]
    database: DatabaseSettings
    running: AsyncExitStack
    service: int  # port of what the page starts on SERVICE
    port: int  # of the first gateway
    gateway: str = ""  # host and port of the gateway that runs
    asked: str = ""  # the last block of `sh`
    printed: str = ""
    done: list[str] = field(default_factory=list)

    async def take(self, block: Block) -> None:
        text = block.text.replace(SERVICE, str(self.service))
        if block.stays:
            await self._start(text.strip())
        elif block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace(GATEWAY, self.place))
        elif block.language == "sh":
            self.asked = text.replace(GATEWAY, self.place)
            self.printed = await self._shell(self.asked)
            for address in INVITATION.findall(self.printed):
                await accept_invitation(address, self.folder)
        elif block.language == "json":
            assert json.loads(self.printed) == json.loads(text)
        elif block.language == "text":
            await self._check_printed(text.splitlines())
        else:
            pytest.fail(f"nothing runs this block of {block.language}:\n{block.text}")
        self.done.append(block.title or block.language)

    @property
    def place(self) -> str:
        """Host and port of the gateway, also of one that is to be started."""
        return self.gateway or f"127.0.0.1:{self.port}"

    async def _check_printed(self, lines: Sequence[str]) -> None:
        """Lines are in what was printed. What only reads is asked again: a reader is slower than
        the writer of the audit log and the news of a change."""
        patterns = {line: re.escape(line).replace(r"\.\.\.", ".*") for line in lines}
        with anyio.move_on_after(DEADLINE_S):
            while READS.search(self.asked) and not all(
                re.search(pattern, self.printed) for pattern in patterns.values()
            ):
                await anyio.sleep(PAUSE_S)
                self.printed = await self._shell(self.asked)
        for line, pattern in patterns.items():
            assert re.search(pattern, self.printed), f"{line}\nis not in\n{self.printed}"

    async def _start(self, command: str) -> None:
        if command.startswith("toolgate serve"):
            file = command.partition(" -c ")[2] or "toolgate.yaml"
            settings = load(file, dict(self.env))
            settings = replace(settings, database=self.database)
            client = await self.running.enter_async_context(
                running(settings, 0 if self.gateway else self.port)
            )
            self.gateway = client.url.removeprefix("http://")
            if settings.embedding.provider != "disabled":  # a reader is slower than the model
                await until(lambda: is_embedded(client))
            return
        await self.running.enter_async_context(self._process(command))
        await until(lambda: is_open(self.service))

    @asynccontextmanager
    async def _process(self, command: str) -> AsyncIterator[None]:
        process = await anyio.open_process(
            python_command(shlex.split(command)) or ["sh", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.env,
            stdout=None,
            stderr=None,
        )
        try:
            yield
        finally:
            process.terminate()
            with anyio.CancelScope(shield=True):
                await process.wait()

    async def _shell(self, text: str) -> str:
        for given, ours in REPLACED.items():
            text = text.replace(given, ours)
        env = {**self.env, "TOOLGATE_SERVER__PORT": self.gateway.rpartition(":")[2] or "0"}
        with anyio.fail_after(DEADLINE_S * 3):
            commands, rest = split_commands(text)
            printed = "".join([await self._command(words, env) for words in commands])
            if not rest:
                return printed
            done = await self._run(rest, env)
        with anyio.move_on_after(DEADLINE_S):
            while done.returncode and LISTS.search(rest):
                await anyio.sleep(PAUSE_S)
                done = await self._run(rest, env)
        assert done.returncode == 0, f"{rest}\n{done.stderr.decode()}"
        return printed + done.stdout.decode()

    async def _run(self, text: str, env: Mapping[str, str]) -> CompletedProcess[bytes]:
        words = ["sh", "-e", "-c", text]
        return await anyio.run_process(words, cwd=self.folder, env=env, check=False)

    async def _command(self, words: Sequence[str], env: Mapping[str, str]) -> str:
        """Run a command of a page, `toolgate` in this process; `> FILE` may stand at its end."""
        own = {name: value for name, value in env.items() if os.environ.get(name) != value}
        *words, target = words if words[-2:-1] == [">"] else (*words, "")
        words = [word for word in words if word != ">"]
        words = [TEXT_OF.sub(lambda file: self._text(file[1]), word) for word in words]
        if program := program_of(words):
            done = await anyio.run_process(program, cwd=self.folder, env=env, check=False)
            code, out, err = done.returncode, done.stdout.decode(), done.stderr.decode()
        else:
            code, out, err = await command(*words[1:], **own)
        assert code == 0, f"{shlex.join(words)}\n{err}"
        if not target:
            return out
        (self.folder / target).write_text(out)
        return ""

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text().rstrip("\n")


def split_commands(text: str) -> tuple[list[list[str]], str]:
    """The words of the commands that a block begins with and that need no shell (`"$(cat FILE)"` is
    done here), nor a new interpreter, which takes a second to start; and the rest of the block."""
    commands = []
    lines = text.replace("\\\n", " ").splitlines()
    for number, line in enumerate(lines):
        code = COMMENT.sub("", QUOTED.sub("''", line))
        plain = not (SHELL.search(code) or re.search("[$`]", EXPANDED.sub("", line)))
        words = shlex.split(line, comments=True) if plain else ["sh"]
        if words and words[0] != "toolgate" and not program_of(words):
            return commands, "\n".join(lines[number:])
        commands += [words] if words else []
    return commands, ""


def program_of(words: Sequence[str]) -> list[str] | None:
    """A command that is no `toolgate` and needs no shell."""
    return python_command(words) or ([*words] if words[0] == "openssl" else None)


def python_command(words: Sequence[str]) -> list[str] | None:
    """`python FILE ARGUMENT...` in a way that the fork server knows; None: another command."""
    if words[0] == "python" and words[1].endswith(".py"):
        return [sys.executable, "-m", "tests.script", *words[1:]]
    return None


async def is_embedded(client: Client) -> bool:
    pool, host = client.gateway.feed.pool, client.gateway.settings.tenant.host_id
    assert pool is not None
    counts = (await status(pool, host)).counts
    served = [one for one in counts if "serving" in one.role and one.total]
    ready = bool(served) and all(one.ready == one.total for one in served)
    return ready and client.gateway.embeddings.missing("tools") is None


async def is_open(port: int) -> bool:
    try:
        async with await anyio.connect_tcp("127.0.0.1", port):
            return True
    except OSError:
        return False


@asynccontextmanager
async def walking(
    folder: Path, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, **env: str
) -> AsyncIterator[Walk]:
    """A reader in an empty folder, with the environment of this Python."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}")
    browser = f"{sys.executable} {Path(__file__).with_name('person.py')} {folder} %s &"
    own = {"TOOLGATE_DATABASE__URL": database.url, "BROWSER": browser, **env}
    service, port = free_ports(2)
    async with AsyncExitStack() as stack:
        yield Walk(folder, os.environ | own, database, stack, service, port)


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
