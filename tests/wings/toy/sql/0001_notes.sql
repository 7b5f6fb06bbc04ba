CREATE TABLE toy_note_t (
    host_id  uuid NOT NULL,
    note_id  uuid NOT NULL DEFAULT gen_random_uuid(),
    owner    text NOT NULL,
    number   integer NOT NULL,
    text     text NOT NULL,
    PRIMARY KEY (host_id, note_id),
    UNIQUE (host_id, owner, number)
);

CREATE VIEW toy_source_v AS
SELECT host_id, note_id AS entity_id, true AS active, text AS source_text FROM toy_note_t;

CREATE VIEW toy_search_v AS
SELECT host_id, note_id AS entity_id, owner, true AS live, number::text AS name,
    NULL::text AS title, text AS description, ''::text AS source, NULL::text AS tags,
    NULL::text AS parameters, NULL::text AS parameter_texts, NULL::text AS domain,
    NULL::text AS namespace, NULL::text AS tier, '{}'::text[] AS toolsets, '{}'::text[] AS scopes,
    1::real AS weight, NULL::timestamptz AS valid_from, NULL::timestamptz AS valid_to,
    '{}'::jsonb AS facets
FROM toy_note_t;

SELECT search_kind_add('toy', 'tools');
SELECT search_kind_watch('toy', 'toy_note_t', 'note_id', 'owner');
