//! What a posted transcript changes (`turns-and-tools.md` §4.3): the stored one wins.
//!
//! Clients post all they have. Of that, only user messages the object does not know are added, and the last message may be an edit
//! of one it does. Posted assistant and system messages change nothing (decision 7): a page that could write them could make the
//! model believe a payment was approved.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Value, value::RawValue};

use super::sanitise;
use crate::{
    limits,
    store::messages::Heads,
    wire::{
        self,
        message::{Role, UiMessage},
    },
};

/// The id and role of a posted message.
#[derive(Debug)]
pub struct Posted<'a> {
    /// Its id.
    pub id: Cow<'a, str>,
    /// Who says it.
    pub role: Role,
    /// Its text.
    pub raw: &'a RawValue,
}

/// What to do with a posted transcript.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// New messages, to be chained behind the leaf in this order.
    pub insert: Vec<Taken>,
    /// A stored message whose content changes; what followed it leaves the path.
    pub edit: Option<Taken>,
    /// What the turn answers.
    pub target: Target,
    /// The ids of the user messages the transcript ends with.
    pub origin_ids: Vec<String>,
    /// Messages that were not taken, with the reason.
    pub ignored: Vec<(String, &'static str)>,
}

/// A message that is taken, and its text: the text it came in, wherever nothing had to be taken out of it.
#[derive(Debug, PartialEq)]
pub struct Taken {
    /// The message.
    pub message: UiMessage,
    /// Its JSON text.
    pub body: String,
}

impl Taken {
    /// A message of the application, with the text made from it.
    pub fn whole(message: &UiMessage) -> Self {
        Self { message: message.clone(), body: message.json() }
    }
}

/// What a turn answers.
#[derive(Debug, Default, PartialEq)]
pub enum Target {
    /// Whatever the path ends with once the new messages are in.
    #[default]
    Leaf,
    /// A stored message, anew.
    Branch(String),
}

/// Reads ids and roles of a posted transcript.
///
/// # Errors
/// A sentence about the first message that is none.
pub fn read(messages: &[Box<RawValue>]) -> Result<Vec<Posted<'_>>, String> {
    messages
        .iter()
        .enumerate()
        .map(|(n, raw)| {
            let (id, role) = wire::id_and_role(raw.get()).ok_or_else(|| format!("message {n} is no UI message"))?;
            let role = Role::parse(&role).ok_or_else(|| format!("message {n}: there is no role `{role}`"))?;
            if id.is_empty() || id.len() > limits::ID {
                return Err(format!("message {n}: an id must have 1 to {} bytes", limits::ID));
            }
            Ok(Posted { id, role, raw })
        })
        .collect()
}

/// Decides what a posted transcript changes. `stored` holds the heads of those posted ids that exist.
///
/// # Errors
/// A sentence about the message that cannot be taken; nothing is stored then.
pub fn plan(posted: &[Posted<'_>], stored: &Heads, regenerate: bool, takes_assistant_text: bool) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut seen = BTreeSet::new();
    for p in posted.iter().rev().take_while(|p| p.role == Role::User).filter(|p| seen.insert(&*p.id)) {
        plan.origin_ids.push(p.id.clone().into_owned());
    }
    plan.origin_ids.reverse();
    let mut new = BTreeSet::new();
    let said: Vec<&Posted<'_>> = posted.iter().filter(|p| p.role != Role::System).collect();
    let last = said.last().map(|p| p.id.clone());
    for p in posted {
        let is_last = last.as_ref() == Some(&p.id);
        match (p.role, stored.get(&p.id)) {
            (Role::System, _) => plan.ignored.push((p.id.clone().into_owned(), "system messages are not taken from clients")),
            (Role::Assistant, None) if takes_assistant_text && !regenerate => match client_message(p) {
                Ok(taken) if taken.message.parts.iter().all(|part| wire::message::part_type(part) == "text") && new.insert(&*p.id) => {
                    plan.insert.push(taken);
                }
                _ => plan.ignored.push((p.id.clone().into_owned(), "the assistant message is not only text")),
            },
            (Role::Assistant, _) => {}
            (Role::User, Some(head)) if head.role != Role::User => {
                plan.ignored.push((p.id.clone().into_owned(), "the stored message has another role"));
            }
            (Role::User, Some(head)) if is_last && !regenerate => {
                let taken = client_message(p)?;
                if sanitise::content_hash(&taken.message) != head.hash {
                    plan.edit = Some(taken);
                }
            }
            (Role::User, Some(_)) => {}
            (Role::User, None) if !new.insert(&*p.id) => {
                plan.ignored.push((p.id.clone().into_owned(), "the id is posted twice"));
            }
            (Role::User, None) => plan.insert.push(client_message(p)?),
        }
    }
    if let Some(edit) = plan.edit.take_if(|_| !plan.insert.is_empty()) {
        // An edit ends the path at its message; with new ones behind it, that would be both.
        plan.ignored.push((edit.message.id, "an edit and new messages are posted together"));
    }
    // The last message decides what is answered. One that was there before is answered anew; a new one, an assistant message, or
    // none at all leaves it to the end of the path.
    if let Some(last) = said.last()
        && stored.get(&last.id).is_some_and(|head| head.role == last.role)
        && (last.role == Role::User || regenerate)
    {
        plan.target = Target::Branch(last.id.clone().into_owned());
    }
    Ok(plan)
}

/// Several user messages as one: everything but text in order, and the texts with a blank line between them. It keeps the id and
/// metadata of `newest`.
pub fn collapse(all: &[UiMessage], mut newest: UiMessage) -> UiMessage {
    let parts = all.iter().flat_map(|message| &message.parts);
    newest.parts = parts.filter(|part| wire::message::part_type(part) != "text").cloned().collect();
    let texts: Vec<String> = all.iter().map(UiMessage::text).filter(|text| !text.is_empty()).collect();
    if !texts.is_empty() {
        newest.parts.push(wire::message::text_part(texts.join("\n\n")));
    }
    newest
}

fn client_message(posted: &Posted<'_>) -> Result<Taken, String> {
    let raw = posted.raw.get();
    if raw.len() > limits::USER_MESSAGE {
        return Err(format!(
            "message {} has {} bytes, limit {} (limits::USER_MESSAGE): attach less, or link to it",
            posted.id,
            raw.len(),
            limits::USER_MESSAGE
        ));
    }
    let value: Value = serde_json::from_str(raw).map_err(|e| format!("message {} cannot be read: {e}", posted.id))?;
    let mut message = UiMessage::from_client(value).map_err(|e| format!("message {}: {e}", posted.id))?;
    let changed = sanitise::strip_reserved(&mut message) | sanitise::sanitise(&mut message);
    let body = if changed { message.json() } else { raw.to_string() };
    Ok(Taken { message, body })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::messages::Head;
    use serde_json::json;

    fn raws(messages: &Value) -> Vec<Box<RawValue>> {
        messages.as_array().unwrap().iter().map(|m| RawValue::from_string(m.to_string()).unwrap()).collect()
    }

    fn user(id: &str, text: &str) -> Value {
        json!({"id":id,"role":"user","parts":[{"type":"text","text":text}]})
    }

    fn assistant(id: &str) -> Value {
        json!({"id":id,"role":"assistant","parts":[{"type":"text","text":"hello"}]})
    }

    /// Stored: u1 (text `one`), a1.
    fn stored() -> Heads {
        let hash = sanitise::content_hash(&UiMessage::from_client(user("u1", "one")).unwrap());
        Heads::new(vec![
            ("u1".to_string(), Head { parent: None, role: Role::User, hash }),
            ("a1".to_string(), Head { parent: Some("u1".into()), role: Role::Assistant, hash: "x".into() }),
        ])
    }

    #[test]
    fn a_posted_transcript_adds_user_messages_and_edits_the_last_and_nothing_else() {
        let table = [
            // name, posted, regenerate: inserted, edited, target, origin
            ("first", json!([user("u9", "hi")]), false, vec!["u9"], None, Target::Leaf, vec!["u9"]),
            (
                "next",
                json!([user("u1", "one"), assistant("a1"), user("u2", "two")]),
                false,
                vec!["u2"],
                None,
                Target::Leaf,
                vec!["u2"],
            ),
            ("two at once", json!([user("u2", "x"), user("u3", "y")]), false, vec!["u2", "u3"], None, Target::Leaf, vec!["u2", "u3"]),
            // wire 132
            ("edit", json!([user("u1", "changed")]), false, vec![], Some("u1"), Target::Branch("u1".into()), vec!["u1"]),
            // a retry of the same message answers it anew and adds nothing
            ("again", json!([user("u1", "one")]), false, vec![], None, Target::Branch("u1".into()), vec!["u1"]),
            // field A-03: an earlier copy does not rewrite what is stored
            (
                "old copy",
                json!([user("u1", "changed"), assistant("a1"), user("u2", "x")]),
                false,
                vec!["u2"],
                None,
                Target::Leaf,
                vec!["u2"],
            ),
            // wire 130
            ("regenerate", json!([user("u1", "one")]), true, vec![], None, Target::Branch("u1".into()), vec!["u1"]),
            ("regenerate never edits", json!([user("u1", "changed")]), true, vec![], None, Target::Branch("u1".into()), vec!["u1"]),
            ("empty", json!([]), false, vec![], None, Target::Leaf, vec![]),
            // wire X4
            ("ends in the assistant", json!([user("u1", "one"), assistant("a1")]), false, vec![], None, Target::Leaf, vec![]),
            // wire 133, field A-03
            ("foreign assistant", json!([user("u1", "one"), assistant("zz")]), false, vec![], None, Target::Leaf, vec![]),
            (
                "system",
                json!([{"id":"s","role":"system","parts":[]}, user("u2", "x")]),
                false,
                vec!["u2"],
                None,
                Target::Leaf,
                vec!["u2"],
            ),
            ("role lies", json!([{"id":"a1","role":"user","parts":[]}]), false, vec![], None, Target::Leaf, vec!["a1"]),
            ("id twice", json!([user("u2", "x"), user("u2", "y")]), false, vec!["u2"], None, Target::Leaf, vec!["u2"]),
        ];
        for (name, posted, regenerate, inserted, edited, target, origin) in table {
            let raws = raws(&posted);
            let plan = plan(&read(&raws).unwrap(), &stored(), regenerate, false).unwrap();
            assert_eq!(plan.insert.iter().map(|m| m.message.id.as_str()).collect::<Vec<_>>(), inserted, "{name}");
            assert_eq!(plan.edit.as_ref().map(|m| m.message.id.as_str()), edited, "{name}");
            assert_eq!(plan.target, target, "{name}");
            assert_eq!(plan.origin_ids, origin, "{name}");
        }
    }

    #[test]
    fn a_greeting_of_the_page_is_taken_where_the_application_says_so() {
        // decision 7, turns-and-tools.md §4.3
        let tool = json!({"id":"z2","role":"assistant","parts":[{"type":"tool-pay","toolCallId":"c","state":"output-available"}]});
        let raws = raws(&json!([assistant("z1"), tool, assistant("a1"), user("u2", "hi")]));
        let taken = |takes| {
            let plan = plan(&read(&raws).unwrap(), &stored(), false, takes).unwrap();
            plan.insert.iter().map(|taken| taken.message.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(taken(false), ["u2"]);
        assert_eq!(taken(true), ["z1", "u2"], "neither calls nor changes of what is stored");
    }

    #[test]
    fn what_is_no_transcript_is_refused_whole() {
        for posted in [json!([1]), json!([{"id":"u"}]), json!([{"id":"u","role":"tool","parts":[]}]), json!([{"id":"","role":"user"}])]
        {
            assert!(read(&raws(&posted)).is_err(), "{posted}");
        }
        let raws = raws(&json!([user("u2", "fine"), {"id":"u3","role":"user","content":"v4"}]));
        assert!(plan(&read(&raws).unwrap(), &stored(), false, false).unwrap_err().contains("older SDK"));
    }
}
