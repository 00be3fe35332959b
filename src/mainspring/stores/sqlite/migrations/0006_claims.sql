-- The lease before the present one, written by a claim: a settle that is repeated while the job runs again is recognised by it.
-- oldest code: 5

ALTER TABLE mainspring_jobs ADD COLUMN previous_lease INTEGER;
