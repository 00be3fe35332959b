-- Whether anything of a partition is set aside: whose first has a time always. Index: asides_by_time.
SELECT 1 FROM mainspring_asides WHERE partition = ? AND retry_at IS NOT NULL LIMIT 1
