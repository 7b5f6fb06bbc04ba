-- Skills: instructions for a kind of work together with the tools for it; and agents, which have
-- some of the skills. Written by registry/skills. Names follow light-portal's agent skills.

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
COMMENT ON TABLE skill_t IS 'Skills, each with the content of the version that is served.';
COMMENT ON COLUMN skill_t.name IS 'Name by the rules of agentskills.io: at most 64 characters.';
COMMENT ON COLUMN skill_t.front_matter IS
    'Front matter of the SKILL.md, byte by byte, fences included; content_markdown follows it.';
COMMENT ON COLUMN skill_t.metadata IS 'The whole front matter as JSON.';
COMMENT ON COLUMN skill_t.number IS 'Number of the served version in skill_version_t.';
COMMENT ON COLUMN skill_t.version IS 'Version that the skill states of itself.';
COMMENT ON COLUMN skill_t.digest IS 'SHA-256 of the SKILL.md and the other files.';
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
    'All contents that a skill had, the present one included; number counts from 1.';

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
COMMENT ON TABLE skill_file_t IS
    'Files beside the SKILL.md of a version. They are served, never executed.';
COMMENT ON COLUMN skill_file_t.digest IS 'SHA-256 of the content.';
COMMENT ON COLUMN skill_file_t.size IS 'Bytes.';

CREATE TABLE skill_tool_t (
    host_id            uuid NOT NULL,
    skill_id           uuid NOT NULL,
    tool_id            uuid NOT NULL,
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
COMMENT ON TABLE skill_tool_t IS 'Tools of a skill, in the order of sequence_id.';
COMMENT ON COLUMN skill_tool_t.access_level IS
    'Hints that the tool must have while the skill uses it. read: read-only; write: not '
    'destructive; execute: any.';
COMMENT ON COLUMN skill_tool_t.origin IS
    'document: the SKILL.md names the tool, and its next version may not; manual: by command.';

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
COMMENT ON TABLE skill_dependency_t IS
    'Skills that a skill builds on. A trigger refuses circular dependencies.';
COMMENT ON COLUMN skill_dependency_t.required IS
    'True: loaded before the skill that needs it; false: only mentioned there.';
COMMENT ON COLUMN skill_dependency_t.origin IS 'As in skill_tool_t.';

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
COMMENT ON TABLE agent_definition_t IS 'Agents: a name, and the model that they are run with.';
COMMENT ON COLUMN agent_definition_t.max_tokens IS 'Limit of an answer, tokens of the model.';

CREATE TABLE agent_skill_t (
    host_id            uuid NOT NULL,
    agent_def_id       uuid NOT NULL,
    skill_id           uuid NOT NULL,
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
    'Skills of an agent: greater priority first, then smaller sequence_id, then the name.';

-- Refuses circular dependencies. The row of the tenant is locked, because two concurrent
-- transactions could each add one half of a circle that neither of them sees.
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

-- Refuses circular parents, in the same way.
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
