"""Server-sent events, as bytes (WHATWG HTML, section 9.2)."""

KEEP_ALIVE = b": keep-alive\n\n"


def event(message: bytes, name: bytes = b"message", id_: str = "") -> bytes:
    """One event whose data is `message`: JSON text, or a URL."""
    # a service's own JSON may come with line breaks, which between its tokens are but white space
    line = message.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"id: " + id_.encode() + b"\n" if id_ else b""
    return head + b"event: " + name + b"\ndata: " + line + b"\n\n"


def priming(id_: str, retry_ms: int) -> bytes:
    """An event that says nothing but where to come back to, and when (2025-11-25)."""
    return b"id: " + id_.encode() + b"\nretry: %d\ndata: \n\n" % retry_ms
