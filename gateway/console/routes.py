"""Routes of the console's pages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from gateway.console.page_request import PageRequest

Page = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    path: str  # below that of the console, as Starlette writes them
    page: Page
    methods: tuple[str, ...] = ("GET",)
    login: bool = True  # whether visitors have to be logged in
