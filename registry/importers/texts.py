"""Texts of tools, whatever they were imported from."""

# Longer ones are manuals. A thousand tokens a tool is what a list of many tools can bear.
DESCRIPTION_LIMIT = 4096


def cut(description: str) -> str:
    """At a space, so that no word or link is halved."""
    if len(description) <= DESCRIPTION_LIMIT:
        return description
    head = description[: DESCRIPTION_LIMIT - 1]
    return (head.rsplit(maxsplit=1)[0] if " " in head else head).rstrip() + "…"
