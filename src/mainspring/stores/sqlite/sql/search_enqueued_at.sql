-- When a job was enqueued. Index: primary key.
SELECT enqueued_at FROM mainspring_payloads WHERE number = ?
