-- What a connection of the user's leads to: whether our tables are there, whether its role may look at them, and how
-- database and role are called. Reads the catalogue only, which everyone may, so that it cannot fail: a statement that
-- fails would take the user's transaction with it.
SELECT rules.oid IS NOT NULL, coalesce(has_schema_privilege(space.oid, 'USAGE') AND has_table_privilege(rules.oid, 'SELECT'), false),
    current_database()::text, current_user::text
FROM (VALUES ($1::text)) AS wanted (schema)
LEFT JOIN pg_catalog.pg_namespace AS space ON space.nspname = wanted.schema
LEFT JOIN pg_catalog.pg_class AS rules ON rules.relnamespace = space.oid AND rules.relname = 'rules'
