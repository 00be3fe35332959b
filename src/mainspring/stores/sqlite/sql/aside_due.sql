-- Lets a message that is set aside be delivered at an instant. Index: primary key.
UPDATE mainspring_asides SET retry_at = ? WHERE number = ?
