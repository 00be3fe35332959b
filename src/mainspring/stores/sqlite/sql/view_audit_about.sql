-- Lines of the audit log about one thing, the newest first, walking back from a place to another. Index: audit_by_about.
SELECT id, at, who, action, about, count, outcome, detail FROM mainspring_audit INDEXED BY mainspring_audit_by_about
WHERE about = :about AND id < :after AND id > :beyond AND (:who IS NULL OR who = :who)
    AND (:action IS NULL OR action = :action)
ORDER BY id DESC LIMIT :limit
