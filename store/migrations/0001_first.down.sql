DROP TABLE audit;
-- only: postgres
DROP FUNCTION audit_keep();
-- end
DROP TABLE vote;
DROP TABLE approval;
DROP TABLE execution;
DROP TABLE note;
DROP TABLE outbox;
DROP TABLE work;
DROP TABLE inbox;
DROP TABLE lane;
