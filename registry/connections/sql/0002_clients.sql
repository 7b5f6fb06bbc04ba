-- The gateway as a client of authorization servers of services that register clients (RFC 7591):
-- once for each issuer and callback.

CREATE TABLE upstream_client_t (
    host_id     uuid NOT NULL,
    issuer      text NOT NULL,
    callback    text NOT NULL,
    client_id   text NOT NULL,
    sealed      bytea NOT NULL,
    created_ts  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, issuer, callback)
);
