-- The lowest and the highest number of a job, each read and not looked for. Index: primary key.
SELECT
    (SELECT min(number) FROM mainspring_payloads NOT INDEXED),
    (SELECT max(number) FROM mainspring_payloads NOT INDEXED)
