-- Lets all parked jobs of a task back into their lanes: the gate of its keys has changed. Index: jobs_parked.
UPDATE mainspring.jobs SET lane = home, parked = false WHERE parked AND task = $1::text
