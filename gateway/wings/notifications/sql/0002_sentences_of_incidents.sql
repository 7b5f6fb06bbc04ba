ALTER TABLE notification_incident_t ADD COLUMN sentences jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN notification_incident_t.sentences IS
    'Title and detail as texts with names for their values, and the values, for translations.';
