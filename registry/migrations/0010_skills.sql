-- Skills: instructions for a kind of work with the tools for it; and agents, which have some of
-- them. Columns follow the design of light-portal's agent skills.

CREATE TABLE skill_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    skill_id           uuid NOT NULL DEFAULT gen_random_uuid(),
    parent_skill_id    uuid,
    name               varchar(126) NOT NULL
        CHECK (name ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND length(name) <= 64),
    description        varchar(1024) NOT NULL CHECK (description ~ '\S'),
    front_matter       text NOT NULL,
    content_markdown   text NOT NULL,
    metadata           json NOT NULL CHECK (json_typeof(metadata) = 'object'),
    number             integer NOT NULL DEFAULT 1,
    version            varchar(20) NOT NULL DEFAULT '1.0.0',
    digest             char(64) NOT NULL,
    origin             varchar(80) NOT NULL DEFAULT 'import',
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, skill_id),
    FOREIGN KEY (host_id, parent_skill_id) REFERENCES skill_t
        ON DELETE SET NULL (parent_skill_id)
);
CREATE UNIQUE INDEX skill_name_uk ON skill_t (host_id, name) WHERE active;
CREATE INDEX skill_parent_ix ON skill_t (host_id, parent_skill_id);
COMMENT ON COLUMN skill_t.name IS 'As agentskills.io wants it; tighter than the column.';
COMMENT ON COLUMN skill_t.front_matter IS
    'What stands in front of content_markdown in its SKILL.md, byte by byte, fences included.';
COMMENT ON COLUMN skill_t.metadata IS 'The front matter as JSON, all of it.';
COMMENT ON COLUMN skill_t.number IS 'Of the version in skill_version_t that is served.';
COMMENT ON COLUMN skill_t.version IS 'What that version calls itself.';
COMMENT ON COLUMN skill_t.digest IS 'SHA-256 of its SKILL.md and its other files.';
COMMENT ON COLUMN skill_t.origin IS 'import, or generated:SOURCE.';

CREATE TABLE skill_version_t (
    host_id            uuid NOT NULL,
    skill_id           uuid NOT NULL,
    number             integer NOT NULL,
    version            varchar(20) NOT NULL,
    description        varchar(1024) NOT NULL,
    front_matter       text NOT NULL,
    content_markdown   text NOT NULL,
    metadata           json NOT NULL,
    digest             char(64) NOT NULL,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, skill_id, number),
    FOREIGN KEY (host_id, skill_id) REFERENCES skill_t ON DELETE CASCADE
);
COMMENT ON TABLE skill_version_t IS
    'Every content that a skill had, the present one included; number counts from 1.';

CREATE TABLE skill_file_t (
    host_id            uuid NOT NULL,
    skill_id           uuid NOT NULL,
    number             integer NOT NULL,
    path               varchar(255) NOT NULL,
    media_type         varchar(255) NOT NULL,
    digest             char(64) NOT NULL,
    size               integer NOT NULL,
    content            bytea NOT NULL,
    PRIMARY KEY (host_id, skill_id, number, path),
    FOREIGN KEY (host_id, skill_id, number) REFERENCES skill_version_t ON DELETE CASCADE
);
COMMENT ON TABLE skill_file_t IS 'What lies beside the SKILL.md of a version: never run here.';

CREATE TABLE skill_tool_t (
    host_id            uuid NOT NULL,
    skill_id           uuid NOT NULL,
    tool_id            uuid NOT NULL,
    config             jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config) = 'object'),
    access_level       varchar(20) NOT NULL DEFAULT 'read'
        CHECK (access_level IN ('read', 'write', 'execute')),
    origin             varchar(16) NOT NULL DEFAULT 'manual'
        CHECK (origin IN ('manual', 'document')),
    sequence_id        integer NOT NULL DEFAULT 0,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, skill_id, tool_id),
    FOREIGN KEY (host_id, skill_id) REFERENCES skill_t ON DELETE CASCADE,
    FOREIGN KEY (host_id, tool_id) REFERENCES tool_t ON DELETE CASCADE
);
CREATE INDEX skill_tool_tool_ix ON skill_tool_t (host_id, tool_id);
COMMENT ON COLUMN skill_tool_t.access_level IS
    'What its tool may be while the skill uses it. read: it says that it only reads; write: it says '
    'that it destroys nothing; execute: whatever it is.';
COMMENT ON COLUMN skill_tool_t.origin IS
    'document: its SKILL.md names the tool, and the next version may not; manual: by command.';

CREATE TABLE skill_dependency_t (
    host_id            uuid NOT NULL,
    skill_id           uuid NOT NULL,
    depends_on_skill_id uuid NOT NULL,
    required           boolean NOT NULL DEFAULT true,
    origin             varchar(16) NOT NULL DEFAULT 'manual'
        CHECK (origin IN ('manual', 'document')),
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, skill_id, depends_on_skill_id),
    CHECK (skill_id <> depends_on_skill_id),
    FOREIGN KEY (host_id, skill_id) REFERENCES skill_t ON DELETE CASCADE,
    FOREIGN KEY (host_id, depends_on_skill_id) REFERENCES skill_t ON DELETE CASCADE
);
CREATE INDEX skill_dependency_on_ix ON skill_dependency_t (host_id, depends_on_skill_id);
COMMENT ON COLUMN skill_dependency_t.required IS
    'Loaded before the skill that needs it; otherwise only named there.';

CREATE TABLE agent_definition_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    agent_def_id       uuid NOT NULL DEFAULT gen_random_uuid(),
    name               varchar(126) NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]*$'),
    description        text NOT NULL DEFAULT '',
    model_provider     varchar(64),
    model_name         varchar(126),
    temperature        numeric(3, 2),
    max_tokens         integer CHECK (max_tokens > 0),
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, agent_def_id)
);
CREATE UNIQUE INDEX agent_name_uk ON agent_definition_t (host_id, name) WHERE active;

CREATE TABLE agent_skill_t (
    host_id            uuid NOT NULL,
    agent_def_id       uuid NOT NULL,
    skill_id           uuid NOT NULL,
    config             jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(config) = 'object'),
    priority           integer NOT NULL DEFAULT 0,
    sequence_id        integer NOT NULL DEFAULT 0,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, agent_def_id, skill_id),
    FOREIGN KEY (host_id, agent_def_id) REFERENCES agent_definition_t ON DELETE CASCADE,
    FOREIGN KEY (host_id, skill_id) REFERENCES skill_t ON DELETE CASCADE
);
CREATE INDEX agent_skill_skill_ix ON agent_skill_t (host_id, skill_id);
COMMENT ON TABLE agent_skill_t IS
    'The skills of an agent: greater priority first, then smaller sequence_id, then the name.';

-- No circles, whoever writes. The row of the tenant is locked: two transactions could each add one
-- half of a circle that neither of them sees.
CREATE FUNCTION skill_dependency_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM host_t WHERE host_id = NEW.host_id FOR NO KEY UPDATE;
    IF EXISTS (
        WITH RECURSIVE needed (skill_id) AS (
            SELECT NEW.depends_on_skill_id
            UNION
            SELECT dependency.depends_on_skill_id
            FROM needed JOIN skill_dependency_t AS dependency
                ON (dependency.host_id, dependency.skill_id) = (NEW.host_id, needed.skill_id)
        )
        SELECT FROM needed WHERE skill_id = NEW.skill_id
    ) THEN
        RAISE EXCEPTION 'skill % would depend on itself', (
            SELECT name FROM skill_t WHERE (host_id, skill_id) = (NEW.host_id, NEW.skill_id))
            USING ERRCODE = 'check_violation', CONSTRAINT = 'skill_dependency_circle';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER skill_dependency_check AFTER INSERT OR UPDATE ON skill_dependency_t
    FOR EACH ROW EXECUTE FUNCTION skill_dependency_check();

CREATE FUNCTION skill_parent_check() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM host_t WHERE host_id = NEW.host_id FOR NO KEY UPDATE;
    IF EXISTS (
        WITH RECURSIVE above (skill_id) AS (
            SELECT NEW.parent_skill_id
            UNION
            SELECT skill.parent_skill_id
            FROM above JOIN skill_t AS skill
                ON (skill.host_id, skill.skill_id) = (NEW.host_id, above.skill_id)
        )
        SELECT FROM above WHERE skill_id = NEW.skill_id
    ) THEN
        RAISE EXCEPTION 'skill % would be its own parent', NEW.name
            USING ERRCODE = 'check_violation', CONSTRAINT = 'skill_parent_circle';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER skill_parent_insert AFTER INSERT ON skill_t
    FOR EACH ROW WHEN (NEW.parent_skill_id IS NOT NULL) EXECUTE FUNCTION skill_parent_check();
CREATE TRIGGER skill_parent_update AFTER UPDATE OF parent_skill_id ON skill_t
    FOR EACH ROW WHEN (NEW.parent_skill_id IS DISTINCT FROM OLD.parent_skill_id
        AND NEW.parent_skill_id IS NOT NULL) EXECUTE FUNCTION skill_parent_check();

-- Catalogs hold all of it but the files and the older versions.
DO $$
DECLARE told text;
BEGIN
    FOREACH told IN ARRAY ARRAY['skill', 'skill_tool', 'skill_dependency', 'agent_definition',
        'agent_skill']
    LOOP
        EXECUTE format($trigger$
            CREATE TRIGGER %1$s_notify_insert AFTER INSERT ON %1$s_t
                REFERENCING NEW TABLE AS new_row
                FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
            CREATE TRIGGER %1$s_notify_update AFTER UPDATE ON %1$s_t
                REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
                FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
            CREATE TRIGGER %1$s_notify_delete AFTER DELETE ON %1$s_t
                REFERENCING OLD TABLE AS old_row
                FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
            $trigger$, told);
    END LOOP;
END $$;

-- What the vector of a skill depends on. Of its instructions the beginning is enough to know it by.
CREATE FUNCTION skill_source_text(name text, description text, content_markdown text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN concat_ws(E'\n',
        source_line('name', name),
        source_line('description', description),
        source_line('instructions', left(content_markdown, 1000)));

CREATE OR REPLACE VIEW entity_source_v AS
SELECT host_id, 'tool'::varchar(32) AS entity_type, tool_id AS entity_id, active,
    tool_source_text(name, title, description, api_method, api_endpoint, routing_domain,
        semantic_namespace, source_protocol, target_personas,
        source_of_tool(host_id, endpoint_id, source_api_id), tags, tool_metadata, input_schema
    ) AS source_text
FROM tool_t
UNION ALL
SELECT host_id, 'skill'::varchar(32), skill_id, active,
    skill_source_text(name, description, content_markdown)
FROM skill_t;

-- What its words are: see migration 0009.
CREATE VIEW skill_search_v AS
SELECT host_id, skill_id AS entity_id, active AS live, name::text AS name, NULL::text AS title,
    description::text AS description, ''::text AS source, NULL::text AS tags,
    NULL::text AS parameters, left(content_markdown, 4000) AS parameter_texts,
    NULL::text AS domain, NULL::text AS namespace, NULL::text AS tier,
    '{}'::text[] AS toolsets, '{}'::text[] AS scopes, 1::real AS weight
FROM skill_t;

-- An update that leaves the texts alone finds their hashes there already, and does nothing.
CREATE FUNCTION skill_found() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hosts uuid[]; ids uuid[]; hashes text[];
BEGIN
    IF TG_OP = 'DELETE' THEN
        SELECT array_agg(host_id), array_agg(skill_id) INTO hosts, ids FROM old_row;
        IF ids IS NOT NULL THEN
            PERFORM embedding_forget('skill', hosts, ids);
            PERFORM usage_forget('skill', hosts, ids);
            PERFORM search_refresh('skill', hosts, ids);
        END IF;
        RETURN NULL;
    END IF;
    SELECT array_agg(host_id), array_agg(skill_id) INTO hosts, ids FROM new_row;
    IF ids IS NOT NULL THEN
        PERFORM search_refresh('skill', hosts, ids);
    END IF;
    SELECT array_agg(host_id), array_agg(skill_id),
        array_agg(source_hash(skill_source_text(name, description, content_markdown)))
    INTO hosts, ids, hashes FROM new_row WHERE active;
    IF ids IS NOT NULL THEN
        PERFORM embedding_queue('skill', hosts, ids, hashes);
    END IF;
    SELECT array_agg(host_id), array_agg(skill_id) INTO hosts, ids FROM new_row WHERE NOT active;
    IF ids IS NOT NULL THEN
        PERFORM embedding_leave('skill', hosts, ids);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER skill_found_insert AFTER INSERT ON skill_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION skill_found();
CREATE TRIGGER skill_found_update AFTER UPDATE ON skill_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION skill_found();
CREATE TRIGGER skill_found_delete AFTER DELETE ON skill_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION skill_found();
