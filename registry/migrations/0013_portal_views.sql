-- Tools and skills by the columns of light-portal's design, for the SQL of a portal. For reading.
--
-- A portal whose statements name `tool_t` has a schema of its own in front of this one:
--     CREATE SCHEMA portal;
--     CREATE VIEW portal.tool_t AS SELECT * FROM tool_v;
--     CREATE VIEW portal.skill_t AS SELECT * FROM skill_v;
--     SET search_path = portal, public;

-- Vectors of different models cannot be compared: these are of the model that serves, or of the
-- target where none serves yet.
CREATE VIEW entity_vector_v AS
SELECT entity.host_id, entity.entity_type, entity.entity_id,
    had.embedding AS description_embedding,
    nullif(label.model, '')::varchar(128) AS description_embedding_model,
    had.dimension AS description_embedding_dimension,
    had.source_hash AS description_embedding_source_hash,
    had.embedded_ts AS description_embedding_ts,
    coalesce(had.status, CASE WHEN label.model = '' THEN 'disabled' ELSE 'pending' END)::varchar(32)
        AS description_embedding_status,
    had.error AS description_embedding_error
FROM (
    SELECT host_id, 'tool'::varchar(32) AS entity_type, tool_id AS entity_id FROM tool_t
    UNION ALL
    SELECT host_id, 'skill'::varchar(32), skill_id FROM skill_t
) AS entity
CROSS JOIN (
    SELECT coalesce((
        SELECT model FROM embedding_model_t WHERE purpose = 'tools' AND (serving OR target)
        ORDER BY serving DESC LIMIT 1
    ), '') AS model
) AS label
LEFT JOIN entity_embedding_t AS had
    ON (had.host_id, had.entity_type, had.entity_id, had.model)
        = (entity.host_id, entity.entity_type, entity.entity_id, label.model);
COMMENT ON VIEW entity_vector_v IS
    'Vectors of tools and skills, with the column names of light-portal''s design.';

CREATE VIEW tool_v AS
SELECT tool.host_id, tool.tool_id, tool.endpoint_id, tool.name, tool.title, tool.description,
    tool.description_source, tool.description_manual_override, tool.description_override_ts,
    tool.description_override_user, tool.implementation_type,
    CASE tool.binding ->> 'type' WHEN 'function' THEN tool.binding ->> 'name'
        WHEN 'hybrid' THEN tool.binding ->> 'service' WHEN 'python' THEN tool.binding ->> 'service'
        END AS implementation_class,
    CASE tool.binding ->> 'type' WHEN 'mcp' THEN api.name END AS mcp_server_name,
    tool.api_endpoint, tool.api_method,
    CASE tool.binding ->> 'type' WHEN 'script' THEN tool.binding ->> 'source' END AS script_content,
    tool.source_protocol, tool.input_schema, tool.output_schema, tool.annotations, tool.tags,
    tool.tool_metadata, tool.routing_domain, tool.semantic_namespace, tool.sensitivity_tier,
    tool.semantic_weight, tool.lifecycle_status, tool.cost_tier, tool.target_personas,
    vector.description_embedding, vector.description_embedding_model,
    vector.description_embedding_dimension, vector.description_embedding_source_hash,
    vector.description_embedding_ts, vector.description_embedding_status,
    vector.description_embedding_error,
    tool.version, tool.aggregate_version, tool.active, tool.update_ts, tool.update_user
FROM tool_t AS tool
LEFT JOIN entity_vector_v AS vector
    ON (vector.host_id, vector.entity_type, vector.entity_id)
        = (tool.host_id, 'tool', tool.tool_id)
LEFT JOIN api_endpoint_t AS endpoint
    ON (endpoint.host_id, endpoint.endpoint_id) = (tool.host_id, tool.endpoint_id)
LEFT JOIN api_t AS api
    ON (api.host_id, api.api_id) = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id));
COMMENT ON VIEW tool_v IS 'Tools by the columns of light-portal''s design. For reading only.';
COMMENT ON COLUMN tool_v.implementation_class IS
    'What runs it: of a Python function its name in `functions` of the settings, of an action of a '
    'hybrid service host/service/action/version; of others none.';
COMMENT ON COLUMN tool_v.mcp_server_name IS 'The source, of a tool of another MCP server.';
COMMENT ON COLUMN tool_v.script_content IS 'The source code, of a tool that is a script.';

CREATE VIEW skill_v AS
SELECT skill.host_id, skill.skill_id, skill.parent_skill_id, skill.name, skill.description,
    skill.content_markdown, vector.description_embedding, vector.description_embedding_model,
    vector.description_embedding_dimension, vector.description_embedding_source_hash,
    vector.description_embedding_ts, vector.description_embedding_status,
    vector.description_embedding_error,
    skill.version, skill.aggregate_version, skill.active, skill.update_ts, skill.update_user
FROM skill_t AS skill
LEFT JOIN entity_vector_v AS vector
    ON (vector.host_id, vector.entity_type, vector.entity_id)
        = (skill.host_id, 'skill', skill.skill_id);
COMMENT ON VIEW skill_v IS 'Skills by the columns of light-portal''s design. For reading only.';
