-- Where descriptions have people log in, for connections of people (gateway/connections). Older nodes
-- neither read nor write it.
ALTER TABLE api_t ADD COLUMN logins jsonb CHECK (jsonb_typeof(logins) = 'object');
COMMENT ON COLUMN api_t.logins IS
    'By security scheme of an OpenAPI description: the URLs of its authorization code flow and their '
    'scopes, or the URL of its OpenID Connect document (schemas/source.py).';
