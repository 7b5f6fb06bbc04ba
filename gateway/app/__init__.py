"""The composition root: the only place that names concrete classes and sees all settings."""

from starlette.applications import Starlette

from config.settings import Settings
from gateway.app.gateway import Gateway
from gateway.app.upstreams import load_services

__all__ = ["Gateway", "build_app", "load_services"]


def build_app(settings: Settings) -> Starlette:
    """The gateway as an ASGI application, for any ASGI server."""
    return Gateway(settings).app()
