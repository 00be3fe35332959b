-- The tallies of a span that begin then or later, and before another instant, by time. Index: primary key.
SELECT at, counted_by, body FROM mainspring_tallies WHERE span = ? AND at >= ? AND at < ? ORDER BY at, counted_by
