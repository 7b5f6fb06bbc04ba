-- Notes of people: a kind of entity of its own component, with owner, expiry and facets.

CREATE TABLE note_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    note_id            uuid NOT NULL DEFAULT gen_random_uuid(),
    owner              text NOT NULL,
    content            text NOT NULL,
    topics             text[] NOT NULL DEFAULT '{}',
    expires_ts         timestamptz,
    active             boolean NOT NULL DEFAULT true,
    PRIMARY KEY (host_id, note_id)
);

CREATE VIEW note_source_v AS
SELECT host_id, note_id AS entity_id, active, content AS source_text FROM note_t;

CREATE VIEW note_search_v AS
SELECT host_id, note_id AS entity_id, owner, active AS live, left(content, 40) AS name,
    NULL::text AS title, content AS description, ''::text AS source, NULL::text AS tags,
    NULL::text AS parameters, NULL::text AS parameter_texts, NULL::text AS domain,
    NULL::text AS namespace, NULL::text AS tier, '{}'::text[] AS toolsets, '{}'::text[] AS scopes,
    1::real AS weight, NULL::timestamptz AS valid_from, expires_ts AS valid_to,
    jsonb_build_object('topics', topics) AS facets
FROM note_t;

SELECT search_kind_add('note', 'passages');
SELECT search_kind_watch('note', 'note_t', 'note_id', 'owner');
