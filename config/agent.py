"""Settings of the agent: a loop that asks a chat model and calls tools."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import astuple

from config.models import Currency, Rate
from config.value_types import Amount, Count, Seconds


class AgentBudget(Struct, frozen=True, forbid_unknown_fields=True):
    """Upper bounds of use; 0 is no limit."""

    tokens: Amount
    money: Rate
    seconds: Amount
    calls: Amount


class AgentBudgets(Struct, frozen=True, forbid_unknown_fields=True):
    run: AgentBudget
    conversation: AgentBudget
    day: AgentBudget

    @property
    def of_others(self) -> bool:
        """Whether a limit counts more than the run itself."""
        return any(astuple(self.conversation)) or any(astuple(self.day))

    @property
    def of_money(self) -> bool:
        return any(budget.money for budget in (self.run, self.conversation, self.day))


class AgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    storage: Literal["database", "memory"]
    strategy: str
    instructions: str
    max_iterations: Count
    message_characters: Count
    window_messages: Count
    window_tokens: Count
    found_tools: Count
    tool_tokens: Count
    result_tokens: Count
    parallel: Count
    code: bool
    budgets: AgentBudgets
    currency: Currency
    context_tools: tuple[str, ...]
    observer_tools: tuple[str, ...]
    cancel_on_disconnect: bool
    runs: Count
    runs_per_tenant: Count
    runs_per_principal: Count
    open_runs: Count
    lease_s: Seconds
    renew_s: Seconds
    connection_s: Seconds
    poll_s: Seconds
    keep_alive_s: Seconds
    wait_s: Seconds
    transcripts: bool
    usage_days: Count
    conversation_days: Amount
