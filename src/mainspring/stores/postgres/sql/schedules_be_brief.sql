-- Has the rest of the transaction wait for a lock no longer than this.
SELECT set_config('lock_timeout', $1::text, true)
