"""A portal: open to all, or for those with tokens."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.settings import Settings
from tests.gateway.portal import Portal, portal, with_tokens


@pytest.fixture
async def open_portal(settings: Settings) -> AsyncIterator[Portal]:
    async with portal(settings) as to:
        yield to


@pytest.fixture
def secured_settings(settings: Settings, tmp_path: Path) -> Settings:
    """Settings with which every call carries a token."""
    return with_tokens(settings, tmp_path)
