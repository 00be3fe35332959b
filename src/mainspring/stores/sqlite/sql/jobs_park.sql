-- Takes a waiting job out of the indexes of claimable jobs. Index: primary key.
UPDATE mainspring_jobs SET rank = NULL, parked = ? WHERE number = ?
