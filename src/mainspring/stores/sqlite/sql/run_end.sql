-- Writes how the job of a run ended, or that it goes on; whose run it was. Index: primary key.
UPDATE mainspring_runs SET state = ?, finished_at = ?, error = ? WHERE id = ? RETURNING schedule
