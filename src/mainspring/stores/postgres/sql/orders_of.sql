-- All that a node was asked to do. Index: orders_by_node.
SELECT id, node, word, given_at, done_at, answer FROM mainspring.orders WHERE node = $1::text ORDER BY id
