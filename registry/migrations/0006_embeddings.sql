-- Vectors of what is searched by meaning, and the queue of texts that are to be embedded. Written
-- by triggers and by the workers of registry/embedding.
--
-- The transaction that writes an entity queues its text; workers take it from there. Nothing here
-- touches tool_t, its aggregate_version or the catalogs of gateways. Tasks and vectors are generic:
-- a kind of entity has a row in search_kind_t, a view <kind>_source_v, and triggers that call
-- embedding_queue, embedding_leave and embedding_forget (see search_kind_add, and search_kind_watch
-- in 0008_search.sql).

-- Vectors of entities and queries, whatever their kind and model (VECTOR_DIMENSION in
-- config/value_types.py). The only place in SQL that knows their length.
CREATE DOMAIN embedding_vector AS vector(384);

CREATE TABLE search_kind_t (
    entity_type        varchar(32) PRIMARY KEY CHECK (entity_type ~ '^[a-z][a-z0-9_]*$'),
    purpose            varchar(32) NOT NULL CHECK (purpose ~ '^[a-z][a-z0-9_]*$'),
    field_weights      real[] NOT NULL CHECK (cardinality(field_weights) = 7)
);
COMMENT ON TABLE search_kind_t IS
    'Kinds of entities that are embedded and searched. Written by migrations (search_kind_add).';
COMMENT ON COLUMN search_kind_t.purpose IS
    'The purpose of the embedding model of these entities, as in embedding_model_t.';
COMMENT ON COLUMN search_kind_t.field_weights IS
    'Weights of the words in name, title, description, source, tags, parameters and '
    'parameter_texts of <kind>_search_v.';

CREATE TABLE embedding_model_t (
    purpose            varchar(32) NOT NULL,
    model              varchar(128) NOT NULL CHECK (model <> ''),
    provider           varchar(32) NOT NULL,
    dimension          integer NOT NULL,
    target             boolean NOT NULL DEFAULT false,
    serving            boolean NOT NULL DEFAULT false,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (purpose, model)
);
CREATE UNIQUE INDEX embedding_model_target_uk ON embedding_model_t (purpose) WHERE target;
CREATE UNIQUE INDEX embedding_model_serving_uk ON embedding_model_t (purpose) WHERE serving;
COMMENT ON TABLE embedding_model_t IS
    'Embedding models of each purpose, for all tenants. There are two while one replaces the '
    'other: new texts are embedded with the target, and queries with the one that serves.';
COMMENT ON COLUMN embedding_model_t.purpose IS
    'What the model is for: the kinds of entities that have this purpose in search_kind_t.';
COMMENT ON COLUMN embedding_model_t.dimension IS 'Numbers in a vector of the model.';
COMMENT ON COLUMN embedding_model_t.target IS
    'The model for new texts. No row of the purpose has it: its embeddings are disabled.';
COMMENT ON COLUMN embedding_model_t.serving IS
    'Only vectors of this model are searched. The target serves once it has embedded everything.';

CREATE TABLE entity_embedding_t (
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    dimension          integer,
    source_hash        char(64) NOT NULL,
    status             varchar(16) NOT NULL
        CHECK (status IN ('pending', 'ready', 'failed', 'disabled', 'blank')),
    embedding          embedding_vector,
    error              text,
    embedded_ts        timestamptz,
    PRIMARY KEY (host_id, entity_type, entity_id, model),
    CHECK ((status = 'ready') = (embedding IS NOT NULL)),
    CHECK ((status = 'disabled') <= (model = ''))
);
COMMENT ON TABLE entity_embedding_t IS
    'Vectors of entities, of length 1, and their state. Only ready ones are searched. No row yet: '
    'disabled where no model is the target, else pending.';
COMMENT ON COLUMN entity_embedding_t.entity_type IS 'As in search_kind_t.';
COMMENT ON COLUMN entity_embedding_t.model IS
    'Empty while embeddings are disabled; the row then holds the status disabled or blank only.';
COMMENT ON COLUMN entity_embedding_t.source_hash IS
    'SHA-256 of the text (entity_source_v) that the vector is or will be made of.';

CREATE TABLE embedding_task_t (
    host_id            uuid NOT NULL,
    task_id            bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    source_hash        char(64) NOT NULL,
    status             varchar(16) NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'running', 'failed')),
    attempt_count      integer NOT NULL DEFAULT 0,
    next_attempt_ts    timestamptz NOT NULL DEFAULT current_timestamp,
    worker             varchar(64),
    last_error         text,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, task_id),
    UNIQUE (host_id, entity_type, entity_id, model)
);
-- Without a condition on the status: any row that is due is work for the next worker.
CREATE INDEX embedding_task_due_ix ON embedding_task_t (entity_type, next_attempt_ts, task_id);
COMMENT ON TABLE embedding_task_t IS
    'Texts that are to be embedded. A newer text replaces the older one in its row; finished tasks '
    'are deleted.';
COMMENT ON COLUMN embedding_task_t.attempt_count IS
    'Number of times that a worker took the task, crashes included.';
COMMENT ON COLUMN embedding_task_t.next_attempt_ts IS
    'Time from which a worker may take the task; of a running one the end of its worker''s lease. '
    'Infinity: the task failed for good.';

-- The line `label: value`, white space collapsed; null where the value is blank. COLLATE "C": the
-- hash of a text must not depend on the locale of the database.
CREATE FUNCTION source_line(label text, value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN label || ': ' || nullif(btrim(regexp_replace(value COLLATE "C", '\s+', ' ', 'g')), '');

-- Names of the top-level properties of a JSON Schema, in their order.
CREATE FUNCTION property_names(input_schema json) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN json_typeof(input_schema -> 'properties') = 'object' THEN (
        SELECT string_agg(key, ', ' ORDER BY n)
        FROM json_object_keys(input_schema -> 'properties') WITH ORDINALITY AS property (key, n)
    ) END;

-- Keywords in the metadata of a tool: a list of words, or one text; anything else is ignored.
CREATE FUNCTION semantic_keywords(tool_metadata jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE jsonb_typeof(tool_metadata #> '{routing,semanticKeywords}')
        WHEN 'string' THEN tool_metadata #>> '{routing,semanticKeywords}'
        WHEN 'array' THEN (
            SELECT string_agg(word, ', ' ORDER BY n) FROM jsonb_array_elements_text(
                tool_metadata #> '{routing,semanticKeywords}') WITH ORDINALITY AS one (word, n))
        END;

-- Text that the vector of a tool is made of; its hash decides whether the tool is embedded again.
-- The lines, their order and the omission of empty ones are fixed; the first seven are those of
-- light-portal's design. A tool without a letter or digit in name, title and description has an
-- empty text.
CREATE FUNCTION tool_source_text(
    name text, title text, description text, api_method text, api_endpoint text,
    routing_domain text, semantic_namespace text, source_protocol text, target_personas text,
    source text, tags text[], tool_metadata jsonb, input_schema json
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN concat(name, title, description) COLLATE "C" ~ '[^[:space:][:punct:]]' THEN concat_ws(
            E'\n',
            source_line('name', name),
            source_line('description', description),
            source_line('endpoint', upper(api_method) || ' ' || api_endpoint),
            source_line('domain', routing_domain),
            source_line('namespace', semantic_namespace),
            source_line('protocol', source_protocol),
            source_line('personas', target_personas),
            source_line('title', title),
            source_line('source', source),
            source_line('tags', array_to_string(tags, ', ')),
            source_line('keywords', semantic_keywords(tool_metadata)),
            source_line('parameters', property_names(input_schema)))
        ELSE '' END;

-- Text that the vector of a skill is made of: of its instructions the first 1,000 characters.
CREATE FUNCTION skill_source_text(name text, description text, content_markdown text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN concat_ws(E'\n',
        source_line('name', name),
        source_line('description', description),
        source_line('instructions', left(content_markdown, 1000)));

CREATE FUNCTION source_hash(source_text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to(source_text, 'UTF8')), 'hex');

-- Name of the source of a tool.
CREATE FUNCTION source_of_tool(host_id uuid, endpoint_id uuid, source_api_id uuid) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT api.name FROM api_t AS api
    WHERE api.host_id = source_of_tool.host_id
        AND api.api_id = coalesce(source_of_tool.source_api_id, (
            SELECT endpoint.api_id FROM api_endpoint_t AS endpoint
            WHERE (endpoint.host_id, endpoint.endpoint_id)
                = (source_of_tool.host_id, source_of_tool.endpoint_id)));
END;

CREATE VIEW tool_source_v AS
SELECT host_id, tool_id AS entity_id, active,
    tool_source_text(name, title, description, api_method, api_endpoint, routing_domain,
        semantic_namespace, source_protocol, target_personas,
        source_of_tool(host_id, endpoint_id, source_api_id), tags, tool_metadata, input_schema
    ) AS source_text
FROM tool_t;
COMMENT ON VIEW tool_source_v IS 'Tools and the texts that their vectors are made of.';

CREATE VIEW skill_source_v AS
SELECT host_id, skill_id AS entity_id, active,
    skill_source_text(name, description, content_markdown) AS source_text
FROM skill_t;
COMMENT ON VIEW skill_source_v IS 'Skills and the texts that their vectors are made of.';

-- Registers a kind of entity, and makes its view <kind>_source_v a branch of entity_source_v. For
-- migrations, also of other components.
CREATE FUNCTION search_kind_add(
    kind text, purpose text, field_weights real[] DEFAULT '{2.0, 1.0, 1.5, 1.0, 1.0, 0.6, 0.4}'
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO search_kind_t VALUES (kind, purpose, field_weights);
    EXECUTE 'CREATE OR REPLACE VIEW entity_source_v AS ' || (
        SELECT string_agg(format('SELECT host_id, %L::varchar(32) AS entity_type, entity_id,'
            ' active, source_text FROM %I', entity_type, entity_type || '_source_v'),
            ' UNION ALL ' ORDER BY entity_type)
        FROM search_kind_t);
    COMMENT ON VIEW entity_source_v IS 'Entities that have vectors, and the texts to embed.';
END $$;
SELECT search_kind_add('tool', 'tools');
SELECT search_kind_add('skill', 'tools');

-- The model that new texts of a kind are embedded with; null: embeddings are disabled.
CREATE FUNCTION target_model(kind text) RETURNS varchar
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT model.model FROM embedding_model_t AS model JOIN search_kind_t USING (purpose)
    WHERE model.target AND search_kind_t.entity_type = kind;
END;

-- Queues entities, given with the hashes of their present texts: those that do not have that text
-- yet get a task, or the status blank or disabled. Returns how many these were.
--
-- Tasks are written before vectors, in the lock order of the workers. The planner may have no
-- statistics of these tables (a first import is one transaction): the settings make it look up each
-- entity by index. Deletions are made one by one: in a join with `unnest` it may compare all pairs,
-- which of 5,000 entities took ten seconds. For one entity planning takes longer than running: the
-- statements are planned once for each connection.
CREATE FUNCTION embedding_queue(kind text, host_ids uuid[], entity_ids uuid[], hashes text[])
    RETURNS bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    blank CONSTANT text := source_hash('');
    wanted varchar;
    hosts uuid[]; ids uuid[]; texts text[];
    old record;
BEGIN
    -- Whoever changes the target waits for us, and then finds what we have written for the old one.
    PERFORM pg_advisory_xact_lock_shared(8390047142163341924);
    wanted := coalesce(target_model(kind), '');

    SELECT array_agg(given.host_id), array_agg(given.entity_id), array_agg(given.hash)
    INTO hosts, ids, texts
    FROM unnest(host_ids, entity_ids, hashes) AS given (host_id, entity_id, hash)
    WHERE (
        SELECT true FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
            = (given.host_id, kind, given.entity_id, wanted) AND had.source_hash = given.hash
        ) IS NULL;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;

    FOR old IN
        SELECT new.* FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
        WHERE (SELECT true FROM embedding_task_t AS task
            WHERE (task.host_id, task.entity_type, task.entity_id)
                    = (new.host_id, kind, new.entity_id)
                AND (task.model <> wanted OR new.hash = blank)
            LIMIT 1)
    LOOP
        DELETE FROM embedding_task_t AS task
        WHERE (task.host_id, task.entity_type, task.entity_id) = (old.host_id, kind, old.entity_id)
            AND (task.model <> wanted OR old.hash = blank);
    END LOOP;
    IF wanted <> '' THEN
        INSERT INTO embedding_task_t (host_id, entity_type, entity_id, model, source_hash)
        SELECT host_id, kind, entity_id, wanted, hash
        FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
        WHERE hash <> blank
        ORDER BY host_id, entity_id
        ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET
            source_hash = excluded.source_hash, status = 'pending', attempt_count = 0,
            next_attempt_ts = excluded.next_attempt_ts, worker = NULL, last_error = NULL,
            update_ts = current_timestamp;
        IF FOUND THEN
            PERFORM pg_notify('toolgate_embedding', '');
        END IF;
    END IF;

    -- What another model has made of an older text would be found by it.
    FOR old IN
        SELECT new.* FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
        WHERE (SELECT true FROM entity_embedding_t AS had
            WHERE (had.host_id, had.entity_type, had.entity_id) = (new.host_id, kind, new.entity_id)
                AND had.model <> wanted
            LIMIT 1)
    LOOP
        DELETE FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id) = (old.host_id, kind, old.entity_id)
            AND had.model <> wanted AND (had.source_hash <> old.hash OR had.status <> 'ready');
    END LOOP;
    INSERT INTO entity_embedding_t (host_id, entity_type, entity_id, model, source_hash, status)
    SELECT host_id, kind, entity_id, wanted, hash, CASE
        WHEN hash = blank THEN 'blank' WHEN wanted = '' THEN 'disabled' ELSE 'pending' END
    FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
    ORDER BY host_id, entity_id
    ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET
        source_hash = excluded.source_hash, status = excluded.status, embedding = NULL,
        dimension = NULL, error = NULL, embedded_ts = NULL;
    RETURN cardinality(ids);
END $$;

-- Ends the work for entities that are out of service. Finished vectors stay, and are valid again
-- when the entities return with the same text.
CREATE FUNCTION embedding_leave(kind text, host_ids uuid[], entity_ids uuid[])
    RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(8390047142163341924);
    FOR nth IN 1 .. coalesce(cardinality(entity_ids), 0) LOOP
        DELETE FROM embedding_task_t AS task
        WHERE (task.host_id, task.entity_type, task.entity_id)
            = (host_ids[nth], kind, entity_ids[nth]);
    END LOOP;
    FOR nth IN 1 .. coalesce(cardinality(entity_ids), 0) LOOP
        DELETE FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id)
            = (host_ids[nth], kind, entity_ids[nth]) AND had.status <> 'ready';
    END LOOP;
END $$;

-- Deletes tasks and vectors of deleted entities.
CREATE FUNCTION embedding_forget(kind text, host_ids uuid[], entity_ids uuid[])
    RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM embedding_leave(kind, host_ids, entity_ids);
    FOR nth IN 1 .. coalesce(cardinality(entity_ids), 0) LOOP
        DELETE FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id)
            = (host_ids[nth], kind, entity_ids[nth]);
    END LOOP;
END $$;

-- Queues the tools of a statement. EXECUTE for the reason in 0005_catalog_changes.sql.
CREATE FUNCTION tool_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hosts uuid[]; ids uuid[]; hashes text[];
BEGIN
    IF TG_OP = 'DELETE' THEN
        SELECT array_agg(host_id), array_agg(tool_id) INTO hosts, ids FROM old_row;
        IF ids IS NOT NULL THEN
            PERFORM embedding_forget('tool', hosts, ids);
        END IF;
        RETURN NULL;
    END IF;

    EXECUTE 'SELECT array_agg(host_id), array_agg(tool_id), array_agg(source_hash('
        'tool_source_text(name, title, description, api_method, api_endpoint, routing_domain,'
        ' semantic_namespace, source_protocol, target_personas,'
        ' source_of_tool(host_id, endpoint_id, source_api_id), tags, tool_metadata, input_schema)))'
        ' FROM new_row AS new WHERE active'
        || CASE TG_OP WHEN 'UPDATE' THEN
            ' AND EXISTS (SELECT FROM old_row AS old'
            ' WHERE (old.host_id, old.tool_id) = (new.host_id, new.tool_id) AND'
            ' (old.active, old.name, old.title, old.description, old.endpoint_id, old.tags,'
            ' old.api_method, old.api_endpoint, old.source_protocol, old.routing_domain,'
            ' old.semantic_namespace, old.target_personas, old.tool_metadata,'
            ' old.input_schema::text) IS DISTINCT FROM'
            ' (true, new.name, new.title, new.description, new.endpoint_id, new.tags,'
            ' new.api_method, new.api_endpoint, new.source_protocol, new.routing_domain,'
            ' new.semantic_namespace, new.target_personas, new.tool_metadata,'
            ' new.input_schema::text))' ELSE '' END
    INTO hosts, ids, hashes;
    IF ids IS NOT NULL THEN
        PERFORM embedding_queue('tool', hosts, ids, hashes);
    END IF;
    IF TG_OP = 'UPDATE' THEN
        EXECUTE 'SELECT array_agg(host_id), array_agg(tool_id) FROM new_row AS new'
            ' WHERE NOT active AND EXISTS (SELECT FROM old_row AS old'
            ' WHERE (old.host_id, old.tool_id) = (new.host_id, new.tool_id) AND old.active)'
        INTO hosts, ids;
        IF ids IS NOT NULL THEN
            PERFORM embedding_leave('tool', hosts, ids);
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tool_embedding_insert AFTER INSERT ON tool_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_embedding();
CREATE TRIGGER tool_embedding_update AFTER UPDATE ON tool_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_embedding();
CREATE TRIGGER tool_embedding_delete AFTER DELETE ON tool_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_embedding();

-- Queues the tools of a source that is renamed: its name is part of their texts.
CREATE FUNCTION api_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM embedding_queue('tool', array_agg(host_id), array_agg(entity_id),
        array_agg(source_hash(source_text)))
    FROM entity_source_v
    WHERE host_id = NEW.host_id AND entity_type = 'tool' AND active AND entity_id IN (
        SELECT tool.tool_id FROM tool_t AS tool
        JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
        WHERE (endpoint.host_id, endpoint.api_id) = (NEW.host_id, NEW.api_id))
    HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER api_embedding_name AFTER UPDATE OF name ON api_t
    FOR EACH ROW WHEN (NEW.name <> OLD.name) EXECUTE FUNCTION api_embedding();
