//! Single values, by name.

use super::Sql;
use crate::error::Result;

/// The newest message of the active path.
pub const LEAF: &str = "leaf";
/// Bumped by clear; what was admitted under an older one is stale.
pub const GENERATION: &str = "generation";
/// The shared state.
pub const STATE: &str = "state";
/// The custom fields of the last chat request.
pub const LAST_BODY: &str = "last_body";

/// The tools of the page that sent the last request with any.
pub const CLIENT_TOOLS: &str = "client_tools";

/// Whether an answer was ever recovered.
pub const RECOVERED: &str = "recovered";

/// The last requests from before a clear, and whether each was a continuation.
pub const CLEARED: &str = "cleared";

/// Reads a value.
pub fn get(db: &dyn Sql, key: &'static str) -> Result<Option<String>> {
    db.one("SELECT v FROM wk_meta WHERE k = ?1", &[key.into()], |row| row.text(0))
}

/// Writes a value; `None` forgets it.
pub fn set(db: &dyn Sql, key: &'static str, value: Option<&str>) -> Result<()> {
    match value {
        Some(value) => {
            super::fits(key, value)?;
            db.run(
                "INSERT INTO wk_meta (k, v) VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
                &[key.into(), value.into()],
            )
        }
        None => db.run("DELETE FROM wk_meta WHERE k = ?1", &[key.into()]),
    }
}
