"""TokenUsage of models: tokens, money, and budgets that are reserved before a request."""

from msgspec import Struct

from config.models import Price
from schemas.errors import ToolgateError

MOST = 10**9  # tokens of one request; a larger count is nonsense
MILLION = 1_000_000


class TokenUsage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one answer, or of several."""

    input: int = 0  # cached ones included
    output: int = 0  # reasoning included
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False  # the provider did not tell

    @property
    def total(self) -> int:
        return self.input + self.output

    def plus(self, usage: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input + usage.input,
            self.output + usage.output,
            self.cached + usage.cached,
            self.reasoning + usage.reasoning,
            self.estimated or usage.estimated,
        )


class ModelCost(Struct, frozen=True):
    amount: float
    currency: str


def cost_of(usage: TokenUsage, price: Price | None) -> ModelCost | None:
    if price is None:
        return None
    cached = min(usage.cached, usage.input)
    rate = price.input if price.cached is None else price.cached
    spent = (usage.input - cached) * price.input + cached * rate + usage.output * price.output
    return ModelCost(round(spent / MILLION, 9), price.currency)


def count(value: object) -> int:
    """A number of tokens that a provider reports; 0 for anything that is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 < value <= MOST else 0


class BudgetExhausted(ToolgateError):
    """A request that might cost more than is left; it was not sent."""


class Budget:
    """Tokens and money that are left. The worst case of a request is reserved before it is sent,
    and what it really used is settled after it."""

    def __init__(
        self, tokens: int | None = None, money: float | None = None, currency: str = "USD"
    ) -> None:
        """None: no limit."""
        self.tokens = tokens
        self.money = money
        self.currency = currency
        self.used = TokenUsage()
        self.spent = 0.0  # of `currency`

    def reserve(self, worst: TokenUsage, price: Price | None) -> None:
        """Raises BudgetExhausted."""
        if self.tokens is not None and worst.total > self.tokens:
            text = f"the budget has {max(self.tokens, 0):,} tokens left; the request may take "
            raise BudgetExhausted(f"{text}{worst.total:,}")
        if self.money is not None:
            cost = self._cost(worst, price)
            if cost > self.money:
                remaining = f"{max(self.money, 0.0):.4f} {self.currency}"
                text = f"the budget has {remaining} left; the request may cost {cost:.4f}"
                raise BudgetExhausted(text)
            self.money -= cost
        if self.tokens is not None:
            self.tokens -= worst.total

    def settle(self, worst: TokenUsage, usage: TokenUsage, price: Price | None) -> None:
        """Replace what was reserved by what was used."""
        self.used = self.used.plus(usage)
        cost = cost_of(usage, price)
        self.spent += cost.amount if cost is not None and cost.currency == self.currency else 0.0
        if self.tokens is not None:
            self.tokens += worst.total - usage.total
        if self.money is not None:
            self.money += self._cost(worst, price) - self._cost(usage, price)

    def _cost(self, usage: TokenUsage, price: Price | None) -> float:
        cost = cost_of(usage, price)
        if cost is None or cost.currency != self.currency:
            stated_price = "no price" if cost is None else f"a price in {cost.currency}"
            text = (
                f"a budget in {self.currency} needs a price of the model, which has {stated_price}"
            )
            raise BudgetExhausted(f"{text} (models.strategies.NAME.price)")
        return cost.amount
