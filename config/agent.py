"""Settings of the agent: a loop that asks a chat model and calls tools."""

from msgspec import Struct

from config.models import Currency, Rate
from config.types import Amount, Count, Seconds


class AgentSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
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
    run_tokens: Amount
    run_money: Rate
    currency: Currency
    run_s: Seconds
    run_calls: Count
    conversation_tokens: Amount
    day_tokens: Amount
    cancel_on_leave: bool
    runs: Count
    open_runs: Count
    lease_s: Seconds
    renew_s: Seconds
    poll_s: Seconds
    keep_alive_s: Seconds
    wait_s: Seconds
    transcripts: bool
