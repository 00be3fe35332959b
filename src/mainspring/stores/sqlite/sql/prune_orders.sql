-- Orders that were given long ago; ids grow with the time they were given. Index: primary key.
DELETE FROM mainspring_orders WHERE id IN (SELECT id FROM mainspring_orders WHERE given_at <= ? ORDER BY id LIMIT ?)
