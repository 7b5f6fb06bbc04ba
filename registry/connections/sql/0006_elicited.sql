-- Sessions of MCP that were asked to open a link, and are told when it has been used.
ALTER TABLE connection_ticket_t ADD COLUMN sessions text[] NOT NULL DEFAULT '{}';
