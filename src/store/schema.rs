//! The tables, as numbered migrations. A migration that shipped is never edited.
//!
//! Primary keys are text and tables (but `wk_notice`, which is one slot) have no rowid, so that a row costs one write. Index entries
//! are writes too: there is one index for live turns, one that allows a single open attempt, one to find a call by its id, one for
//! calls that may become overdue, and for submissions one by key, one for their order, and one for those that are not final.

use super::{Sql, Value};
use crate::error::Result;

/// Each entry is one version; each string one statement.
const MIGRATIONS: &[&[&str]] = &[
    &[
        "CREATE TABLE wk_msg (id TEXT PRIMARY KEY, parent TEXT, role TEXT NOT NULL, turn TEXT, bytes INTEGER NOT NULL, hash TEXT NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE wk_msg_part (id TEXT NOT NULL, n INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (id, n)) STRICT, WITHOUT ROWID",
        "CREATE TABLE wk_turn (id TEXT PRIMARY KEY, seq INTEGER NOT NULL, generation INTEGER NOT NULL, root_request_id TEXT NOT NULL, \
     request_id TEXT NOT NULL, kind TEXT NOT NULL, trigger TEXT NOT NULL, state TEXT NOT NULL, park_set TEXT, user_msg TEXT, \
     assistant_msg TEXT, branch_parent TEXT, attempt INTEGER NOT NULL DEFAULT 0, since_progress INTEGER NOT NULL DEFAULT 0, \
     interrupted INTEGER NOT NULL DEFAULT 0, transient INTEGER NOT NULL DEFAULT 0, progress_retired INTEGER NOT NULL DEFAULT 0, \
     progress_seen INTEGER NOT NULL DEFAULT 0, work_base INTEGER NOT NULL DEFAULT 0, last_progress_at INTEGER, next_at INTEGER, \
     cancel INTEGER NOT NULL DEFAULT 0, yields INTEGER NOT NULL DEFAULT 0, chain INTEGER NOT NULL DEFAULT 0, reason TEXT, body TEXT, client_tools TEXT, metadata TEXT, origin_ids TEXT, submission_id TEXT, \
     created_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER) STRICT, WITHOUT ROWID",
        "CREATE INDEX wk_turn_live ON wk_turn (seq) WHERE ended_at IS NULL",
        "CREATE TABLE wk_attempt (turn TEXT NOT NULL, n INTEGER NOT NULL, boot TEXT NOT NULL, request_id TEXT NOT NULL, stream TEXT NOT NULL, \
     kind TEXT NOT NULL, started_at INTEGER NOT NULL, ended_at INTEGER, outcome TEXT, PRIMARY KEY (turn, n)) STRICT, WITHOUT ROWID",
        "CREATE UNIQUE INDEX wk_attempt_open ON wk_attempt ((0)) WHERE ended_at IS NULL",
        "CREATE TABLE wk_seg (stream TEXT NOT NULL, seg INTEGER NOT NULL, seq_from INTEGER NOT NULL, seq_to INTEGER NOT NULL, \
     body TEXT NOT NULL, PRIMARY KEY (stream, seg)) STRICT, WITHOUT ROWID",
        "CREATE TABLE wk_call (message_id TEXT NOT NULL, call_id TEXT NOT NULL, turn TEXT NOT NULL, step INTEGER NOT NULL, \
     ordinal INTEGER NOT NULL, name TEXT NOT NULL, site TEXT NOT NULL, effect TEXT NOT NULL, state TEXT NOT NULL, outcome TEXT, \
     idem_key TEXT, boot TEXT, claims INTEGER NOT NULL DEFAULT 0, input TEXT, output TEXT, result_hash TEXT, settled_by TEXT, \
     auto_continue INTEGER NOT NULL DEFAULT 0, approval_id TEXT, approved INTEGER, approval_reason TEXT, deadline_at INTEGER, \
     child_run TEXT, created_at INTEGER NOT NULL, settled_at INTEGER, PRIMARY KEY (message_id, call_id)) STRICT, WITHOUT ROWID",
        "CREATE INDEX wk_call_id ON wk_call (call_id)",
        "CREATE TABLE wk_continuation (request_id TEXT PRIMARY KEY, turn TEXT NOT NULL, leaf_msg TEXT NOT NULL, conn TEXT, \
     client_tools TEXT, state TEXT NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE wk_outbox (id TEXT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, due_at INTEGER NOT NULL, \
     claims INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID",
        "CREATE TABLE wk_notice (slot INTEGER PRIMARY KEY, turn TEXT NOT NULL, request_id TEXT NOT NULL, stream TEXT NOT NULL, \
     ending TEXT NOT NULL, body TEXT NOT NULL, message_ids TEXT, continuation INTEGER NOT NULL) STRICT",
    ],
    &[
        "ALTER TABLE wk_call ADD COLUMN wait_ms INTEGER",
        "CREATE INDEX wk_call_deadline ON wk_call (deadline_at) WHERE deadline_at IS NOT NULL",
        // Messages last: reading the other columns does not read what they take up.
        "CREATE TABLE wk_submission (id TEXT PRIMARY KEY, idem_key TEXT, seq INTEGER NOT NULL, status TEXT NOT NULL, metadata TEXT, \
     error TEXT, message_id TEXT, chain INTEGER NOT NULL DEFAULT 0, applied_at INTEGER, created_at INTEGER NOT NULL, \
     started_at INTEGER, completed_at INTEGER, messages TEXT) STRICT, WITHOUT ROWID",
        "CREATE UNIQUE INDEX wk_submission_key ON wk_submission (idem_key) WHERE idem_key IS NOT NULL",
        "CREATE INDEX wk_submission_seq ON wk_submission (seq)",
        "CREATE INDEX wk_submission_live ON wk_submission (seq) WHERE completed_at IS NULL",
    ],
    &["ALTER TABLE wk_turn ADD COLUMN last_attempt_at INTEGER"],
    &["ALTER TABLE wk_turn ADD COLUMN claims INTEGER NOT NULL DEFAULT 0", "ALTER TABLE wk_turn ADD COLUMN stash TEXT"],
];

/// Brings the tables to this version. `false` if a newer one wrote them: guessing what its rows mean would lose data (`recovery.md`
/// §1.1, version skew).
///
/// # Errors
/// The database failed.
pub fn migrate(db: &dyn Sql) -> Result<bool> {
    db.run("CREATE TABLE IF NOT EXISTS wk_meta (k TEXT PRIMARY KEY, v TEXT NOT NULL) STRICT, WITHOUT ROWID", &[])?;
    let version =
        db.one("SELECT v FROM wk_meta WHERE k = 'schema'", &[], |row| row.text(0))?.and_then(|v| v.parse::<usize>().ok()).unwrap_or(0);
    let newest = MIGRATIONS.len();
    if version >= newest {
        return Ok(version == newest);
    }
    for statement in MIGRATIONS.iter().skip(version).flat_map(|m| m.iter()) {
        db.run(statement, &[])?;
    }
    let text = newest.to_string();
    db.run("INSERT INTO wk_meta (k, v) VALUES ('schema', ?1) ON CONFLICT (k) DO UPDATE SET v = excluded.v", &[Value::Text(&text)])?;
    Ok(true)
}
