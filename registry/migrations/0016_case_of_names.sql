-- Names of tools, and former names, differ where only the case of a letter does. Two tools of one
-- source may have such names (registry/names/tool_names.py).
--
-- Older nodes read and call such tools. What fails there, until they are replaced, is an import that
-- renames a tool: it looks for the index tool_alias_uk of 0002_tools.sql. Nothing is written then.
DROP INDEX tool_name_uk;
CREATE UNIQUE INDEX tool_name_uk ON tool_t (host_id, name) WHERE active;
CREATE INDEX tool_folded_name_ix ON tool_t (host_id, lower(name)) WHERE active OR disabled;
DROP INDEX tool_alias_uk;
CREATE UNIQUE INDEX tool_alias_uk ON tool_alias_t (host_id, name);
