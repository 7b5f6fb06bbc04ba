"""Authentication of a client at a token endpoint by a signature (RFC 7523, section 2.2), and the
name of the grant by a signature of somebody else (2.1)."""

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_S = 60  # lifetime


def sign_authentication(
    client_id: str, audience: str, private: Any, header: Mapping[str, str]
) -> dict[str, str]:
    """The parameters of a request that authenticate `client_id`; `private` as pyjwt takes it,
    `header` with the algorithm (`alg`) and what names the key."""
    import jwt  # with the first client that signs

    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "nbf": now,
        "exp": now + ASSERTION_S,
        "jti": str(uuid4()),
    }
    assertion = jwt.encode(claims, private, header["alg"], dict(header))
    return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
