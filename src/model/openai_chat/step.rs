//! One step of a model under construction: blocks that follow each other, calls, usage, the finish reason.
//!
//! Whatever the protocol, its decoder says here what arrived; the events come out in the order the contract demands.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::{
    calls::{Calls, TooMany},
    think::{Piece, Think},
};
use crate::{
    limits::{STEP_CALLS, STEP_TEXT},
    model::{
        Finish, FinishReason, ModelError, ModelErrorClass, ModelEvent, ModelRequest, OverflowKind, Reasoning, ToolChoice, ToolSpec,
        Usage, profile::Profile,
    },
};

/// The state of a step.
pub(crate) struct Step {
    profile: &'static Profile,
    tools: Rc<[ToolSpec]>,
    open: Open,
    think: Think,
    /// Reasoning is off, so what is labelled so is text.
    relabel: bool,
    /// Text held back because it may be a call.
    held: Option<String>,
    details: Vec<Value>,
    calls: Calls,
    meta: Option<(Option<String>, Option<String>)>,
    usage: Option<Usage>,
    finish: String,
    refused: bool,
    size: usize,
    produced: bool,
    failure: Option<ModelError>,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Nothing,
    Text,
    Reasoning,
}

impl Step {
    pub fn new(request: &ModelRequest, profile: &'static Profile) -> Self {
        let forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Named(_)) && !request.tools.is_empty();
        Self {
            profile,
            tools: request.tools.clone(),
            open: Open::Nothing,
            think: Think::new(profile.think_tags),
            relabel: profile.mislabels_text && request.reasoning == Reasoning::Off,
            held: (forced && profile.leaks_calls).then(String::new),
            details: Vec::new(),
            calls: Calls::default(),
            meta: None,
            usage: None,
            finish: String::new(),
            refused: false,
            size: 0,
            produced: false,
            failure: None,
        }
    }

    /// Whether the answer named itself.
    pub fn is_named(&self) -> bool {
        self.meta.is_some()
    }

    /// The answer's id and model; the first ones count.
    pub fn name(&mut self, id: Option<&str>, model: Option<&str>, out: &mut Vec<ModelEvent>) {
        if self.meta.is_some() || (id.is_none() && model.is_none()) {
            return;
        }
        let suffix = self.profile.echo_suffix;
        let model = model.map(|model| model.strip_suffix(suffix).unwrap_or(model).to_owned());
        let id = id.map(str::to_owned);
        self.meta = Some((id.clone(), model.clone()));
        out.push(ModelEvent::Meta { id, model });
    }

    /// Text of the answer.
    pub fn text(&mut self, text: String, out: &mut Vec<ModelEvent>) {
        if text.is_empty() || !self.has_room(text.len()) {
            return;
        }
        if let Some(held) = &mut self.held {
            held.push_str(&text);
            if held.trim_start().starts_with('{') || held.trim_start().is_empty() {
                return;
            }
            let text = self.held.take().unwrap_or_default();
            return self.visible(text, out);
        }
        self.visible(text, out);
    }

    fn visible(&mut self, text: String, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        if self.think.is_past() {
            return self.block(Open::Text, text, out);
        }
        let mut pieces = Vec::new();
        self.think.push(&text, &mut pieces);
        self.pieces(pieces, out);
    }

    fn pieces(&mut self, pieces: Vec<Piece>, out: &mut Vec<ModelEvent>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.block(Open::Text, text, out),
                Piece::Reasoning(text) => self.block(Open::Reasoning, text, out),
            }
        }
    }

    /// Reasoning.
    pub fn reasoning(&mut self, text: String, out: &mut Vec<ModelEvent>) {
        if self.relabel {
            return self.text(text, out);
        }
        if !text.is_empty() && self.has_room(text.len()) {
            self.block(Open::Reasoning, text, out);
        }
    }

    /// A refusal: text, and the finish reason is decided.
    pub fn refusal(&mut self, text: String, out: &mut Vec<ModelEvent>) {
        self.refused |= !text.is_empty();
        self.text(text, out);
    }

    /// Structured reasoning, kept for the next request (`providers.md` §10.5). Returns the text in it.
    pub fn details(&mut self, entries: Vec<Value>) -> String {
        let mut text = String::new();
        for entry in entries {
            if let Some(piece) = ["text", "summary"].iter().find_map(|key| entry.get(*key)?.as_str()) {
                text.push_str(piece);
            }
            // The array goes into the transcript: it counts like text, which it repeats.
            if !self.has_room(entry.get("data").and_then(Value::as_str).map_or(0, str::len)) {
                break;
            }
            merge_detail(&mut self.details, entry);
        }
        text
    }

    /// A signature of the block that is open, or of one without text.
    pub fn meta(&mut self, namespace: &str, fields: Map<String, Value>, out: &mut Vec<ModelEvent>) {
        if self.open != Open::Reasoning {
            self.close_block(out);
            out.push(ModelEvent::ReasoningStart);
        }
        self.open = Open::Nothing;
        out.push(ModelEvent::ReasoningEnd { meta: Some(spaced(namespace, Value::Object(fields))) });
    }

    /// One entry of `tool_calls`; with `complete`, a call of its own.
    pub fn call(&mut self, entry: Value, complete: bool, out: &mut Vec<ModelEvent>) {
        let mut events = Vec::new();
        match self.calls.entry(entry, complete, &self.tools, &mut events) {
            Ok(size) => {
                self.has_room(size);
            }
            Err(TooMany) => {
                let text = format!("the model made more than {STEP_CALLS} tool calls in one step");
                self.fail(ModelError::new(ModelErrorClass::Protocol, text));
            }
        }
        if events.is_empty() {
            return;
        }
        // A warning shows nothing; a block goes on behind it.
        if events.iter().any(ModelEvent::is_content) {
            self.produced = true;
            self.close_block(out);
        }
        out.extend(events);
    }

    /// Something that is shown beside the text.
    pub fn aside(&mut self, event: ModelEvent, out: &mut Vec<ModelEvent>) {
        self.produced = true;
        self.close_block(out);
        out.push(event);
    }

    /// Usage: the last one counts, sums of one answer do not.
    pub fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// What is known of the usage.
    pub fn known_usage(&self) -> Usage {
        self.usage.unwrap_or_default()
    }

    /// The provider's word for why it stopped; empty is none.
    pub fn finish(&mut self, word: &str) {
        if !word.is_empty() {
            word.clone_into(&mut self.finish);
        }
    }

    /// Whether a finish reason came.
    pub fn is_finished(&self) -> bool {
        !self.finish.is_empty()
    }

    /// Whether anything came that a person would see.
    pub fn has_produced(&self) -> bool {
        self.produced || self.calls.any() || self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Whether a call was begun.
    pub fn has_open_call(&self) -> bool {
        self.calls.is_open()
    }

    /// Whether each call has all its arguments.
    pub fn has_whole_calls(&self) -> bool {
        self.calls.are_complete()
    }

    /// The step is lost; the first reason counts.
    pub fn fail(&mut self, error: ModelError) {
        self.failure.get_or_insert(error);
    }

    /// Whether it is.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Why, once.
    pub fn take_failure(&mut self) -> Option<ModelError> {
        self.failure.take()
    }

    /// Closes what is open. Calls are told complete only when the step `succeeded`: what a broken answer began is never run.
    pub fn close(&mut self, succeeded: bool, out: &mut Vec<ModelEvent>) {
        if let Some(held) = self.held.take() {
            match leaked_call(&held, &self.tools) {
                Some(entry) if succeeded => {
                    out.push(ModelEvent::Warning("a tool call that arrived as text was put right".into()));
                    self.call(entry, true, out);
                }
                _ => self.visible(held, out),
            }
        }
        let mut pieces = Vec::new();
        self.think.finish(&mut pieces);
        self.pieces(pieces, out);
        self.close_block(out);
        if !self.details.is_empty() {
            out.push(ModelEvent::ReasoningStart);
            let meta = self.take_details();
            out.push(ModelEvent::ReasoningEnd { meta });
        }
        if succeeded {
            self.calls.close(self.profile.namespace, out);
        }
        if let Some(usage) = self.usage {
            out.push(ModelEvent::Usage(usage));
        }
    }

    /// Why a step that ended well stopped; some reasons are failures.
    pub fn reason(&self) -> Result<Finish, ModelError> {
        let raw = self.finish.clone();
        let reason = match raw.as_str() {
            _ if self.refused => FinishReason::ContentFilter,
            "" if self.calls.any() => FinishReason::ToolCalls,
            "" | "stop" | "end_turn" | "stop_sequence" | "eos" | "completed" => FinishReason::Stop,
            "length" | "max_tokens" | "model_length" | "max_output_tokens" => FinishReason::Length,
            "tool_calls" | "tool_use" | "function_call" | "tool-calls" => FinishReason::ToolCalls,
            "content_filter" | "sensitive" | "refusal" | "safety" | "SAFETY" => FinishReason::ContentFilter,
            "error" => FinishReason::Error,
            "insufficient_system_resource" | "network_error" => {
                let mut error = ModelError::new(ModelErrorClass::Transient, format!("the provider stopped: {raw}"));
                error.code = Some(raw);
                return Err(error);
            }
            "model_context_window_exceeded" if self.has_produced() => FinishReason::Length,
            "model_context_window_exceeded" => {
                let mut error = ModelError::new(
                    ModelErrorClass::Overflow(OverflowKind::Input),
                    "the conversation fills the model's context window",
                );
                error.code = Some(raw);
                return Err(error);
            }
            _ => FinishReason::Other,
        };
        Ok(Finish { reason, raw })
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.size = self.size.saturating_add(bytes);
        if self.size > STEP_TEXT {
            let text = format!("the answer is longer than {STEP_TEXT} bytes");
            self.fail(ModelError::new(ModelErrorClass::Protocol, text));
        }
        self.size <= STEP_TEXT
    }

    fn block(&mut self, kind: Open, text: String, out: &mut Vec<ModelEvent>) {
        if self.open != kind {
            self.close_block(out);
            out.push(if kind == Open::Text { ModelEvent::TextStart } else { ModelEvent::ReasoningStart });
            self.open = kind;
        }
        self.produced = true;
        out.push(if kind == Open::Text { ModelEvent::TextDelta(text) } else { ModelEvent::ReasoningDelta(text) });
    }

    fn close_block(&mut self, out: &mut Vec<ModelEvent>) {
        match self.open {
            Open::Nothing => {}
            Open::Text => out.push(ModelEvent::TextEnd { meta: None }),
            Open::Reasoning => {
                let meta = self.take_details();
                out.push(ModelEvent::ReasoningEnd { meta });
            }
        }
        self.open = Open::Nothing;
    }

    fn take_details(&mut self) -> Option<Value> {
        if self.details.is_empty() {
            return None;
        }
        let mut fields = Map::new();
        fields.insert("reasoning_details".into(), Value::Array(std::mem::take(&mut self.details)));
        Some(spaced(self.profile.namespace, Value::Object(fields)))
    }
}

fn spaced(namespace: &str, value: Value) -> Value {
    let mut spaces = Map::new();
    spaces.insert(namespace.to_owned(), value);
    Value::Object(spaces)
}

/// Adds an entry of `reasoning_details`: texts of the same type and index are one entry, anything else stays whole.
pub(super) fn merge_detail(details: &mut Vec<Value>, entry: Value) {
    let text_key = match entry.get("type").and_then(Value::as_str) {
        Some("reasoning.text") => "text",
        Some("reasoning.summary") => "summary",
        _ => {
            details.push(entry);
            return;
        }
    };
    let same = details.last_mut().filter(|last| last.get("type") == entry.get("type") && last.get("index") == entry.get("index"));
    match (same.and_then(Value::as_object_mut), entry) {
        (Some(last), Value::Object(fields)) => {
            for (name, value) in fields {
                match (last.get_mut(&name), value) {
                    (Some(Value::String(known)), Value::String(more)) if name == text_key => known.push_str(&more),
                    (_, Value::Null) => {}
                    (_, value) => {
                        last.insert(name, value);
                    }
                }
            }
        }
        (_, entry) => details.push(entry),
    }
}

/// The call that a text is, if it is exactly one object that names an offered tool.
fn leaked_call(text: &str, tools: &[ToolSpec]) -> Option<Value> {
    let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(text.trim()) else { return None };
    if let Some(Value::Object(function)) = fields.remove("function") {
        fields = function;
    }
    let name = fields.get("name")?.as_str()?.to_owned();
    let input = ["arguments", "parameters", "input"].iter().find_map(|key| fields.remove(*key))?;
    if !input.is_object() || !tools.iter().any(|tool| tool.name == name) {
        return None;
    }
    let mut entry = Map::new();
    entry.insert("name".into(), name.into());
    entry.insert("arguments".into(), input);
    Some(Value::Object(entry))
}
