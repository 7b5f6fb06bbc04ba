-- Where a source came from: one that was taken out of the settings is served still, without the
-- headers and credentials that stood there, until somebody removes it.

ALTER TABLE api_t ADD COLUMN origin varchar(32);
COMMENT ON COLUMN api_t.origin IS
    'Who had it imported last: settings, example (settings of an example), cli or admin. None: made '
    'for tools by hand, or imported by a release that did not keep it.';
