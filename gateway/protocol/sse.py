"""Server-sent events, as bytes (WHATWG HTML, section 9.2)."""

KEEP_ALIVE = b": keep-alive\n\n"


def event(message: bytes, name: bytes = b"message") -> bytes:
    """One event whose data is `message`: JSON text, or a URL."""
    # a service's own JSON may come with line breaks, which between its tokens are but white space
    line = message.replace(b"\r", b" ").replace(b"\n", b" ")
    return b"event: " + name + b"\ndata: " + line + b"\n\n"
