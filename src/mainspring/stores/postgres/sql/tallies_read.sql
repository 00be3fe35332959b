-- The tallies of one span that begin then or later, and before another instant, where one is named. Index: tallies_pkey.
SELECT began_at, span, counted_by, body FROM mainspring.tallies
WHERE span = $1::interval AND began_at >= $2::timestamptz AND began_at < coalesce($3::timestamptz, 'infinity')
ORDER BY began_at, counted_by
