//! The log of a running answer: chunks in segments, one row a flush, gone with the turn. And the notice of the last bad ending.
//!
//! A log has no row of its own: the attempt that writes it names it, and the notice does when the attempt is gone.

use super::{Sql, Value};
use crate::{
    error::Result,
    ids::TurnId,
    limits,
    wire::{Ending, Terminal},
};

/// Appends a segment: chunks joined by line feeds, which JSON text cannot contain.
pub fn append(db: &dyn Sql, stream: &str, seg: i64, seq_from: i64, chunks: &[String]) -> Result<()> {
    let body = chunks.join("\n");
    super::fits("a stream segment", &body)?;
    insert(db, stream, seg, (seq_from, seq_from + chunks.len() as i64 - 1), &body)
}

/// Appends a chunk that no row can hold, in parts. It has no number: clients are not shown it again, the message is made from it. Returns
/// the rows it took.
pub fn append_large(db: &dyn Sql, stream: &str, seg: i64, next_seq: i64, chunk: &str) -> Result<i64> {
    let (mut rest, mut rows) = (chunk, 0);
    while !rest.is_empty() {
        let (part, more) = rest.split_at(rest.floor_char_boundary(limits::ROW_BODY));
        let last = if more.is_empty() { next_seq - 1 } else { next_seq - 2 };
        insert(db, stream, seg + rows, (next_seq, last), part)?;
        (rest, rows) = (more, rows + 1);
    }
    Ok(rows)
}

fn insert(db: &dyn Sql, stream: &str, seg: i64, (from, to): (i64, i64), body: &str) -> Result<()> {
    db.run(
        "INSERT INTO wk_seg (stream, seg, seq_from, seq_to, body) VALUES (?1, ?2, ?3, ?4, ?5)",
        &[stream.into(), seg.into(), from.into(), to.into(), Value::Text(body)],
    )
}

/// Hands out the stored chunks in order with their numbers, if they have one, a page of rows at a time.
pub fn replay(db: &dyn Sql, stream: &str, each: &mut dyn FnMut(Option<i64>, &str) -> Result<()>) -> Result<()> {
    let (mut next, mut large) = (0, String::new());
    loop {
        let page = db.all(
            "SELECT seg, seq_from, seq_to, body FROM wk_seg WHERE stream = ?1 AND seg >= ?2 ORDER BY seg LIMIT ?3",
            &[stream.into(), Value::Int(next), Value::Int(limits::REPLAY_PAGE)],
            |row| Ok((row.int(0)?, row.int(1)?, row.int(2)?, row.text(3)?)),
        )?;
        let Some((last, ..)) = page.last() else { return Ok(()) };
        next = last + 1;
        for (_, from, to, body) in &page {
            if to < from {
                large.push_str(body);
                if to + 1 == *from {
                    each(None, &std::mem::take(&mut large))?;
                }
                continue;
            }
            for (i, chunk) in body.split('\n').enumerate() {
                each(Some(from + i as i64), chunk)?;
            }
        }
    }
}

/// The name of the log that an attempt of a turn writes.
pub fn name(turn: &TurnId, attempt: u32) -> String {
    format!("{turn}.{attempt}")
}

/// The logs of a turn that hold anything, in the order of their attempts: attempt, name, segments. One look for any number of attempts.
pub fn of_turn(db: &dyn Sql, turn: &TurnId) -> Result<Vec<(u32, String, i64)>> {
    // What lies between these two is what begins with the first: `/` follows `.`.
    let (first, end) = (format!("{turn}."), format!("{turn}/"));
    // By name alone, the tenth would be before the second.
    db.all(
        "SELECT stream, count(*) FROM wk_seg WHERE stream > ?1 AND stream < ?2 GROUP BY stream ORDER BY length(stream), stream",
        &[Value::Text(&first), Value::Text(&end)],
        |row| {
            let stream = row.text(0)?;
            let attempt = stream.get(first.len()..).and_then(|n| n.parse().ok()).unwrap_or_default();
            Ok((attempt, stream, row.int(1)?))
        },
    )
}

/// Segments of a log on disk.
pub fn segments(db: &dyn Sql, stream: &str) -> Result<i64> {
    Ok(db.one("SELECT count(*) FROM wk_seg WHERE stream = ?1", &[stream.into()], |row| row.int(0))?.unwrap_or_default())
}

/// Forgets a log.
pub fn drop_stream(db: &dyn Sql, stream: &str) -> Result<()> {
    db.run("DELETE FROM wk_seg WHERE stream = ?1", &[stream.into()])
}

/// Forgets every log and the notice.
pub fn clear(db: &dyn Sql) -> Result<()> {
    db.run("DELETE FROM wk_seg", &[])?;
    db.run("DELETE FROM wk_notice", &[])
}

/// The last request that did not end well, offered to whoever was away (wire §4.14).
#[derive(Clone, Debug)]
pub struct Notice {
    /// Its log, kept for the replay.
    pub stream: String,
    /// Its last frame.
    pub terminal: Terminal,
}

/// Reads the notice.
pub fn notice(db: &dyn Sql) -> Result<Option<Notice>> {
    db.one("SELECT request_id, stream, ending, body, message_ids, continuation FROM wk_notice WHERE slot = 1", &[], |row| {
        Ok(Notice {
            stream: row.text(1)?,
            terminal: Terminal {
                id: row.text(0)?.into(),
                ending: Ending::parse(&row.text(2)?),
                body: row.text(3)?,
                message_ids: row.opt_text(4)?,
                continuation: row.int(5)? != 0,
            },
        })
    })
}

/// Puts up a notice in place of an older one.
pub fn put_notice(db: &dyn Sql, turn: &TurnId, n: &Notice) -> Result<()> {
    db.run(
        "INSERT OR REPLACE INTO wk_notice (slot, turn, request_id, stream, ending, body, message_ids, continuation) \
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        &[
            turn.as_str().into(),
            n.terminal.id.as_str().into(),
            Value::Text(&n.stream),
            n.terminal.ending.as_str().into(),
            Value::Text(&n.terminal.body),
            n.terminal.message_ids.as_deref().into(),
            n.terminal.continuation.into(),
        ],
    )
}

/// Takes the notice down, with its log.
pub fn drop_notice(db: &dyn Sql, n: &Notice) -> Result<()> {
    db.run("DELETE FROM wk_notice WHERE slot = 1", &[])?;
    drop_stream(db, &n.stream)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testkit::Db;

    #[test]
    fn the_logs_of_a_turn_are_found_among_those_of_others() {
        let steps = [&["a"][..], &["a", "ab", "A", "a-", "b"]].map(|turns| {
            let db = Db::with_tables();
            db.transaction(&mut || {
                for turn in turns {
                    (1..=30).try_for_each(|attempt| append(&db, &name(&TurnId::from(*turn), attempt), 0, 0, &["{}".into()]))?;
                }
                append(&db, "a.10", 1, 1, &["{}".into()])
            })
            .unwrap();
            let before = db.steps();
            let found = of_turn(&db, &"a".into()).unwrap();
            let expected: Vec<_> = (1..=30).map(|n| (n, format!("a.{n}"), if n == 10 { 2 } else { 1 })).collect();
            assert_eq!(found, expected);
            db.steps() - before
        });
        assert!(steps[1] <= steps[0] + 1, "no row of another turn is looked at but the one behind: {steps:?}");
    }
}
