BEGIN TRANSACTION;
CREATE TABLE approval (
	seq            INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "approval" VALUES(1,'apr_1','exe_1','room.invite','','{"id":"@alice:example.org","kind":"user"}','command','','','','','','{"user":"@bob:example.org"}','ih','d','null','{"types":null,"groups":null,"quorum":2}','write','low','pending',1700000000000,1700003600000,0,'','','');
CREATE TABLE audit (
	seq            INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "audit" VALUES(1,'capability.requested',1700000000000,'command','@alice:example.org','user','exe_1','','room.invite','','','');
INSERT INTO "audit" VALUES(2,'capability.requested',1700000000000,'command','@alice:example.org','user','exe_2','','room.invite','','','');
INSERT INTO "audit" VALUES(3,'capability.requested',1700000000000,'command','@alice:example.org','user','exe_1','','room.invite','','','');
INSERT INTO "audit" VALUES(4,'capability.voted',1700000000000,'command','@alice:example.org','user','exe_1','','room.invite','','','');
INSERT INTO "audit" VALUES(5,'capability.requested',1700000000000,'command','@alice:example.org','user','exe_2','','room.invite','','','');
INSERT INTO "audit" VALUES(6,'capability.requested',1700000000000,'command','@alice:example.org','user','exe_2','','room.invite','','','');
CREATE TABLE execution (
	seq            INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "execution" VALUES(1,'exe_1','key/exe_1','room.invite','h','{"user":"@bob:example.org"}','','','{"id":"@alice:example.org","kind":"user"}','command','!hall:example.org','!hall:example.org|$1','$1','','','apr_1','suspended',0,'{"status":"","execution_id":""}','',1700000000000,0,1700000000000);
INSERT INTO "execution" VALUES(2,'exe_2','key/exe_2','room.invite','h','{}','','','{"id":"@alice:example.org","kind":"user"}','command','!hall:example.org','!hall:example.org|$1','$1','','','','unknown',1,'{"status":"","execution_id":""}','',1700000000000,1700000000000,1700000000000);
CREATE TABLE inbox (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "inbox" VALUES(1,'$1','!hall:example.org','@alice:example.org','m.room.message',1700000000000,1700000000000,0,0,1,'$1','command',1700000000000,'');
INSERT INTO "inbox" VALUES(2,'$2','!hall:example.org','@alice:example.org','m.room.message',1700000000000,1700000000000,0,0,0,'','',0,'{}');
INSERT INTO "inbox" VALUES(3,'bad:021fb596db81e6d02bf3d2586ee3981fe519f275c0ac9ca76bbcf2ebb4097d96','','','',0,1700000000000,0,0,2,'','',0,'{');
CREATE TABLE lane (
	class       TEXT   NOT NULL CHECK (class IN ('room', 'thread', 'control', 'outbox')),
	key         TEXT   NOT NULL,
	owner       TEXT,
	epoch       BIGINT NOT NULL DEFAULT 0,
	lease_until BIGINT NOT NULL DEFAULT 0,
	due         BIGINT,
	PRIMARY KEY (class, key)
);
INSERT INTO "lane" VALUES('room','!hall:example.org','one',1,1700000060000,1700000000000);
INSERT INTO "lane" VALUES('thread','!hall:example.org|$1',NULL,0,0,1700000000000);
INSERT INTO "lane" VALUES('outbox','!hall:example.org',NULL,0,0,1700000000000);
INSERT INTO "lane" VALUES('control','apr_1',NULL,0,0,1700000000000);
INSERT INTO "lane" VALUES('control','expire/apr_1',NULL,0,0,1700003600000);
CREATE TABLE note (
	key   TEXT   PRIMARY KEY,
	value TEXT   NOT NULL,
	at    BIGINT NOT NULL
);
INSERT INTO "note" VALUES('sync','s1',1700000000000);
CREATE TABLE outbox (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "outbox" VALUES(1,'m1','!hall:example.org','$1','message','','{"body":"hello"}','','',0,0,1700000000000,0,0,'',0);
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO "schema_version" VALUES(1);
CREATE TABLE vote (
	seq         INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "vote" VALUES(1,'apr_1','@carol:example.org','{"id":"@carol:example.org","kind":"user"}',1,'','','null',1700000000000);
CREATE TABLE work (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
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
INSERT INTO "work" VALUES(1,'message/$1','thread','!hall:example.org|$1','message','$1','',0,1700000000000,0,1,'',1700000000000);
INSERT INTO "work" VALUES(2,'announce/apr_1','control','apr_1','announce','apr_1','',0,1700000000000,0,0,'',0);
INSERT INTO "work" VALUES(3,'expire/apr_1','control','expire/apr_1','expire','apr_1','',1700003600000,1700000000000,0,0,'',0);
INSERT INTO "work" VALUES(4,'report/exe_2','thread','!hall:example.org|$1','report','exe_2','',0,1700000000000,0,0,'',0);
CREATE INDEX lane_due ON lane (class, due) WHERE due IS NOT NULL;
CREATE INDEX inbox_new ON inbox (room, seq) WHERE state = 0;
CREATE INDEX inbox_root ON inbox (room, root, seq) WHERE root <> '';
CREATE INDEX work_todo ON work (class, lane, id) WHERE state = 0;
CREATE INDEX outbox_unsent ON outbox (room, id) WHERE state = 0;
CREATE INDEX outbox_event ON outbox (event_id) WHERE event_id <> '';
CREATE INDEX outbox_card ON outbox (room, done_at) WHERE part = 'card';
CREATE INDEX execution_place ON execution (place, seq);
CREATE INDEX execution_lane ON execution (lane, seq);
CREATE INDEX execution_open ON execution (seq) WHERE state IN ('claimed', 'started');
CREATE INDEX execution_unsettled ON execution (seq) WHERE unsettled = 1;
CREATE INDEX approval_open ON approval (seq) WHERE state IN ('pending', 'approved');
CREATE INDEX approval_place ON approval (place, seq);
CREATE INDEX approval_lane ON approval (lane, seq);
CREATE INDEX audit_execution ON audit (execution_id, seq) WHERE execution_id <> '';
CREATE INDEX audit_approval ON audit (approval_id, seq) WHERE approval_id <> '';
CREATE TRIGGER audit_keep_update BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;
CREATE TRIGGER audit_keep_delete BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('inbox',3);
INSERT INTO "sqlite_sequence" VALUES('work',4);
INSERT INTO "sqlite_sequence" VALUES('outbox',1);
INSERT INTO "sqlite_sequence" VALUES('execution',2);
INSERT INTO "sqlite_sequence" VALUES('audit',6);
INSERT INTO "sqlite_sequence" VALUES('approval',1);
INSERT INTO "sqlite_sequence" VALUES('vote',1);
COMMIT;
