-- When a lock was last acquired or extended: `expires_at` less this is its ttl. A lock that was granted later than now
-- was granted while the clock was ahead; an acquire makes it expire one ttl from now. NULL: not known.
-- oldest code: 7

ALTER TABLE mainspring.locks ADD COLUMN granted_at timestamptz;
