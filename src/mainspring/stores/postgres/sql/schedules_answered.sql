-- What was answered to a call that moved schedules. Index: moved_pkey.
SELECT accepted FROM mainspring.moved WHERE id = $1::uuid
