"""Policy decisions behind not-found errors, for the audit log: the subject that a message names and
the rule that hides it."""

from gateway.context import Context
from gateway.policy.engine import Decision
from gateway.policy.rules import Subject
from gateway.policy.visibility import PolicyView
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from schemas.tool import Tool


class Refusals:
    def __init__(self, policy_view: PolicyView, catalogs: Catalogs) -> None:
        self._policy_view = policy_view
        self._catalogs = catalogs

    def __call__(self, context: Context, method: str, name: str) -> Decision | None:
        """The decision that hides the subject from the caller; None if not hidden or not
        existing."""
        subject = _subject(self._of(context), method, name)
        return None if subject is None else self._policy_view.refusal(context, subject)

    def tool(self, context: Context, name: str) -> Tool | None:
        """The tool of this name, even if hidden from the caller."""
        return _tool(self._of(context), name)

    def _of(self, context: Context) -> Catalog:
        return self._catalogs.named(context.principal.tenant, context.toolset)


def _subject(catalog: Catalog, method: str, name: str) -> Subject | None:
    if method == "prompts/get":
        prompt = catalog.prompt(name)
        return None if prompt is None else Subject.of_item(prompt)
    if method.startswith("resources/"):
        located = catalog.locate(name)
        if located is None:
            return None
        return Subject.named("resource", located.uri, located.source.name)
    tool = _tool(catalog, name)
    return None if tool is None else Subject.of(tool)


def _tool(catalog: Catalog, name: str) -> Tool | None:
    return catalog.find(name) or catalog.service(name)
