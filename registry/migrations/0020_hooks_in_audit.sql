-- Hooks that ran in a call. Records of older gateways have none.
ALTER TABLE audit_t ADD COLUMN hooks text;
COMMENT ON COLUMN audit_t.hooks IS
    'JSON: name, version, changed arguments (JSON Pointers) and microseconds of each hook that ran.';
