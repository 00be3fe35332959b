-- What a new job brings with it.
INSERT INTO mainspring_payloads (
    number, max_attempts, loss_limit, policy, enqueued_at, timeout, key, unique_key, parent, facts, payload, job
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
