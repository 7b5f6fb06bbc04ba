-- Sessions of the console. The cookie has a random id, of which only the digest is stored; the
-- caller has facts of its credential, and no credential.

CREATE TABLE console_session_t (
    host_id      uuid NOT NULL,
    digest       bytea NOT NULL CHECK (octet_length(digest) = 32),
    caller       jsonb NOT NULL,
    label        text NOT NULL DEFAULT '',
    created_ts   timestamptz NOT NULL DEFAULT now(),
    used_ts      timestamptz NOT NULL DEFAULT now(),
    expires_ts   timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX console_session_expires_ix ON console_session_t (host_id, expires_ts);
