-- Whether any place is taken anywhere.
SELECT 1 FROM mainspring_places LIMIT 1
