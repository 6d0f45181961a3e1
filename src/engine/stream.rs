//! Model events become chunks: numbered, folded into the reply, sent live, and written to the log by the segment.
//!
//! Text of one network read goes out as one chunk (decision 52). A chunk is buffered for its segment before it is sent, so that a
//! client that takes the stream up in the next moment gets it in the prefix (O1).

use super::{
    Engine,
    events::Event,
    input::JobEvent,
    outcome::{Cx, Effect},
};
use crate::{
    error::{Error, Result},
    ids::Fence,
    limits,
    model::{ModelEvent, Usage},
    store::streams,
    time::Millis,
    wire::{self, chunk::Chunk},
};

/// The log of the running answer: what is on disk, and the tail that is not yet.
pub(super) struct Stream {
    pub(super) id: String,
    /// Whether its first chunk went out.
    pub(super) started: bool,
    step_open: bool,
    text: Option<u32>,
    reasoning: Option<u32>,
    blocks: u32,
    sources: u32,
    next_seq: i64,
    next_seg: i64,
    buffer: Vec<String>,
    /// A result that no row can hold. It is written at once, behind the buffer.
    large: Option<String>,
    buffered_bytes: usize,
    buffered_since: Option<Millis>,
    /// Whether a flush is already timed.
    pub(super) timer: bool,
}

impl Stream {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            started: false,
            step_open: false,
            text: None,
            reasoning: None,
            blocks: 0,
            sources: 0,
            next_seq: 0,
            next_seg: 0,
            buffer: Vec::new(),
            large: None,
            buffered_bytes: 0,
            buffered_since: None,
            timer: false,
        }
    }

    /// The chunks that are not on disk yet, with their numbers.
    pub(super) fn buffered(&self) -> impl Iterator<Item = (i64, &str)> {
        let first = self.next_seq - self.buffer.len() as i64;
        self.buffer.iter().enumerate().map(move |(i, chunk)| (first + i as i64, chunk.as_str()))
    }

    /// Whether anything of it is on disk.
    pub(super) fn has_rows(&self) -> bool {
        self.next_seg > 0
    }

    /// Takes a chunk into the log and gives it its number. One that no row can hold goes out without (decision 41); what a tool did is
    /// kept all the same, in parts, because nobody may do it again (I12).
    fn take(&mut self, json: String, chunk: &Chunk, now: Millis) {
        if json.len() > limits::ROW_MAX {
            if matches!(chunk, Chunk::ToolOutputAvailable { preliminary: false, .. }) && !mutant!(N8) {
                self.large = Some(json);
            }
            return;
        }
        self.next_seq += 1;
        self.buffered_bytes += json.len();
        self.buffered_since.get_or_insert(now);
        self.buffer.push(json);
    }

    fn is_due(&self, more_chunks: usize, more_bytes: usize, now: Millis) -> bool {
        let most = match () {
            () if mutant!(W29) => 1,
            () if mutant!(N7) => 100,
            () => limits::SEGMENT_CHUNKS,
        };
        self.buffer.len() + more_chunks >= most
            || self.buffered_bytes + more_bytes >= limits::SEGMENT_BYTES
            || self.buffered_since.is_some_and(|since| now.since(since) >= limits::SEGMENT_MS)
    }

    /// Writes the tail to disk: one row, more only if it is larger than a segment may be.
    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let mut first = self.next_seq - self.buffer.len() as i64;
        let mut rest = std::mem::take(&mut self.buffer);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest
                .iter()
                .take_while(|chunk| {
                    bytes += chunk.len();
                    bytes <= limits::SEGMENT_BYTES
                })
                .count()
                .max(1);
            let later = rest.split_off(fit.min(rest.len()));
            streams::append(cx.db, &self.id, self.next_seg, first, &rest)?;
            self.next_seg += 1;
            first += rest.len() as i64;
            rest = later;
        }
        if let Some(large) = self.large.take() {
            self.next_seg += streams::append_large(cx.db, &self.id, self.next_seg, self.next_seq, &large)?;
        }
        self.buffered_bytes = 0;
        self.buffered_since = None;
        Ok(())
    }
}

/// What a delta belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Block {
    Text,
    Reasoning,
    Input(u32),
}

impl super::turn::Running {
    /// Whether these events only lengthen the tail: no row is written for them. Counts at least as many chunks as will be put, and
    /// not one more where a block just goes on: a transaction that writes nothing is what this is here to save.
    pub(super) fn only_buffers(&self, events: &[ModelEvent], now: Millis, coalesce: bool) -> bool {
        let mut open = match (self.stream.text, self.stream.reasoning) {
            (Some(_), _) => Some(Block::Text),
            (None, Some(_)) => Some(Block::Reasoning),
            (None, None) => None,
        };
        // The delta that the next one may join.
        let mut last = None;
        let (mut chunks, mut bytes) = (0, 0);
        for event in events {
            let (this, size) = match event {
                ModelEvent::TextDelta(text) => (Block::Text, text.len()),
                ModelEvent::ReasoningDelta(text) => (Block::Reasoning, text.len()),
                ModelEvent::ToolInputDelta { slot, text } => (Block::Input(*slot), text.len()),
                ModelEvent::TextEnd { .. } | ModelEvent::ReasoningEnd { .. } => {
                    chunks += 1;
                    (open, last) = (None, None);
                    continue;
                }
                ModelEvent::TextStart
                | ModelEvent::ReasoningStart
                | ModelEvent::Meta { .. }
                | ModelEvent::Warning(_)
                | ModelEvent::Usage(_) => {
                    last = None;
                    continue;
                }
                ModelEvent::ToolInputStart { .. }
                | ModelEvent::ToolCall { .. }
                | ModelEvent::ToolInputError { .. }
                | ModelEvent::Source { .. }
                | ModelEvent::File { .. } => return false,
            };
            if matches!(this, Block::Text | Block::Reasoning) && open != Some(this) {
                // The end of the block before, and the start of this one.
                chunks += 1 + usize::from(open.is_some());
                open = Some(this);
            }
            if last != Some(this) || !coalesce {
                chunks += 1;
                last = Some(this);
            }
            bytes += size;
        }
        // Two more for what a stream and a step begin with, and the metadata that goes out with the former.
        let begins = if self.stream.step_open { 0 } else { 2 };
        let planned = self.plan.as_ref().and_then(|plan| plan.metadata.as_ref());
        let metadata = match (self.stream.started, planned) {
            (true, _) => 0,
            (false, Some(metadata)) => metadata.to_string().len(),
            (false, None) => self.turn.metadata.as_ref().map_or(0, String::len),
        };
        !self.stream.is_due(chunks + begins, bytes + metadata, now)
    }
}

impl Engine {
    /// One network read of the model's answer.
    pub(super) fn model_events(&mut self, cx: &mut Cx<'_>, events: Vec<ModelEvent>) -> Result<()> {
        let coalesce = self.config.coalesce_deltas;
        let mut events = events.into_iter().peekable();
        while let Some(event) = events.next() {
            if self.running.as_ref().is_none_or(|r| r.phase != super::turn::Phase::Model) {
                return Ok(());
            }
            if event.is_content() {
                self.begin(cx);
            }
            match event {
                ModelEvent::TextDelta(mut text) => {
                    while let Some(ModelEvent::TextDelta(_)) = events.peek().filter(|_| coalesce) {
                        if let Some(ModelEvent::TextDelta(more)) = events.next() {
                            text.push_str(&more);
                        }
                    }
                    self.text(cx, text);
                }
                ModelEvent::ReasoningDelta(mut text) => {
                    while let Some(ModelEvent::ReasoningDelta(_)) = events.peek().filter(|_| coalesce) {
                        if let Some(ModelEvent::ReasoningDelta(more)) = events.next() {
                            text.push_str(&more);
                        }
                    }
                    self.reasoning(cx, text);
                }
                ModelEvent::ToolInputDelta { slot, mut text } => {
                    while let Some(ModelEvent::ToolInputDelta { slot: same, .. }) = events.peek().filter(|_| coalesce) {
                        if *same != slot {
                            break;
                        }
                        if let Some(ModelEvent::ToolInputDelta { text: more, .. }) = events.next() {
                            text.push_str(&more);
                        }
                    }
                    self.call_delta(cx, slot, text);
                }
                ModelEvent::TextStart | ModelEvent::ReasoningStart => {}
                ModelEvent::TextEnd { meta } => {
                    let meta = meta.filter(|meta| !wire::is_too_deep(meta));
                    if let Some(id) = self.running.as_mut().and_then(|r| r.stream.text.take()) {
                        self.put(cx, Chunk::TextEnd { id, meta });
                    }
                }
                ModelEvent::ReasoningEnd { meta } => self.end_reasoning(cx, meta.filter(|meta| !wire::is_too_deep(meta))),
                ModelEvent::ToolInputStart { slot, id, name } => self.call_started(cx, slot, &id, name)?,
                ModelEvent::ToolCall { slot, id, name, input, meta } => self.call_complete(cx, slot, &id, name, input, meta)?,
                ModelEvent::ToolInputError { slot, id, name, raw, message } => {
                    self.call_broken(cx, slot, &id, name, raw, message)?;
                }
                ModelEvent::Source { url, title } => {
                    if let Some(running) = self.running.as_mut() {
                        running.stream.sources += 1;
                        let id = running.stream.sources;
                        self.put(cx, Chunk::Source { id, url, title });
                    }
                }
                ModelEvent::File { media_type, url } => self.put(cx, Chunk::File { media_type, url }),
                ModelEvent::Meta { .. } => {}
                ModelEvent::Warning(text) => cx.emit(Event::new("chat:model:warning").with("text", text)),
                ModelEvent::Usage(usage) => {
                    if let Some(running) = self.running.as_mut() {
                        running.usage = latest(running.usage, usage);
                    }
                }
            }
        }
        self.flush_if_due(cx)
    }

    /// The stream and the step begin with the first thing there is to show.
    fn begin(&mut self, cx: &mut Cx<'_>) {
        self.begin_stream(cx);
        let Some(running) = self.running.as_mut() else { return };
        running.shown = true;
        if !std::mem::replace(&mut running.stream.step_open, true) {
            self.put(cx, Chunk::StartStep);
        }
    }

    /// The stream begins. What comes of calls of an earlier leg belongs to no step of this one.
    pub(super) fn begin_stream(&mut self, cx: &mut Cx<'_>) {
        let Some(running) = self.running.as_mut() else { return };
        if std::mem::replace(&mut running.stream.started, true) {
            return;
        }
        let id = running.turn.request_id.clone();
        let message_id = running.turn.reply.clone().filter(|_| !running.extends);
        let metadata = running.plan.as_ref().and_then(|plan| plan.metadata.clone());
        let stored = running.turn.metadata.as_deref().and_then(|text| serde_json::from_str(text).ok());
        for conn in self.clients.offer_parked() {
            cx.send_one(&conn, wire::resuming(&id, None));
        }
        self.put(cx, Chunk::Start { message_id, metadata: metadata.or(stored) });
    }

    fn text(&mut self, cx: &mut Cx<'_>, delta: String) {
        if delta.is_empty() {
            return;
        }
        self.end_reasoning(cx, None);
        let Some(running) = self.running.as_mut() else { return };
        let id = match running.stream.text {
            Some(id) => id,
            None => {
                running.stream.blocks += 1;
                let id = running.stream.blocks;
                running.stream.text = Some(id);
                self.put(cx, Chunk::TextStart { id });
                id
            }
        };
        self.put(cx, Chunk::TextDelta { id, delta });
    }

    fn reasoning(&mut self, cx: &mut Cx<'_>, delta: String) {
        if delta.is_empty() {
            return;
        }
        self.end_text(cx);
        let Some(running) = self.running.as_mut() else { return };
        let id = match running.stream.reasoning {
            Some(id) => id,
            None => {
                running.stream.blocks += 1;
                let id = running.stream.blocks;
                running.stream.reasoning = Some(id);
                self.put(cx, Chunk::ReasoningStart { id });
                id
            }
        };
        self.put(cx, Chunk::ReasoningDelta { id, delta });
    }

    fn end_text(&mut self, cx: &mut Cx<'_>) {
        if let Some(id) = self.running.as_mut().and_then(|r| r.stream.text.take()) {
            self.put(cx, Chunk::TextEnd { id, meta: None });
        }
    }

    fn end_reasoning(&mut self, cx: &mut Cx<'_>, meta: Option<serde_json::Value>) {
        if let Some(id) = self.running.as_mut().and_then(|r| r.stream.reasoning.take()) {
            self.put(cx, Chunk::ReasoningEnd { id, meta });
        }
    }

    /// Closes the open text or reasoning block.
    pub(super) fn close_blocks(&mut self, cx: &mut Cx<'_>) {
        self.end_reasoning(cx, None);
        self.end_text(cx);
    }

    /// Ends the step if something of it was shown.
    pub(super) fn put_if_open(&mut self, cx: &mut Cx<'_>, chunk: Chunk) {
        if let Some(running) = self.running.as_mut().filter(|r| r.stream.step_open) {
            running.stream.step_open = false;
            self.put(cx, chunk);
        }
    }

    /// One chunk: into the log, into the reply, to every live socket.
    pub(super) fn put(&mut self, cx: &mut Cx<'_>, chunk: Chunk) {
        let Some(running) = self.running.as_mut() else { return };
        let json = chunk.json();
        running.reply.apply(&chunk);
        let mut live = self.clients.live();
        let mut blank = Vec::new();
        if running.is_of_earlier_leg(&json) {
            // With what a page begins that attached before its object died is not known any more.
            let known = !running.turn.counters.is_recovering();
            (live, blank) = live.into_iter().partition(|conn| known && self.clients.is_seeded(conn));
        }
        let seq = (json.len() <= limits::ROW_MAX).then_some(running.stream.next_seq);
        if !live.is_empty() {
            let frame = wire::chunk(&running.turn.request_id, &json, seq, running.extends, false);
            cx.send(live, frame);
        }
        // Who cannot take the chunk gets its number without it: there are no gaps.
        if !blank.is_empty() {
            cx.send(blank, wire::chunk(&running.turn.request_id, "", seq, running.extends, false));
        }
        running.stream.take(json, &chunk, cx.now);
        cx.push(Effect::Observe(chunk));
    }

    /// Writes the tail. What a page or a person is asked, and what they answer, is on disk with its row: a death leaves a question that
    /// can be shown again, and no turn that waits for the answer to half of one.
    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        match self.running.as_mut() {
            Some(running) => running.stream.flush(cx),
            None => Ok(()),
        }
    }

    /// Writes the tail if it is due, else sees to it that it will be.
    pub(super) fn flush_if_due(&mut self, cx: &mut Cx<'_>) -> Result<()> {
        let Some(running) = self.running.as_mut() else { return Ok(()) };
        if running.stream.is_due(0, 0, cx.now) {
            return running.stream.flush(cx);
        }
        if !running.stream.buffer.is_empty() && !running.stream.timer {
            running.stream.timer = true;
            cx.push(Effect::Timer(running.fence.clone(), JobEvent::FlushDue, limits::SEGMENT_MS as u32));
        }
        Ok(())
    }

    /// A `data-*` or metadata chunk of a running tool. The inner error is the caller's.
    pub(super) fn application_chunk(&mut self, cx: &mut Cx<'_>, fence: &Fence, chunk: serde_json::Value) -> Result<Result<()>> {
        if self.running.as_ref().is_none_or(|r| r.fence != *fence) {
            return Ok(Err(Error::refused("the turn of this chunk has ended")));
        }
        if wire::is_too_deep(&chunk) {
            return Ok(Err(Error::limit(format!("the chunk is nested deeper than {} (limits::VALUE_DEPTH)", limits::VALUE_DEPTH))));
        }
        let chunk = Chunk::parse(&chunk.to_string()).filter(|c| matches!(c, Chunk::Data(_) | Chunk::Metadata(_)));
        let Some(chunk) = chunk else {
            return Ok(Err(Error::input("only `data-*` and `message-metadata` chunks can be emitted")));
        };
        self.begin(cx);
        self.put(cx, chunk);
        self.flush_if_due(cx)?;
        Ok(Ok(()))
    }
}

/// Figures of one answer are cumulative: the last that is there counts (`providers.md` §12).
fn latest(before: Usage, now: Usage) -> Usage {
    Usage {
        input: now.input.or(before.input),
        cached_read: now.cached_read.or(before.cached_read),
        cache_write: now.cache_write.or(before.cache_write),
        output: now.output.or(before.output),
        reasoning: now.reasoning.or(before.reasoning),
    }
}
