"""A hybrid service inside the gateway, whose one action wants a scope that few have."""

from typing import Any

from gateway import hybrid


@hybrid.action("example.com/orders/refund/1", scope="orders:refund", description="Refund an order")
def refund(data: dict[str, Any]) -> dict[str, Any]:
    return {"refunded": data["item"]}
