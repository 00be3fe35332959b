-- Lets a queue stand still, unless it does already; says whether. Every claim learns of it by the rules' version.
-- Indexes: pauses_pkey, rules_pkey.
WITH paused AS (
    INSERT INTO mainspring.pauses (queue, paused_at, paused_by, reason)
    VALUES ($2::text, coalesce($1::timestamptz, statement_timestamp()), $3::text, $4::text)
    ON CONFLICT (queue) DO NOTHING
    RETURNING queue
),
told AS (UPDATE mainspring.rules SET version = version + 1 WHERE single AND EXISTS (SELECT FROM paused))
SELECT queue FROM paused
