-- Logins of people at the gateway. Tokens and codes are stored as digests; what has to be read again
-- (signing keys, refresh tokens of providers) is encrypted with `secrets.key`.

CREATE TABLE login_key_t (
    host_id     uuid NOT NULL,
    key_id      text NOT NULL,
    public      jsonb NOT NULL,
    sealed      bytea NOT NULL,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, key_id)
);

CREATE TABLE login_person_t (
    host_id     uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    principal   text NOT NULL,
    provider    text NOT NULL,
    name        text NOT NULL,
    roles       text[] NOT NULL,
    first_ts    timestamptz NOT NULL DEFAULT now(),
    last_ts     timestamptz NOT NULL DEFAULT now(),
    disabled_ts timestamptz,
    PRIMARY KEY (host_id, tenant_id, principal)
);

-- Clients that registered (RFC 7591), and documents that clients publish about themselves.
CREATE TABLE login_client_t (
    host_id     uuid NOT NULL,
    client_id   text NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('registered', 'document')),
    document    jsonb NOT NULL,
    secret      bytea,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    used_ts     timestamptz,
    fresh_ts    timestamptz,
    PRIMARY KEY (host_id, client_id)
);
CREATE INDEX login_client_unused_ix ON login_client_t (host_id, created_ts) WHERE used_ts IS NULL;

-- What a person allowed, so that they are not asked again.
CREATE TABLE login_consent_t (
    host_id     uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    principal   text NOT NULL,
    client_id   text NOT NULL,
    redirect    text NOT NULL,
    resource    text NOT NULL,
    scopes      text[] NOT NULL,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, tenant_id, principal, client_id, redirect, resource)
);

-- A browser that was sent to a provider, and what it wanted.
CREATE TABLE login_attempt_t (
    host_id     uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    attempt     jsonb NOT NULL,
    expires_ts  timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX login_attempt_expires_ix ON login_attempt_t (host_id, expires_ts);

-- A person who logged in, at a provider or with a password.
CREATE TABLE login_t (
    host_id     uuid NOT NULL,
    login_id    uuid NOT NULL,
    tenant_id   uuid NOT NULL,
    principal   text NOT NULL,
    provider    text NOT NULL,
    person      jsonb NOT NULL,
    upstream    bytea,
    checked_ts  timestamptz NOT NULL DEFAULT now(),
    created_ts  timestamptz NOT NULL DEFAULT now(),
    used_ts     timestamptz NOT NULL DEFAULT now(),
    expires_ts  timestamptz NOT NULL,
    PRIMARY KEY (host_id, login_id)
);
CREATE INDEX login_principal_ix ON login_t (host_id, tenant_id, principal);
CREATE INDEX login_expires_ix ON login_t (host_id, expires_ts);

-- What a client got by a login: a code once, then a family of refresh tokens.
CREATE TABLE login_grant_t (
    host_id     uuid NOT NULL,
    grant_id    uuid NOT NULL,
    login_id    uuid NOT NULL,
    client_id   text NOT NULL,
    client_name text NOT NULL,
    redirect    text NOT NULL,
    resource    text NOT NULL,
    scopes      text[] NOT NULL,
    code        bytea NOT NULL CHECK (octet_length(code) = 32),
    challenge   text NOT NULL,
    code_ts     timestamptz NOT NULL,
    taken_ts    timestamptz,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    used_ts     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, grant_id),
    FOREIGN KEY (host_id, login_id) REFERENCES login_t ON DELETE CASCADE
);
CREATE UNIQUE INDEX login_grant_code_ix ON login_grant_t (host_id, code);
CREATE INDEX login_grant_login_ix ON login_grant_t (host_id, login_id);
CREATE INDEX login_grant_used_ix ON login_grant_t (host_id, used_ts);

CREATE TABLE login_refresh_t (
    host_id     uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    grant_id    uuid NOT NULL,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    replaced_ts timestamptz,
    successor   bytea,
    PRIMARY KEY (host_id, digest),
    FOREIGN KEY (host_id, grant_id) REFERENCES login_grant_t ON DELETE CASCADE
);
CREATE INDEX login_refresh_grant_ix ON login_refresh_t (host_id, grant_id);
CREATE INDEX login_refresh_replaced_ix ON login_refresh_t (host_id, replaced_ts)
    WHERE replaced_ts IS NOT NULL;

-- Assertions that were used, each good once.
CREATE TABLE login_replay_t (
    host_id     uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    expires_ts  timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX login_replay_expires_ix ON login_replay_t (host_id, expires_ts);
