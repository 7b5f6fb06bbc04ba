"""What texts must not tell, whatever they quote."""

import re

_URL_QUERY = re.compile(r"(https?://[^\s?#\"'<>]*)\?[^\s\"'<>,;:]*")


def without_queries(text: str) -> str:
    """`text` without the queries of the URLs in it: tokens stand in some."""
    return _URL_QUERY.sub(r"\1?***", text)
