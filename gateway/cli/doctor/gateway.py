"""What a gateway that serves here says of its sources, for `toolgate doctor`."""

import http.client
import json
from collections.abc import Iterator

from config.endpoints import ServerSettings
from gateway.cli.doctor.local import TIMEOUT_S, Check

READY_BYTES = 1_000_000


def breakers(server: ServerSettings, token: str = "") -> Iterator[Check]:
    """The sources that it does not call because they fail; nothing when none serves here.
    `token` is that of the metrics: the server need not listen on loopback."""
    for source, state in sorted(_broken(server, token).items()):
        spared = "refused" if state == "open" else "tried one by one"
        yield Check("source", "warning", f"{source}: it fails, so calls to it are {spared}")


def _broken(server: ServerSettings, token: str) -> dict[str, str]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/ready", headers=headers)
        said = json.loads(connection.getresponse().read(READY_BYTES))
        found = said.get("breakers") if isinstance(said, dict) else None
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return (
        {str(name): str(state) for name, state in found.items()} if isinstance(found, dict) else {}
    )
