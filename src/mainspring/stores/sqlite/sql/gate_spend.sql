-- Writes down what the rate of a task or queue has spent. Index: primary key.
UPDATE mainspring_gates SET spent_until = ? WHERE scope = ? AND name = ?
