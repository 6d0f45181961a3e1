//! Puts tool calls together from their deltas (`providers.md` §10.3). Servers leave out the index, the id or both, repeat names,
//! send arguments whole or cut anywhere; two calls must never be glued into one, and a cut call must never look complete.

use serde_json::{Map, Value};

use crate::{
    limits::STEP_CALLS,
    model::{ModelEvent, ToolSpec},
};

/// More calls in one step than [`STEP_CALLS`].
#[derive(Debug, PartialEq)]
pub(super) struct TooMany;

/// The calls of one step.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    /// The server's index and the slot it means now. An index is a key, never a size.
    by_index: Vec<(u64, usize)>,
}

#[derive(Debug, Default)]
struct Slot {
    id: String,
    name: String,
    args: String,
    extra: Map<String, Value>,
    announced: bool,
}

/// One entry of `tool_calls`.
#[derive(Debug)]
struct Entry {
    index: Option<u64>,
    id: String,
    name: String,
    args: Args,
    extra: Map<String, Value>,
}

#[derive(Debug)]
enum Args {
    None,
    Piece(String),
    Whole(String),
}

impl Calls {
    /// Takes one entry. With `complete`, it is a call of its own whatever its id and index say. Returns the bytes of its arguments.
    pub fn entry(&mut self, entry: Value, complete: bool, tools: &[ToolSpec], out: &mut Vec<ModelEvent>) -> Result<usize, TooMany> {
        let Some(entry) = Entry::read(entry) else { return Ok(0) };
        let found = if complete { None } else { self.find(&entry) };
        let at = match found {
            Some(at) => at,
            None => {
                if entry.says_nothing() {
                    return Ok(0);
                }
                if entry.id.is_empty() && entry.name.is_empty() && entry.index.is_none() {
                    out.push(ModelEvent::Warning("a piece of a tool call that belongs to no call was dropped".into()));
                    return Ok(0);
                }
                self.open(entry.index)?
            }
        };
        let Some(slot) = self.slots.get_mut(at) else { return Ok(0) };
        Ok(slot.take(at, entry, tools, out))
    }

    /// Whether any call has a name.
    pub fn any(&self) -> bool {
        self.slots.iter().any(|slot| !slot.name.is_empty())
    }

    /// Whether a call was begun.
    pub fn is_open(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Whether the arguments of each call are complete.
    pub fn are_complete(&self) -> bool {
        self.slots.iter().all(|slot| parse(&slot.args).is_ok())
    }

    /// Says what came of each call.
    pub fn close(&mut self, namespace: &str, out: &mut Vec<ModelEvent>) {
        for (at, mut slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            if slot.name.is_empty() {
                out.push(ModelEvent::Warning("a tool call without a name was dropped".into()));
                continue;
            }
            slot.announce(at, out);
            out.push(slot.end(at, namespace));
        }
    }

    fn open(&mut self, index: Option<u64>) -> Result<usize, TooMany> {
        if self.slots.len() >= STEP_CALLS {
            return Err(TooMany);
        }
        let at = self.slots.len();
        self.slots.push(Slot::default());
        if let Some(index) = index {
            self.by_index.retain(|(known, _)| *known != index);
            self.by_index.push((index, at));
        }
        Ok(at)
    }

    /// The slot an entry continues, unless it begins a call.
    fn find(&self, entry: &Entry) -> Option<usize> {
        let by_index = entry.index.and_then(|index| self.by_index.iter().find(|(known, _)| *known == index)).map(|(_, at)| *at);
        if !entry.id.is_empty()
            && let Some(at) = self.slots.iter().rposition(|slot| slot.id == entry.id)
        {
            // The id decides, whatever the index says; but an id repeated for a second call must not glue the two.
            let elsewhere = entry.index.is_some() && by_index != Some(at);
            return if elsewhere && self.begins_anew(at, entry) { by_index.filter(|at| self.accepts(*at, entry)) } else { Some(at) };
        }
        match entry.index {
            Some(_) => by_index.filter(|at| self.accepts(*at, entry)),
            None if !entry.id.is_empty() => None,
            None => self.slots.len().checked_sub(1).filter(|at| !self.begins_anew(*at, entry)),
        }
    }

    /// Whether an entry under the index of this slot belongs to it.
    fn accepts(&self, at: usize, entry: &Entry) -> bool {
        let Some(slot) = self.slots.get(at) else { return false };
        let other_id = !entry.id.is_empty() && !slot.id.is_empty() && slot.id != entry.id;
        if other_id { slot.name.is_empty() && !is_whole(&slot.args) } else { !self.begins_anew(at, entry) }
    }

    /// Whether an entry names a tool and begins arguments although those of this slot are complete: a call of its own. The same
    /// arguments once more are a repetition, left to [`parse`].
    fn begins_anew(&self, at: usize, entry: &Entry) -> bool {
        let Some(slot) = self.slots.get(at) else { return true };
        let begins = match &entry.args {
            Args::Piece(text) | Args::Whole(text) => text.trim_start().starts_with(['{', '[']) && *text != slot.args,
            Args::None => false,
        };
        begins && !entry.name.is_empty() && is_whole(&slot.args)
    }
}

impl Entry {
    fn read(value: Value) -> Option<Self> {
        let Value::Object(mut fields) = value else { return None };
        let index = fields.remove("index").as_ref().and_then(number);
        let id = fields.remove("id").as_ref().map(label).unwrap_or_default();
        fields.remove("type");
        // The flat form of Workers AI's own answers has name and arguments beside the id.
        let mut function = match fields.remove("function") {
            Some(Value::Object(function)) => function,
            _ => ["name", "arguments"].iter().filter_map(|key| fields.remove_entry(*key)).collect(),
        };
        let name = function.remove("name").as_ref().and_then(Value::as_str).map(str::trim).unwrap_or_default().to_owned();
        let args = match function.remove("arguments") {
            None | Some(Value::Null) => Args::None,
            Some(Value::String(text)) => Args::Piece(text),
            Some(other) => Args::Whole(other.to_string()),
        };
        fields.retain(|_, value| !value.is_null());
        Some(Self { index, id, name, args, extra: fields })
    }

    /// The finalizer some servers send: an index and nothing else.
    fn says_nothing(&self) -> bool {
        let silent = matches!(&self.args, Args::None) || matches!(&self.args, Args::Piece(text) if text.is_empty());
        silent && self.id.is_empty() && self.name.is_empty()
    }
}

impl Slot {
    fn take(&mut self, at: usize, entry: Entry, tools: &[ToolSpec], out: &mut Vec<ModelEvent>) -> usize {
        if self.id.is_empty() {
            self.id = entry.id;
        }
        // Some servers repeat the whole name in each delta, others cut it; never after arguments began.
        if self.name.is_empty() {
            self.name = entry.name;
        } else if self.args.is_empty() && !self.announced && entry.name != self.name {
            self.name.push_str(&entry.name);
        }
        self.extra.extend(entry.extra);
        let (text, whole) = match entry.args {
            Args::None => (String::new(), false),
            Args::Piece(text) => (text, false),
            Args::Whole(text) => (text, true),
        };
        let size = text.len();
        let begun = !self.args.is_empty();
        if whole {
            self.args = text.clone();
        } else {
            self.args.push_str(&text);
        }
        if self.announced {
            // Arguments sent whole after pieces of them replace those; what was shown of them stands.
            let replaced = whole && begun;
            if !text.is_empty() && !replaced {
                out.push(ModelEvent::ToolInputDelta { slot: number_of(at), text });
            }
        } else if !self.name.is_empty() && (!self.args.is_empty() || (!self.id.is_empty() && self.name_is_settled(tools))) {
            self.announce(at, out);
        }
        size
    }

    /// Whether the name can grow no more: it is that of a tool, and no other tool's begins with it.
    fn name_is_settled(&self, tools: &[ToolSpec]) -> bool {
        let mut found = false;
        for tool in tools.iter().filter(|tool| tool.name.starts_with(&self.name)) {
            if tool.name != self.name {
                return false;
            }
            found = true;
        }
        found
    }

    fn announce(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        let slot = number_of(at);
        out.push(ModelEvent::ToolInputStart { slot, id: self.id.clone(), name: self.name.clone() });
        if !self.args.is_empty() {
            out.push(ModelEvent::ToolInputDelta { slot, text: self.args.clone() });
        }
    }

    fn end(self, at: usize, namespace: &str) -> ModelEvent {
        let Slot { id, name, args, extra, .. } = self;
        let slot = number_of(at);
        match parse(&args) {
            Ok(input) => {
                let meta = (!extra.is_empty()).then(|| {
                    let mut spaces = Map::new();
                    spaces.insert(namespace.to_owned(), Value::Object(extra));
                    Value::Object(spaces)
                });
                ModelEvent::ToolCall { slot, id, name, input, meta }
            }
            Err(message) => ModelEvent::ToolInputError { slot, id, name, raw: args, message },
        }
    }
}

/// The input a text of arguments means: always an object (field T-03).
fn parse(args: &str) -> Result<Value, String> {
    let text = args.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    if text.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let kind = match serde_json::from_str(text) {
        Ok(input @ Value::Object(_)) => return Ok(input),
        Ok(Value::Null) => return Ok(Value::Object(Map::new())),
        Ok(Value::String(inner)) => match serde_json::from_str(inner.trim()) {
            Ok(input @ Value::Object(_)) => return Ok(input),
            _ => "a string",
        },
        Ok(Value::Array(_)) => "a list",
        Ok(Value::Bool(_) | Value::Number(_)) => "a plain value",
        Err(error) => return repeated(text).ok_or_else(|| format!("the arguments are not valid JSON: {error}")),
    };
    Err(format!("the arguments are {kind}, not a JSON object"))
}

/// The one repair: the same complete object twice in a row.
fn repeated(text: &str) -> Option<Value> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let first = values.next()?.ok()?;
    let second = values.next()?.ok()?;
    (values.next().is_none() && first.is_object() && first == second).then_some(first)
}

/// Whether arguments are one complete object or list. Looks at the last character first: this runs on deltas.
fn is_whole(args: &str) -> bool {
    args.trim_end().ends_with(['}', ']']) && serde_json::from_str::<&serde_json::value::RawValue>(args.trim()).is_ok()
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Slots are at most [`STEP_CALLS`].
fn number_of(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
