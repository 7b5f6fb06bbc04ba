"""Starts the authorization server, the service and the gateway; until Ctrl-C.

python -m examples.oauth.run
"""

import asyncio
import socket
import sys

from examples.run import (
    announce,
    child,
    first_line,
    is_free,
    main,
    until_one_ends,
)

HOST = "127.0.0.1"
USUAL = {"gateway": 8765, "authorization_server": 8770, "service": 8771}
CONFIG = "examples/oauth/toolgate.yaml"
TRY = """
Try it, in another terminal:
  {python} -m examples.oauth.client {base}/mcp
which opens a page to log in as ada (password: lovelace), who may do everything, or as bob
(password: the-builder), who may see orders; or, without a browser:
  {python} -m examples.oauth.client --as ada:lovelace {base}/mcp

What clients are told:
  curl -s {base}/.well-known/oauth-protected-resource/mcp

Change the key that tokens are signed with:
  curl -s -X POST {issuer}/rotate

The authorization server is at {issuer}, the service at {service}. Ctrl-C stops all.
"""


async def serve() -> None:
    """Serve until one of them ends; Stopped says which."""
    ports = {name: usual if is_free(usual) else free_port() for name, usual in USUAL.items()}
    urls = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    issuer, service = urls["authorization_server"], urls["service"]
    resources = ("--resource", urls["gateway"], "--resource", service)
    at = {name: ("--port", str(port)) for name, port in ports.items()}
    environment = {
        "TOOLGATE_SERVER__PORT": str(ports["gateway"]),
        "GATEWAY_URL": urls["gateway"],
        "ISSUER": issuer,
        "ORDERS_URL": service,
    }
    tokens = (*module("authorization_server"), *resources, *at["authorization_server"])
    orders = (*module("service"), "--issuer", issuer, *at["service"])
    gate = (sys.executable, "-m", "gateway", "serve", "-c", CONFIG, *sys.argv[1:])
    async with child(*tokens) as first, child(*orders) as second:
        await first_line(first, "authorization server")
        await first_line(second, "service")
        async with child(*gate, **environment) as gateway:
            told = {"python": sys.executable, "issuer": issuer, "service": service}
            announcing = asyncio.ensure_future(announce(gateway, TRY, **told))
            await until_one_ends(
                {"authorization server": first, "service": second, "gateway": gateway}
            )
        await announcing


def module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"examples.oauth.{name}")


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main(serve))
