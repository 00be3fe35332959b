-- Deletes a message; one by one, as in message_read.sql. Index: primary key.
DELETE FROM mainspring_messages WHERE number = ?
