-- Says that an order has been carried out. Index: primary key.
UPDATE mainspring_orders SET done_at = ?, answer = ? WHERE id = ? AND node = ? AND done_at IS NULL
