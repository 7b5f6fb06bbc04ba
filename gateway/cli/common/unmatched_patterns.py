"""Unmatched patterns of rules, limits, guardrails and toolsets: they have no effect, which would go
unnoticed.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from config.access import Rule
from config.settings import Settings
from gateway.app.access_for_commands import rules_in
from gateway.cli.common.checks import Check
from gateway.cli.common.database import Registry, has_database, open_present_registry
from gateway.policy.engine import CompiledRule, Subject
from schemas.errors import ToolgateError
from schemas.globs import ToolGlobs
from schemas.mcp.snapshot import SnapshotItem
from schemas.tool import Tool

RULES = "policy.rules."


@dataclass(frozen=True, slots=True)
class Idle:
    setting: str  # policy.rules.NAME.tools
    text: str

    @property
    def rule(self) -> str:
        """Name of the rule in policy.rules."""
        return self.setting.removeprefix(RULES).partition(".")[0]

    @property
    def member(self) -> str:
        return self.setting.removeprefix(RULES).partition(".")[2]

    def __str__(self) -> str:
        return f"{self.setting}: {self.text}"


@dataclass(frozen=True, slots=True)
class Known:
    """Objects that rules can match."""

    tools: Sequence[Tool]  # those that are held back included
    items: Sequence[SnapshotItem]
    sources: frozenset[str]

    @property
    def subjects(self) -> list[Subject]:
        return [*map(Subject.of, self.tools), *map(Subject.of_item, self.items)]


async def known_tools(registry: Registry, settings: Settings) -> Known:
    store, host_id = registry.store, registry.host_id
    tools = [*await store.tools(host_id), *await store.tools(host_id, held=True)]
    sources = frozenset(source.name for source in await store.sources(host_id)) | set(
        settings.sources
    )
    return Known(tools, await store.items(host_id), sources)


async def idle_in_registry(settings: Settings) -> list[Idle] | None:
    """All unmatched patterns, stored rules included; None: the registry cannot be read. An embedded
    database that was never used is not created for it."""
    if not _has_patterns(settings):
        return []
    if not has_database(settings):
        return idle_in_settings(settings)
    try:
        async with open_present_registry(settings) as registry:
            return await _idle(settings, registry)
    except ToolgateError:
        return None


def idle_in_settings(settings: Settings) -> list[Idle]:
    """The sources that settings name and do not have, where no registry has any either."""
    return list(idle(settings, {}, Known((), (), frozenset(settings.sources))))


async def idle_patterns(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """The unmatched patterns, for `toolgate doctor`."""
    for finding in await _idle(settings, registry):
        yield Check("patterns", "warning", str(finding))


async def _idle(settings: Settings, registry: Registry) -> list[Idle]:
    rules = {
        rule.name: rule.rule for rule in await rules_in(registry.database.pool, registry.host_id)
    }
    return list(idle(settings, rules, await known_tools(registry, settings)))


async def rules_not_evaluated(settings: Settings, registry: Registry) -> AsyncIterator[Check]:
    """For `toolgate doctor`: stored rules whose `when` is invalid or too slow. Those that deny or
    require approval deny, and those that allow allow no call."""
    steps = settings.policy.expression_steps
    for rule_ in await rules_in(registry.database.pool, registry.host_id):
        rule = CompiledRule(rule_.name, rule_.rule, steps, stored=True)
        if rule.broken is not None:
            effect = (
                "allows no call" if rule.effect == "allow" else "denies all calls that it matches"
            )
            text = (
                f"{RULES}{rule_.name}.when cannot be evaluated, so the rule {effect}: {rule.broken}"
            )
            yield Check("rules", "failed", text)


def idle(settings: Settings, stored_rules: Mapping[str, Rule], there: Known) -> Iterator[Idle]:
    """The unmatched patterns; while there are no tools, the unknown sources of toolsets alone."""
    for name, toolset in settings.toolsets.items():
        yield from _sources(f"toolsets.{name}.sources", toolset.sources, there)
    if not there.tools:
        return
    subjects = there.subjects
    yield from idle_rules(settings, stored_rules, there)
    for name, guardrail in settings.guardrails.rules.items():
        where = f"guardrails.rules.{name}"
        yield from _patterns(f"{where}.tools", guardrail.tools, subjects)
        yield from _sources(f"{where}.sources", guardrail.sources, there)
    yield from _patterns("limits.tools", tuple(settings.limits.tools), subjects)
    yield from _sources("limits.sources", tuple(settings.limits.sources), there)
    for name, toolset in settings.toolsets.items():
        yield from _patterns(f"toolsets.{name}.include", toolset.include, subjects)
        yield from _patterns(f"toolsets.{name}.exclude", toolset.exclude, subjects)


def idle_rules(
    settings: Settings, stored_rules: Mapping[str, Rule], there: Known
) -> Iterator[Idle]:
    """Unmatched rules of the settings, and stored ones."""
    subjects = there.subjects
    for name, rule in {**stored_rules, **settings.policy.rules}.items() if there.tools else ():
        yield from _of_rule(name, rule, settings, subjects, there)


def _of_rule(
    name: str, rule: Rule, settings: Settings, subjects: Sequence[Subject], there: Known
) -> Iterator[Idle]:
    where = f"{RULES}{name}"
    problems = [
        *_patterns(f"{where}.tools", rule.tools, subjects),
        *_sources(f"{where}.sources", rule.sources, there),
    ]
    yield from problems
    compiled = CompiledRule(where, rule, settings.policy.expression_steps, stored=True)
    default = settings.policy.default_tier
    if not problems and all(
        compiled.subject_mismatch(subject, subject.tier or default) for subject in subjects
    ):
        yield Idle(where, "matches nothing: no tool, prompt or resource is all that it names")


def _patterns(where: str, patterns: Sequence[str], subjects: Sequence[Subject]) -> Iterator[Idle]:
    for pattern in patterns:
        globs = ToolGlobs((pattern,))
        if not any(
            globs.match(subject.names, subject.tags, subject.domain) for subject in subjects
        ):
            yield Idle(where, f"{pattern!r} matches no tool, prompt or resource")


def _sources(where: str, names: Sequence[str], there: Known) -> Iterator[Idle]:
    for name in names:
        if name not in there.sources:
            yield Idle(where, f"there is no source {name}")


def _has_patterns(settings: Settings) -> bool:
    """Whether the settings contain any patterns."""
    limits = settings.limits.tools or settings.limits.sources
    return bool(settings.policy.rules or settings.guardrails.rules or limits or settings.toolsets)
