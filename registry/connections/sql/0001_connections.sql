-- Accounts of people at services: what satisfies one security scheme of one source for one person.
-- Secrets are encrypted with `secrets.key`, bound to their row; tickets are stored as digests.

CREATE TABLE connection_t (
    host_id       uuid NOT NULL,
    connection_id uuid NOT NULL,
    tenant_id     uuid NOT NULL,
    principal     text NOT NULL,
    source        text NOT NULL,
    scheme        text NOT NULL,
    label         text NOT NULL DEFAULT '',
    kind          text NOT NULL CHECK (kind IN ('api_key', 'basic', 'bearer', 'oauth')),
    state         text NOT NULL DEFAULT 'ok' CHECK (state IN ('ok', 'expired', 'suspended')),
    hint          text NOT NULL DEFAULT '',
    scopes        text[] NOT NULL DEFAULT '{}',
    issuer        text NOT NULL DEFAULT '',
    client_id     text NOT NULL DEFAULT '',
    server        jsonb,
    sealed        bytea NOT NULL,
    version       integer NOT NULL DEFAULT 1,
    away          boolean NOT NULL DEFAULT false,
    failure       text NOT NULL DEFAULT '',
    expires_ts    timestamptz,
    renewing_ts   timestamptz,
    created_ts    timestamptz NOT NULL DEFAULT now(),
    renewed_ts    timestamptz NOT NULL DEFAULT now(),
    used_ts       timestamptz,
    PRIMARY KEY (host_id, connection_id),
    UNIQUE (host_id, tenant_id, principal, source, scheme, label)
);
CREATE INDEX connection_source_ix ON connection_t (host_id, source);

-- Renewed tokens change no state: other gateways read them when theirs have ended.
CREATE TRIGGER connection_added AFTER INSERT OR DELETE ON connection_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('connections');
CREATE TRIGGER connection_changed AFTER UPDATE OF state, away ON connection_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('connections');

-- Links by which a person is asked to connect. They grant nothing: whoever opens one has to be the
-- person who made the call.
CREATE TABLE connection_ticket_t (
    host_id     uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    tenant_id   uuid NOT NULL,
    principal   text NOT NULL,
    source      text NOT NULL,
    label       text NOT NULL DEFAULT '',
    reason      text NOT NULL,
    wanted      jsonb NOT NULL,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    expires_ts  timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX connection_ticket_owner_ix ON connection_ticket_t (host_id, tenant_id, principal, source);
CREATE INDEX connection_ticket_expires_ix ON connection_ticket_t (host_id, expires_ts);

-- Browsers at a service's authorization server, each good once.
CREATE TABLE connection_attempt_t (
    host_id     uuid NOT NULL,
    digest      bytea NOT NULL CHECK (octet_length(digest) = 32),
    browser     bytea NOT NULL CHECK (octet_length(browser) = 32),
    ticket      bytea NOT NULL CHECK (octet_length(ticket) = 32),
    sealed      bytea NOT NULL,
    expires_ts  timestamptz NOT NULL,
    PRIMARY KEY (host_id, digest)
);
CREATE INDEX connection_attempt_expires_ix ON connection_attempt_t (host_id, expires_ts);
