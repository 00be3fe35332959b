-- Lets a queue go on; says whether it stood still. Every claim learns of it by the rules' version.
-- Indexes: pauses_pkey, rules_pkey.
WITH resumed AS (DELETE FROM mainspring.pauses WHERE queue = $1::text RETURNING queue),
told AS (UPDATE mainspring.rules SET version = version + 1 WHERE single AND EXISTS (SELECT FROM resumed))
SELECT queue FROM resumed
