-- Lines of the audit log, the newest first, walking back from a place to another. Index: primary key.
SELECT id, at, who, action, about, count, outcome, detail FROM mainspring_audit NOT INDEXED
WHERE id < :after AND id > :beyond AND (:who IS NULL OR who = :who) AND (:action IS NULL OR action = :action)
ORDER BY id DESC LIMIT :limit
