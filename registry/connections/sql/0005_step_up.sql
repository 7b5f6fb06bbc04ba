-- The login that a service asks for (RFC 9470): acr_values and max_age, as parameters of a request.
ALTER TABLE connection_ticket_t ADD COLUMN login jsonb NOT NULL DEFAULT '{}';
