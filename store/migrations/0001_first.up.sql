-- The first schema: lanes, inbox, work, outbox, notes; executions, approvals,
-- votes and the audit trail. Times are Unix milliseconds, UTC; 0 means unset or
-- never. JSON is TEXT. Yes and no are 1 and 0.

-- A lane is a strand of rows handled one at a time. due NULL: nothing to do.
CREATE TABLE lane (
	class       TEXT   NOT NULL CHECK (class IN ('room', 'thread', 'control', 'outbox')),
	key         TEXT   NOT NULL,
	owner       TEXT,
	epoch       BIGINT NOT NULL DEFAULT 0,
	lease_until BIGINT NOT NULL DEFAULT 0,
	due         BIGINT,
	PRIMARY KEY (class, key)
);
CREATE INDEX lane_due ON lane (class, due) WHERE due IS NOT NULL;

-- Events as the homeserver sent them. state 0: new, 1: routed, 2: bad.
CREATE TABLE inbox (
	seq         {{serial}},
	event_id    TEXT   NOT NULL UNIQUE CHECK (event_id <> ''),
	room        TEXT   NOT NULL,
	sender      TEXT   NOT NULL,
	type        TEXT   NOT NULL,
	sent_at     BIGINT NOT NULL,
	received_at BIGINT NOT NULL,
	not_before  BIGINT NOT NULL DEFAULT 0,
	attempts    BIGINT NOT NULL DEFAULT 0,
	state       BIGINT NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
	root        TEXT   NOT NULL DEFAULT '',
	note        TEXT   NOT NULL DEFAULT '',
	done_at     BIGINT NOT NULL DEFAULT 0,
	body        TEXT   NOT NULL
);
CREATE INDEX inbox_new ON inbox (room, seq) WHERE state = 0;
CREATE INDEX inbox_root ON inbox (room, root, seq) WHERE root <> '';

-- What follows from an event or a change of state. state 0: to do, 1: done, 2: dropped.
CREATE TABLE work (
	id         {{serial}},
	key        TEXT   NOT NULL UNIQUE CHECK (key <> ''),
	class      TEXT   NOT NULL,
	lane       TEXT   NOT NULL,
	kind       TEXT   NOT NULL,
	ref        TEXT   NOT NULL,
	data       TEXT   NOT NULL,
	not_before BIGINT NOT NULL,
	created    BIGINT NOT NULL,
	attempts   BIGINT NOT NULL DEFAULT 0,
	state      BIGINT NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
	note       TEXT   NOT NULL DEFAULT '',
	done_at    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX work_todo ON work (class, lane, id) WHERE state = 0;

-- What the rooms will be told. state 0: unsent, 1: sent, 2: dropped.
CREATE TABLE outbox (
	id         {{serial}},
	key        TEXT   NOT NULL UNIQUE CHECK (key <> ''),
	room       TEXT   NOT NULL,
	root       TEXT   NOT NULL,
	part       TEXT   NOT NULL,
	ref        TEXT   NOT NULL,
	content    TEXT   NOT NULL,
	waits_for  TEXT   NOT NULL,
	event_id   TEXT   NOT NULL DEFAULT '',
	first_try  BIGINT NOT NULL DEFAULT 0,
	not_before BIGINT NOT NULL DEFAULT 0,
	created    BIGINT NOT NULL,
	attempts   BIGINT NOT NULL DEFAULT 0,
	state      BIGINT NOT NULL DEFAULT 0 CHECK (state IN (0, 1, 2)),
	note       TEXT   NOT NULL DEFAULT '',
	done_at    BIGINT NOT NULL DEFAULT 0,
	CHECK ((state = 1) = (event_id <> ''))
);
CREATE INDEX outbox_unsent ON outbox (room, id) WHERE state = 0;
CREATE INDEX outbox_event ON outbox (event_id) WHERE event_id <> '';
CREATE INDEX outbox_card ON outbox (room, done_at) WHERE part = 'card';

CREATE TABLE note (
	key   TEXT   PRIMARY KEY,
	value TEXT   NOT NULL,
	at    BIGINT NOT NULL
);

-- The journal: one row per claimed request.
CREATE TABLE execution (
	seq            {{serial}},
	id             TEXT   NOT NULL UNIQUE CHECK (id <> ''),
	key            TEXT   NOT NULL UNIQUE CHECK (key <> ''),
	capability_id  TEXT   NOT NULL,
	claim_hash     TEXT   NOT NULL,
	input          TEXT   NOT NULL,
	input_hash     TEXT   NOT NULL,
	revision       TEXT   NOT NULL,
	actor          TEXT   NOT NULL,
	surface        TEXT   NOT NULL,
	place          TEXT   NOT NULL,
	lane           TEXT   NOT NULL,
	origin_ref     TEXT   NOT NULL,
	correlation_id TEXT   NOT NULL,
	trace          TEXT   NOT NULL,
	approval_id    TEXT   NOT NULL DEFAULT '',
	state          TEXT   NOT NULL CHECK (state IN ('claimed', 'suspended', 'started', 'completed', 'failed', 'cancelled', 'unknown')),
	unsettled      BIGINT NOT NULL DEFAULT 0 CHECK (unsettled IN (0, 1)),
	result         TEXT   NOT NULL DEFAULT '',
	settled        TEXT   NOT NULL DEFAULT '',
	created_at     BIGINT NOT NULL,
	started_at     BIGINT NOT NULL DEFAULT 0,
	finished_at    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX execution_place ON execution (place, seq);
CREATE INDEX execution_lane ON execution (lane, seq);
CREATE INDEX execution_open ON execution (seq) WHERE state IN ('claimed', 'started');
CREATE INDEX execution_unsettled ON execution (seq) WHERE unsettled = 1;

-- The questions put to people.
CREATE TABLE approval (
	seq            {{serial}},
	id             TEXT   NOT NULL UNIQUE CHECK (id <> ''),
	execution_id   TEXT   NOT NULL,
	capability_id  TEXT   NOT NULL,
	revision       TEXT   NOT NULL,
	actor          TEXT   NOT NULL,
	surface        TEXT   NOT NULL,
	place          TEXT   NOT NULL,
	lane           TEXT   NOT NULL,
	origin_ref     TEXT   NOT NULL,
	correlation_id TEXT   NOT NULL,
	trace          TEXT   NOT NULL,
	input          TEXT   NOT NULL,
	input_hash     TEXT   NOT NULL,
	digest         TEXT   NOT NULL,
	reasons        TEXT   NOT NULL,
	requirements   TEXT   NOT NULL,
	side_effect    TEXT   NOT NULL,
	risk           TEXT   NOT NULL,
	state          TEXT   NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'cancelled', 'superseded', 'consumed', 'stale')),
	requested_at   BIGINT NOT NULL,
	expires_at     BIGINT NOT NULL,
	decided_at     BIGINT NOT NULL DEFAULT 0,
	decided_by     TEXT   NOT NULL DEFAULT '',
	comment        TEXT   NOT NULL DEFAULT '',
	consumed_by    TEXT   NOT NULL DEFAULT '',
	CHECK ((state = 'consumed') = (consumed_by <> ''))
);
CREATE INDEX approval_open ON approval (seq) WHERE state IN ('pending', 'approved');
CREATE INDEX approval_place ON approval (place, seq);
CREATE INDEX approval_lane ON approval (lane, seq);

-- One person's answer to one approval; a later answer replaces the earlier.
CREATE TABLE vote (
	seq         {{serial}},
	approval_id TEXT   NOT NULL REFERENCES approval (id),
	person      TEXT   NOT NULL,
	actor       TEXT   NOT NULL,
	yes         BIGINT NOT NULL CHECK (yes IN (0, 1)),
	comment     TEXT   NOT NULL,
	cause       TEXT   NOT NULL,
	member_of   TEXT   NOT NULL,
	at          BIGINT NOT NULL,
	UNIQUE (approval_id, person)
);

-- The audit trail: rows are added and never changed.
CREATE TABLE audit (
	seq            {{serial}},
	type           TEXT   NOT NULL CHECK (type <> ''),
	at             BIGINT NOT NULL,
	surface        TEXT   NOT NULL,
	actor_id       TEXT   NOT NULL,
	actor_kind     TEXT   NOT NULL,
	execution_id   TEXT   NOT NULL,
	approval_id    TEXT   NOT NULL,
	capability_id  TEXT   NOT NULL,
	correlation_id TEXT   NOT NULL,
	input_hash     TEXT   NOT NULL,
	data           TEXT   NOT NULL
);
CREATE INDEX audit_execution ON audit (execution_id, seq) WHERE execution_id <> '';
CREATE INDEX audit_approval ON audit (approval_id, seq) WHERE approval_id <> '';

-- only: sqlite
CREATE TRIGGER audit_keep_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;
CREATE TRIGGER audit_keep_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;
-- end
-- only: postgres
CREATE FUNCTION audit_keep() RETURNS trigger LANGUAGE plpgsql AS
	'BEGIN RAISE EXCEPTION ''audit rows are never changed''; END';
CREATE TRIGGER audit_keep BEFORE UPDATE OR DELETE ON audit
	FOR EACH ROW EXECUTE FUNCTION audit_keep();
-- end
