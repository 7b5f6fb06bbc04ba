"""What is wrong with limits that are right one by one."""

from collections.abc import Iterator
from ipaddress import ip_network

from config.problem import Problem, Where, dotted
from config.settings import Settings

LEAST_BYTES = 128 << 20  # what the gateway takes by itself


def limit_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """`where` says where the first of some key paths stands that is no default."""

    def problem(text: str, *key: str) -> Problem:
        return Problem(where(key), dotted(key), text)

    for network in settings.server.trusted_proxies:
        if not _is_network(network):
            text = f"expected an address or a network without host bits, found {network}"
            yield problem(text, "server", "trusted_proxies")
    limits, breaker = settings.limits, settings.breaker
    for group, rates in (("tools", limits.tools), ("sources", limits.sources)):
        for name, rate in rates.items():
            if not rate.calls and not rate.concurrent:
                yield problem("expected calls or concurrent above 0", "limits", group, name)
    if breaker.longest_s < breaker.open_s:
        text = f"expected at least breaker.open_s, {breaker.open_s:g}, found {breaker.longest_s:g}"
        yield problem(text, "breaker", "longest_s")
    if 0 < limits.memory_bytes < LEAST_BYTES:
        text = f"expected 0, or at least the {LEAST_BYTES} that the gateway takes by itself"
        yield problem(f"{text}, found {limits.memory_bytes}", "limits", "memory_bytes")


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True
