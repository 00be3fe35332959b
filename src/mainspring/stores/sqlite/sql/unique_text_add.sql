-- Remembers under which text a message is published.
INSERT INTO mainspring_unique_texts (outbox, text, number, taken_at) VALUES (?, ?, ?, ?)
