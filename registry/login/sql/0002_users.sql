-- Users of the gateway's own, for companies without a provider. A name is one user's of the whole
-- gateway: whoever logs in types a name, and no tenant.

CREATE TABLE login_user_t (
    host_id       uuid NOT NULL,
    tenant_id     uuid NOT NULL,
    name          text NOT NULL,
    roles         text[] NOT NULL,
    password      text,
    invitation    bytea CHECK (octet_length(invitation) = 32),
    invited_ts    timestamptz,
    created_ts    timestamptz NOT NULL DEFAULT now(),
    disabled_ts   timestamptz,
    PRIMARY KEY (host_id, name)
);
CREATE INDEX login_user_tenant_ix ON login_user_t (host_id, tenant_id);
CREATE UNIQUE INDEX login_user_invitation_ix ON login_user_t (host_id, invitation);

-- Wrong passwords, by the digest of a name (of a user or not) and an address.
CREATE TABLE login_failure_t (
    host_id     uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    failures    integer NOT NULL,
    last_ts     timestamptz NOT NULL,
    next_ts     timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX login_failure_last_ix ON login_failure_t (host_id, last_ts);
