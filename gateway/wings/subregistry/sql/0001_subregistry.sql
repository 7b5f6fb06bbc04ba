-- Versions of listed toolsets: each change of what clients would see makes one.

CREATE TABLE subregistry_version_t (
    host_id         uuid NOT NULL,
    name            text COLLATE "C" NOT NULL,
    patch           integer NOT NULL,
    content         bytea NOT NULL,
    document        bytea NOT NULL,
    published_ts    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, name, patch)
);
COMMENT ON COLUMN subregistry_version_t.patch IS 'the version is 1.0.PATCH';
COMMENT ON COLUMN subregistry_version_t.content IS 'SHA-256 of its document and its tools';
COMMENT ON COLUMN subregistry_version_t.document IS 'server.json, but for its version';
