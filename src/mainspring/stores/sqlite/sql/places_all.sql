-- Places in the order of the table, at most so many.
SELECT scope, name, key, job, lease FROM mainspring_places LIMIT ?
