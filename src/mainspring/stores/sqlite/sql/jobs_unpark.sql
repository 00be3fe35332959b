-- Makes a parked job claimable. Index: primary key.
UPDATE mainspring_jobs SET rank = ?, parked = NULL WHERE number = ?
