-- Asks something of a node.
INSERT INTO mainspring_orders (node, word, given_at) VALUES (?, ?, ?) RETURNING id
