"""Bodies of HTTP answers, of which nobody holds more than they want."""

import aiohttp


async def read_at_most(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes | None:
    """The whole body; None as soon as it is known to be longer. Raises aiohttp.ClientError."""
    body = bytearray()
    async for chunk in response.content.iter_any():  # decompressed: a bomb counts in full
        body += chunk
        if len(body) > limit_bytes:
            return None
    return bytes(body)
