"""Order of the middleware of messages and of the guards of calls, outermost first.

HTTP layers run before both (`application` in `gateway/app/routes.py`). `toolgate doctor --route
tools/call` prints the chain that the settings make of them.
"""

from collections.abc import Sequence

from gateway.app.access import Access
from gateway.interfaces import Guard, Middleware


def message_middleware(
    access: Access,
    *,
    costs: Sequence[Middleware] = (),
    counting: Sequence[Middleware],
    before_audit: Sequence[Middleware] = (),
    innermost: Sequence[Middleware] = (),
) -> list[Middleware]:
    """Middleware of every message. `before_audit`: tools of wings for new tenants, rates of the
    admin API; `innermost`: answers of wings."""
    return [
        *costs,  # see results as clients get them
        *counting,  # metrics or traces, and the use of old revisions
        *before_audit,
        *access.auditing.middleware,
        access.bounds.rate_limits.middleware,
        *access.hooks.middleware,  # of lists
        *innermost,
    ]


def call_guards(access: Access, *, innermost: Sequence[Guard] = ()) -> list[Guard]:
    """Guards of every call, of which one passes those that apply to its tool."""
    hooks_before, hooks_after = access.hooks.guards()
    return [
        *access.auditing.guards,
        *hooks_before,
        *access.before_rules,
        *access.policy_guards,
        access.bounds.rate_limits,
        access.guardrails,  # on arguments and results
        *hooks_after,
        access.bounds.breaker,
        *access.innermost,
        *innermost,
    ]
