-- Toolsets besides those of the settings. Older nodes neither read nor write them.
CREATE TABLE toolset_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    name               varchar(63) NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9_-]*$'),
    definition         jsonb NOT NULL CHECK (jsonb_typeof(definition) = 'object'),
    create_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    create_principal   varchar(255) NOT NULL,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_principal   varchar(255) NOT NULL,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, name)
);
COMMENT ON TABLE toolset_t IS 'Toolsets besides those of the settings, which go before them.';
COMMENT ON COLUMN toolset_t.definition IS
    'Members of an entry of `toolsets` in the settings, without those that have their default.';
COMMENT ON COLUMN toolset_t.create_principal IS 'Principal who stored it first.';
COMMENT ON COLUMN toolset_t.update_principal IS 'Principal who changed it last.';

CREATE TRIGGER toolset_notify
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON toolset_t
    FOR EACH STATEMENT EXECUTE FUNCTION access_notify('toolsets');
