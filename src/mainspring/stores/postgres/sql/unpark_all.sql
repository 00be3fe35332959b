-- Makes all parked jobs of a task claimable: the gate of its keys has changed. Index: jobs_parked.
UPDATE mainspring.jobs SET parked = false WHERE parked AND task = $1::text
