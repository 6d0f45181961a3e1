//! Messages: a tree of heads, bodies split over rows so that none reaches the platform's limit.
//!
//! The active path runs from a leaf to the root along `parent`. It is always read newest first and within a byte budget, so that
//! its cost is bounded by the budget and not by the history.

use super::{Sql, Value};
use crate::{error::Result, ids::MessageId, limits, wire::message::Role};

/// A message to store.
pub struct NewMessage<'a> {
    /// Its id.
    pub id: &'a str,
    /// What it follows.
    pub parent: Option<&'a str>,
    /// Who says it.
    pub role: Role,
    /// The turn that wrote it.
    pub turn: Option<&'a str>,
    /// Its JSON text.
    pub body: &'a str,
    /// Hash of its content.
    pub hash: &'a str,
}

/// A message of the active path.
pub struct Stored {
    /// Its id.
    pub id: MessageId,
    /// Who says it.
    pub role: Role,
    /// Its JSON text.
    pub body: String,
}

/// What is known of a stored message without its body.
pub struct Head {
    /// What it follows.
    pub parent: Option<MessageId>,
    /// Who says it.
    pub role: Role,
    /// Hash of its content.
    pub hash: String,
}

fn role(text: &str) -> Role {
    Role::parse(text).unwrap_or(Role::Assistant)
}

/// Stores a new message.
pub fn insert(db: &dyn Sql, m: &NewMessage<'_>) -> Result<()> {
    db.run(
        "INSERT INTO wk_msg (id, parent, role, turn, bytes, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        &[m.id.into(), m.parent.into(), m.role.as_str().into(), m.turn.into(), Value::Int(m.body.len() as i64), m.hash.into()],
    )?;
    write_body(db, m.id, m.body)
}

/// Replaces the body of a message.
pub fn replace(db: &dyn Sql, id: &str, body: &str, hash: &str) -> Result<()> {
    db.run("UPDATE wk_msg SET bytes = ?2, hash = ?3 WHERE id = ?1", &[id.into(), Value::Int(body.len() as i64), hash.into()])?;
    let parts = pieces(body).count() as i64;
    db.run("DELETE FROM wk_msg_part WHERE id = ?1 AND n >= ?2", &[id.into(), Value::Int(parts)])?;
    write_body(db, id, body)
}

fn write_body(db: &dyn Sql, id: &str, body: &str) -> Result<()> {
    for (n, piece) in pieces(body).enumerate() {
        db.run(
            "INSERT INTO wk_msg_part (id, n, body) VALUES (?1, ?2, ?3) ON CONFLICT (id, n) DO UPDATE SET body = excluded.body",
            &[id.into(), Value::Int(n as i64), piece.into()],
        )?;
    }
    Ok(())
}

/// Cuts a body into row-sized pieces, never inside a code point.
fn pieces(body: &str) -> impl Iterator<Item = &str> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len().min(if mutant!(W34) { usize::MAX } else { limits::ROW_BODY });
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, tail) = rest.split_at(end);
        rest = tail;
        Some(piece)
    })
}

/// The path that ends in `leaf`, oldest first, as much of its newest end as fits `budget` bytes; at least the leaf.
pub fn path(db: &dyn Sql, leaf: &str, budget: usize) -> Result<Vec<Stored>> {
    let mut found: Vec<Stored> = Vec::new();
    db.exec(
        "WITH RECURSIVE path (id, parent, role, n, acc) AS ( \
           SELECT id, parent, role, 0, bytes FROM wk_msg WHERE id = ?1 \
           UNION ALL \
           SELECT m.id, m.parent, m.role, p.n + 1, p.acc + m.bytes FROM path p CROSS JOIN wk_msg m ON m.id = p.parent \
           WHERE p.acc + m.bytes <= ?2) \
         SELECT p.id, p.role, b.body FROM path p CROSS JOIN wk_msg_part b ON b.id = p.id ORDER BY p.n DESC, b.n ASC",
        &[leaf.into(), Value::Int(budget as i64)],
        &mut |row| {
            let id = row.text(0)?;
            match found.last_mut() {
                Some(last) if last.id.as_str() == id => last.body.push_str(&row.text(2)?),
                _ => found.push(Stored { id: id.into(), role: role(&row.text(1)?), body: row.text(2)? }),
            }
            Ok(())
        },
    )?;
    Ok(found)
}

/// One message.
pub fn get(db: &dyn Sql, id: &str) -> Result<Option<Stored>> {
    let mut found: Option<Stored> = None;
    db.exec(
        "SELECT m.role, b.body FROM wk_msg m CROSS JOIN wk_msg_part b ON b.id = m.id WHERE m.id = ?1 ORDER BY b.n",
        &[id.into()],
        &mut |row| {
            match found.as_mut() {
                Some(stored) => stored.body.push_str(&row.text(1)?),
                None => found = Some(Stored { id: id.into(), role: role(&row.text(0)?), body: row.text(1)? }),
            }
            Ok(())
        },
    )?;
    Ok(found)
}

/// Heads by id.
#[derive(Default)]
pub struct Heads(Vec<(String, Head)>);

impl Heads {
    /// Heads in any order.
    pub fn new(mut heads: Vec<(String, Head)>) -> Self {
        heads.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Self(heads)
    }

    /// The head of this message, if it is stored.
    pub fn get(&self, id: &str) -> Option<&Head> {
        let at = self.0.binary_search_by(|(stored, _)| stored.as_str().cmp(id)).ok()?;
        self.0.get(at).map(|(_, head)| head)
    }

    /// The ids that are stored.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(id, _)| id.as_str())
    }
}

/// The heads of those of `ids` that are stored.
pub fn heads(db: &dyn Sql, ids: &[&str]) -> Result<Heads> {
    let mut found = Vec::new();
    read_heads(db, ids, &mut found)?;
    Ok(Heads::new(found))
}

fn read_heads(db: &dyn Sql, ids: &[&str], found: &mut Vec<(String, Head)>) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let list = crate::wire::string_array(ids);
    if list.len() > limits::ROW_MAX {
        // Longer than one value may be: ask in halves.
        let (left, right) = ids.split_at(ids.len() / 2);
        read_heads(db, left, found)?;
        return read_heads(db, right, found);
    }
    db.exec(
        "SELECT m.id, m.parent, m.role, m.hash FROM json_each(?1) j CROSS JOIN wk_msg m ON m.id = j.value",
        &[Value::Text(&list)],
        &mut |row| {
            let parent = row.opt_text(1)?.map(MessageId::from);
            found.push((row.text(0)?, Head { parent, role: role(&row.text(2)?), hash: row.text(3)? }));
            Ok(())
        },
    )
}

/// The message that follows `from` on the path that ends in `leaf`, and whether a turn wrote it. `None` where `from` is not on
/// that path, or further from its end than anything that waits for an answer.
pub fn next_on_path(db: &dyn Sql, from: &str, leaf: &str) -> Result<Option<(MessageId, bool)>> {
    db.one(
        "WITH RECURSIVE up (id, parent, turn, n) AS ( \
           SELECT id, parent, turn, 0 FROM wk_msg WHERE id = ?2 \
           UNION ALL \
           SELECT m.id, m.parent, m.turn, u.n + 1 FROM up u CROSS JOIN wk_msg m ON m.id = u.parent \
           WHERE u.parent <> ?1 AND u.n < ?3) \
         SELECT id, turn IS NOT NULL FROM up WHERE parent = ?1",
        &[from.into(), leaf.into(), Value::Int(limits::APPENDED)],
        |row| Ok((row.text(0)?.into(), row.int(1)? != 0)),
    )
}

/// Lets a message follow another one.
pub fn follow(db: &dyn Sql, id: &str, parent: &str) -> Result<()> {
    db.run("UPDATE wk_msg SET parent = ?2 WHERE id = ?1", &[id.into(), parent.into()])
}

/// Forgets every message.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_msg_part", &[])?;
    db.run("DELETE FROM wk_msg", &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_row_sized_and_never_split_a_code_point() {
        let body = "aé€😀".repeat(400_000);
        let cut: Vec<&str> = pieces(&body).collect();
        assert!(cut.iter().all(|p| p.len() <= limits::ROW_BODY));
        assert_eq!(cut.concat(), body);
        assert!(cut.len() > 3);
        assert_eq!(pieces("").count(), 0);
    }
}
