"""Login at the gateway: an authorization server of OAuth 2.1 in front of identity providers.

Facts of the protocol: MCP authorization (2026-07-28), OAuth 2.1 (draft-ietf-oauth-v2-1), RFC 7009
(revocation), 7591 (registration), 7636 (PKCE), 8252 (native apps), 8414 (metadata), 8707 (resource
indicators), 9068 (access tokens), 9207 (`iss` of answers).
"""
