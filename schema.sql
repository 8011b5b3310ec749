-- The ledger: what became of each message. SQLite 3.37 or later (STRICT tables).
--
-- Look at it with any sqlite3 shell, also while a worker runs:
--
--     sqlite3 ackonce.db 'select * from ledger'              every message
--     sqlite3 ackonce.db 'select * from handled_today'       done since midnight UTC, newest first
--     sqlite3 ackonce.db 'select * from stuck'               neither done nor dead for ten minutes
--     sqlite3 ackonce.db 'select * from repeated'            came more than once
--     sqlite3 ackonce.db 'select * from failures_by_message' why it was tried again, or given up
--
-- Times end in _ms in the tables (milliseconds since 1970) and are ISO 8601 in UTC in the views.

PRAGMA application_id = 1633905457; -- 'ack1': how a ledger is told from any other SQLite file
PRAGMA user_version = 1;            -- the version of this schema; src/ledger/sqlite/migrate.rs moves older ones up

-- The namespaces of keys: one per queue unless configured. Few, and never removed.
CREATE TABLE scopes (
    id   INTEGER PRIMARY KEY,                 -- stands for the name in `messages`
    name TEXT NOT NULL UNIQUE                 -- compared bytewise
) STRICT;

-- Who claimed: one run of one process. Alive while it holds the lock on <ledger>.owners/<name>.
-- AUTOINCREMENT: an id is never used twice, so that an old claim cannot be taken for a new owner's.
CREATE TABLE owners (
    id       INTEGER PRIMARY KEY AUTOINCREMENT, -- stands for the name in `messages`
    name     TEXT NOT NULL UNIQUE,              -- host, process and a random part; also its lock file's name
    since_ms INTEGER NOT NULL                   -- when it made its first claim
) STRICT;

-- One row for each (scope, key). The body is never stored.
--
--     (none) -- claim --> processing -- finish --> done | failed | dead
--     failed, dead, and processing under a dead owner -- claim --> processing
--
-- No foreign keys: removing an owner would search the whole table for each one. The writer keeps
-- both ids right, and removes an owner only when no row names it.
CREATE TABLE messages (
    id                INTEGER PRIMARY KEY,    -- grows with first_seen_ms; a finish finds its row by it
    scope_id          INTEGER NOT NULL,       -- scopes.id
    key               TEXT NOT NULL           -- what identifies the message in its scope, compared bytewise
                      CHECK (key <> ''),
    state             TEXT NOT NULL           -- see above; only a done row makes a message a duplicate
                      CHECK (state = 'processing' OR state = 'done' OR state = 'failed' OR state = 'dead'),
                                              -- (for `IN` SQLite would build a table anew with every change)
    attempts          INTEGER NOT NULL        -- started and not given back; counts the running one
                      CHECK (attempts >= 0),
    interrupted       INTEGER NOT NULL DEFAULT 0 -- 1: the attempt before the current (or next) one was cut off
                      CHECK (interrupted IN (0, 1)), -- by its owner's death, so it may have taken effect
    parked            INTEGER NOT NULL DEFAULT 0 -- the last attempt after which a copy of the message was
                      CHECK (parked >= 0),    -- confirmed: to wait in a delay queue, or dead; 0: none
    owner_id          INTEGER NOT NULL,       -- owners.id of the latest claim; stays when it is finished
    fingerprint       BLOB                    -- of the body: 16 bytes of its BLAKE3; NULL: any body
                      CHECK (fingerprint IS NULL OR length(fingerprint) = 16),
    duplicates        INTEGER NOT NULL DEFAULT 0 -- deliveries that were acked because this row was done
                      CHECK (duplicates >= 0),
    last_duplicate_ms INTEGER,                -- when the latest of them came
    first_seen_ms     INTEGER NOT NULL,       -- when the key was first claimed
    updated_ms        INTEGER NOT NULL,       -- when state or owner last changed: pruning goes by it
    next_attempt_ms   INTEGER,                -- of a failed row: when its next attempt is due; NULL: with its next delivery
    last_error        TEXT                    -- why the latest attempt failed or was given up; its last 1024 bytes
) STRICT;

-- THE index: a second claim of a key meets it. What it reports, and nothing else, is a duplicate.
CREATE UNIQUE INDEX messages_key ON messages (scope_id, key);

-- The attempts that failed or gave a message up: the last 10 of each message, also of one that is
-- done by now. Written with the finish of such an attempt, and by nothing else.
CREATE TABLE failures (
    id         INTEGER PRIMARY KEY,           -- grows within a message
    message_id INTEGER NOT NULL,              -- messages.id
    attempt    INTEGER NOT NULL,              -- which one it was; from 1 again after the message was dead
    ended_ms   INTEGER NOT NULL,              -- when it was recorded
    ran_ms     INTEGER                        -- how long the handler ran; NULL: it did not run
               CHECK (ran_ms IS NULL OR ran_ms >= 0),
    error      TEXT NOT NULL                  -- what it said; its last 1024 bytes
) STRICT;

CREATE INDEX failures_message ON failures (message_id);

-- However a message goes, its history goes in the same transaction: the row's id may be given to another.
CREATE TRIGGER failures_go AFTER DELETE ON messages
BEGIN
    DELETE FROM failures WHERE message_id = OLD.id;
END;

-- Every message, for people.
CREATE VIEW ledger AS
SELECT s.name AS scope,
       m.key AS message_id,
       m.state AS state,
       m.attempts AS attempts,
       m.duplicates AS duplicates,
       o.name AS owner,
       ifnull(strftime('%Y-%m-%dT%H:%M:%fZ', m.first_seen_ms / 1000.0, 'unixepoch'), m.first_seen_ms) AS first_seen,
       ifnull(strftime('%Y-%m-%dT%H:%M:%fZ', m.updated_ms / 1000.0, 'unixepoch'), m.updated_ms) AS updated,
       m.last_error AS last_error,
       ifnull(strftime('%Y-%m-%dT%H:%M:%fZ', m.last_duplicate_ms / 1000.0, 'unixepoch'), m.last_duplicate_ms)
           AS last_duplicate,
       ifnull(strftime('%Y-%m-%dT%H:%M:%fZ', m.next_attempt_ms / 1000.0, 'unixepoch'), m.next_attempt_ms)
           AS next_attempt
  FROM messages AS m
  JOIN scopes AS s ON s.id = m.scope_id
  LEFT JOIN owners AS o ON o.id = m.owner_id;

-- What was done since midnight UTC, newest first.
CREATE VIEW handled_today AS
SELECT scope, message_id, attempts, duplicates, updated AS handled
  FROM ledger
 WHERE state = 'done' AND updated >= strftime('%Y-%m-%dT00:00:00.000Z', 'now')
 ORDER BY updated DESC;

-- Neither done nor dead, and no change for ten minutes; the oldest first.
CREATE VIEW stuck AS
SELECT scope, message_id, state, attempts, owner, updated AS since, last_error
  FROM ledger
 WHERE state IN ('processing', 'failed') AND updated <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 minutes')
 ORDER BY updated;

-- Came more than once although it was done; the most frequent first.
CREATE VIEW repeated AS
SELECT scope, message_id, duplicates, first_seen, last_duplicate
  FROM ledger
 WHERE duplicates > 0
 ORDER BY duplicates DESC, last_duplicate DESC;

-- Each failed attempt, the latest of each message first.
CREATE VIEW failures_by_message AS
SELECT s.name AS scope,
       m.key AS message_id,
       m.state AS state,
       f.attempt AS attempt,
       ifnull(strftime('%Y-%m-%dT%H:%M:%fZ', f.ended_ms / 1000.0, 'unixepoch'), f.ended_ms) AS ended,
       f.ran_ms / 1000.0 AS seconds,
       f.error AS error
  FROM failures AS f
  JOIN messages AS m ON m.id = f.message_id
  JOIN scopes AS s ON s.id = m.scope_id
 ORDER BY s.name, m.key, f.id DESC;
