"""Where the machine has what the sandbox needs, the sandbox works: the other tests skip else."""

import shutil
import sys

import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from gateway.sandbox.script_runner import Sandbox

pytestmark = pytest.mark.anyio

SETTINGS = replace(load(None, {}).scripts, enabled=True, time_s=60)


@pytest.mark.skipif(sys.platform != "linux", reason="scripts are run on Linux only")
async def test_where_there_are_namespaces_scripts_run() -> None:
    unshare = shutil.which("unshare")  # util-linux: somebody else's opinion
    if unshare is None:
        pytest.skip("there is no unshare to compare with")
    words = [unshare, "--user", "--map-root-user", "--net", "--pid", "--mount", "--fork", "true"]
    with anyio.fail_after(100):
        ran = await anyio.run_process(words, check=False)
    if ran.returncode:
        pytest.skip(f"no namespaces: {ran.stderr.decode().strip()}")
    assert await Sandbox(lambda: SETTINGS).missing("python") is None
