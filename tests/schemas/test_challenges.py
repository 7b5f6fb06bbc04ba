"""Challenges of protected resources."""

import pytest

from schemas.challenges import Challenge, read_challenge

PLACE = "https://mcp.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ([], None),
        (["Basic realm=x"], None),
        (['Basic realm="Bearer scope=a"'], None),
        (["Negotiate, Basic realm=x"], None),
        (["Bearer"], Challenge()),
        (["bearer scope=one"], Challenge(scopes=("one",))),
        (
            [f'Bearer resource_metadata="{PLACE}", scope="b a b"'],
            Challenge(scopes=("b", "a"), resource_metadata=PLACE),
        ),
        (
            ['Basic realm="x, y", Bearer error="insufficient_scope", scope="w"'],
            Challenge(error="insufficient_scope", scopes=("w",)),
        ),
        (["Basic realm=x", 'Bearer scope="w"'], Challenge(scopes=("w",))),
        (['Bearer scope="w", DPoP scope="z", algs="ES256"'], Challenge(scopes=("w",))),
        (['Bearer error="say \\"no\\"", scope="w"'], Challenge(error='say "no"', scopes=("w",))),
        (['Bearer scope="first", scope="second"'], Challenge(scopes=("first",))),
        (
            ['Bearer error="insufficient_user_authentication", acr_values="mfa", max_age="5"'],
            Challenge(error="insufficient_user_authentication", acr_values="mfa", max_age="5"),
        ),
        (["Bearer scope=" + "s" * 20_000], Challenge(scopes=("s" * 8179,))),
        (['Bearer scope="never ends'], Challenge()),
    ],
)
def test_the_bearer_challenge_is_read(headers: list[str], challenge: Challenge | None) -> None:
    assert read_challenge(headers) == challenge
