-- One message. Numbers have no gaps, so each is looked for by itself: for a range, or a join, SQLite walks over the whole
-- table if its statistics were made when there was one message. Index: primary key.
SELECT number, published_at, type, key, traceparent, payload FROM mainspring_messages WHERE number = ?
