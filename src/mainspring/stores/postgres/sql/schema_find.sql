-- How a schema stands, as far as the catalogs tell: whether it is there, who we are and whose it is, whether we may
-- make tables in it and read its version, whether that table is ours, and which names of ours are taken.
SELECT
    spaces.oid IS NOT NULL,
    current_user::text,
    pg_get_userbyid(coalesce(tables.relowner, spaces.nspowner))::text,
    CASE
        WHEN spaces.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_schema_privilege(spaces.oid, 'CREATE')
            AND (tables.oid IS NULL OR pg_has_role(tables.relowner, 'USAGE'))
    END,
    coalesce(has_schema_privilege(spaces.oid, 'USAGE') AND has_table_privilege(tables.oid, 'SELECT'), false),
    tables.relkind = 'r' AND ARRAY(
        SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = tables.oid AND attnum > 0 AND NOT attisdropped
    ) @> ARRAY['version integer', 'oldest_code integer', 'changed_at timestamp with time zone'],
    ARRAY(
        SELECT relname::text FROM pg_class WHERE relnamespace = spaces.oid AND relname = ANY ($2::text[])
        UNION
        SELECT typname::text FROM pg_type WHERE typnamespace = spaces.oid AND typname = ANY ($2)
        ORDER BY 1
    )
FROM (SELECT $1::text AS name) AS wanted
LEFT JOIN pg_namespace AS spaces ON spaces.nspname = wanted.name
LEFT JOIN pg_class AS tables ON tables.relnamespace = spaces.oid AND tables.relname = 'versions'
