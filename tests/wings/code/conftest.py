"""One gateway for the tests of a module that leave it as it was."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from config.settings import Settings
from tests.wings.code.shop import CodeShop, Shop, code_shop


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
def shop_options() -> dict[str, Any]:
    """Options of `code_shop` that the shop of a module has."""
    return {"code": {"ready": 1}}


@pytest.fixture(scope="module")
async def shared_shop(
    shared_settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
    shop_options: dict[str, Any],
) -> AsyncIterator[CodeShop]:
    folder = tmp_path_factory.mktemp("shop")
    async with code_shop(shared_settings, folder, **shop_options) as shop:
        yield shop


@pytest.fixture
def shop(shared_shop: CodeShop) -> CodeShop:
    """The gateway of all, whose service has seen nobody."""
    vars(shared_shop.shop).update(vars(Shop()))
    return shared_shop
