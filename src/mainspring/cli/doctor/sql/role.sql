-- Who we are, what we may do about the tables, and which rights on them a worker would miss: "INSERT on jobs".
SELECT
    current_user::text,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
    pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE'),
    pg_get_userbyid(relowner)::text,
    ARRAY(
        SELECT wanted || ' on ' || things.relname
        FROM pg_class AS things CROSS JOIN unnest(
            CASE things.relkind
                WHEN 'S' THEN ARRAY['USAGE']
                WHEN 'i' THEN ARRAY[]::text[]
                WHEN 'I' THEN ARRAY[]::text[]
                ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']
            END
        ) AS wanted
        WHERE things.relnamespace = versions.relnamespace AND things.relname = ANY ($1::text[])
            AND NOT CASE things.relkind
                WHEN 'S' THEN has_sequence_privilege(things.oid, wanted) ELSE has_table_privilege(things.oid, wanted)
            END
        ORDER BY things.relname, wanted
    )
FROM pg_class AS versions WHERE oid = 'mainspring.versions'::regclass
