"""Carts of customers, before they become orders."""


class Cart:
    """Articles that a customer has put aside."""

    def __init__(self, limit: int = 40) -> None:
        self.limit = limit
        self.articles: dict[str, int] = {}

    def add_article(self, number: str, count: int = 1) -> None:
        """Put an article into the cart; raises ValueError where it is full."""
        if len(self.articles) >= self.limit:
            raise ValueError("the cart is full")
        self.articles[number] = self.articles.get(number, 0) + count
