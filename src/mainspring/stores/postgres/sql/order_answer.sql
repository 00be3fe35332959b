-- Says that an order has been carried out; nothing if the node is not alive under this term.
-- Indexes: nodes_pkey, orders_pkey.
WITH living AS MATERIALIZED (
    SELECT id FROM mainspring.nodes WHERE term = $2::bigint AND id = $3::text AND alive
),
answered AS (
    UPDATE mainspring.orders SET done_at = coalesce($1::timestamptz, statement_timestamp()), answer = $5::bytea
    WHERE orders.id = $4::bigint AND orders.done_at IS NULL AND orders.node = (SELECT id FROM living)
)
SELECT id FROM living
