"""A client of a Redis or Valkey cluster, for `redis+cluster://` URLs.

All keys of a session have its id as their hash tag, and each command and script has one key, so
none crosses slots. Notifications reach all nodes of a cluster, whichever gateways listen at.
"""

import asyncio
from typing import Any
from urllib.parse import SplitResult

from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode, ClusterPubSub
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import TimeoutError as TimedOut

from config.networks import split_hosts

PORT = 6379
LISTENING = 2  # connections of a client that wait for notifications, besides those of commands


class Cluster(RedisCluster):
    """Has a limited number of commands at a time; redis-py would refuse those beyond it."""

    def __init__(self, *, connections: int, timeout_s: float, **options: Any) -> None:
        super().__init__(
            max_connections=connections + LISTENING,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),  # but redirections are followed
            require_full_coverage=False,
            client_name="toolgate",
            **options,
        )
        self._free = asyncio.Semaphore(connections)
        self._timeout_s = timeout_s

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise TimedOut("no free connection") from None
        try:
            return await super().execute_command(*args, **kwargs)
        finally:
            self._free.release()

    async def aclose(self) -> None:
        self._initialize = False  # after a failure it is true, and redis-py would close nothing
        await super().aclose()

    def pubsub(self, *args: Any, **kwargs: Any) -> ClusterPubSub:
        return _PubSub(self, *args, **kwargs)


class _PubSub(ClusterPubSub):
    """Learns the nodes of the cluster before it connects: the one before may have gone."""

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        if self.connection is None:
            await self.cluster.initialize()
            await self.cluster.nodes_manager.initialize()
        return await super().execute_command(*args, **kwargs)


def cluster(url: str, timeout_s: float, connections: int) -> Cluster:
    """A client that connects on first use to any of the nodes that the URL names, separated by
    commas, and learns the others from it. Raises ValueError and TypeError for an unusable URL."""
    parts, hosts = split_hosts(url)
    nodes = [_node(host) for host in hosts]
    local = parts._replace(scheme=parts.scheme.removesuffix("+cluster"), fragment="")
    options: dict[str, Any] = {**parse_url(local.geturl())}
    del options["host"]
    if options.pop("db", 0):
        raise ValueError("a cluster has database 0 alone")
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return Cluster(startup_nodes=nodes, connections=connections, timeout_s=timeout_s, **options)


def _node(host: SplitResult) -> ClusterNode:
    if not host.hostname:
        raise ValueError("a node has no name")
    return ClusterNode(host.hostname, host.port or PORT)
