-- Drops the row of a lane and key without parked jobs. Index: primary key.
DELETE FROM mainspring_parked_keys WHERE task = ? AND key = ? AND lane = ?
