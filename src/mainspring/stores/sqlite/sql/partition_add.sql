-- Makes a partition of a new outbox.
INSERT INTO mainspring_partitions (id) VALUES (?)
