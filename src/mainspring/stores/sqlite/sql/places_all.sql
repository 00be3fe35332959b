-- All places, of so many. Reads the table in its order.
SELECT scope, name, key, job, lease FROM mainspring_places LIMIT ?
