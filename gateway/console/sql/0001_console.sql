-- Sessions of the console. The cookie has a random id, of which only the digest is stored; the
-- caller has facts of its credential. A refresh token is encrypted under the id, so that access to
-- the database alone reveals none.

CREATE TABLE console_session_t (
    host_id         uuid NOT NULL,
    digest          bytea NOT NULL CHECK (octet_length(digest) = 32),
    caller          jsonb NOT NULL,
    refresh         text NOT NULL DEFAULT '',
    token_ends_ts   timestamptz,
    created_ts      timestamptz NOT NULL DEFAULT now(),
    used_ts         timestamptz NOT NULL DEFAULT now(),
    expires_ts      timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX console_session_expires_ix ON console_session_t (host_id, expires_ts);

-- The key that signs ids of sessions in cookies: a forged one costs no query.
CREATE TABLE console_key_t (
    host_id   uuid NOT NULL PRIMARY KEY,
    key       bytea NOT NULL CHECK (octet_length(key) = 32)
);
