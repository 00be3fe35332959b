-- Ends that a message is set aside; says which key it has. Index: primary key.
DELETE FROM mainspring_asides WHERE number = ? RETURNING key
