//! The texts by which servers say that a request does not fit, and the numbers in them (`providers.md` §13.2, §13.3).

use crate::model::{ModelError, ModelErrorClass, Numbers, OverflowKind};

use super::{Said, has};

/// What a number in a text counts.
#[derive(Clone, Copy)]
enum Field {
    Limit,
    Input,
    /// More of the input: tools, counted apart.
    MoreInput,
    Output,
    Total,
    /// At least so much input: the server stopped counting.
    InputAtLeast,
}
use Field::{Input, InputAtLeast, Limit, MoreInput, Output, Total};

/// Where a number stands.
#[derive(Clone, Copy)]
enum Place {
    After(&'static str),
    Before(&'static str),
}
use Place::{After, Before};

/// All of these together are an overflow.
struct Phrase {
    all: &'static [&'static str],
    numbers: &'static [(Field, Place)],
}

const fn phrase(all: &'static [&'static str], numbers: &'static [(Field, Place)]) -> Phrase {
    Phrase { all, numbers }
}

/// In the order of the specification where it matters: the first that matches gives the numbers.
static PHRASES: &[Phrase] = &[
    phrase(
        &["prompt is too long", "model maximum context length"],
        &[(Input, After("too long: ")), (Limit, After("context length: "))],
    ),
    phrase(&["prompt is too long"], &[(Input, After("too long: ")), (Limit, After(" > "))]),
    phrase(&["exceed context limit"], &[(Input, After("context limit: ")), (Output, After(" + ")), (Limit, After(" > "))]),
    phrase(
        &["maximum context length is", "output tokens and your prompt contains at least"],
        &[
            (Limit, After("context length is ")),
            (Output, After("you requested ")),
            (InputAtLeast, After("contains at least ")),
            (Total, After("total of at least ")),
        ],
    ),
    phrase(
        &["maximum context length is", "of text input"],
        &[
            (Limit, After("context length is ")),
            (Total, After("requested about ")),
            (Input, Before(" of text input")),
            (MoreInput, Before(" of tool input")),
            (Output, Before(" in the output")),
        ],
    ),
    phrase(
        &["maximum context length of", "tokens from the input messages"],
        &[
            (Limit, After("context length of ")),
            (Total, After("a total of ")),
            (Input, After("tokens: ")),
            (Output, After("input messages and ")),
        ],
    ),
    phrase(
        &["maximum context length is", "in the messages"],
        &[
            (Limit, After("context length is ")),
            (Total, After("you requested ")),
            (Input, After("tokens (")),
            (Output, After("in the messages, ")),
        ],
    ),
    phrase(&["maximum context length is", "resulted in"], &[(Limit, After("context length is ")), (Input, After("resulted in "))]),
    phrase(&["input length (", "maximum context length ("], &[(Input, After("input length (")), (Limit, After("context length ("))]),
    phrase(
        &["prompt contains", "too large for model with"],
        &[(Input, After("contains ")), (Limit, After("too large for model with "))],
    ),
    phrase(&["input token count", "exceeds"], &[(Input, After("token count ")), (Limit, After("tokens allowed "))]),
    phrase(&["only supports up to", "token"], &[(Input, After("token count is ")), (Limit, After("supports up to "))]),
    phrase(&["maximum prompt length is"], &[(Limit, After("prompt length is ")), (Input, After("contains "))]),
    phrase(&["maximum allowed input length"], &[(Input, After("input length ")), (Limit, After("allowed input length of "))]),
    phrase(&["longer than the model's context"], &[(Input, After("the input (")), (Limit, After("context length ("))]),
    phrase(
        &["inputs tokens + max_new_tokens"],
        &[(Limit, After("must be <= ")), (Input, After("given: ")), (Output, After("tokens and "))],
    ),
    phrase(
        &["`inputs` tokens + `max_new_tokens`"],
        &[(Limit, After("must be <= ")), (Input, After("given: ")), (Output, After("tokens and "))],
    ),
    phrase(&["`inputs` must have less than"], &[(Limit, After("less than ")), (Input, After("given: "))]),
    phrase(&["too many total text bytes"], &[]),
    phrase(&["exceed_context_size"], &[(Input, After("request (")), (Limit, After("context size ("))]),
    phrase(&["available context size"], &[(Input, After("request (")), (Limit, After("context size ("))]),
    phrase(&["configured context size"], &[(Input, After("prompt has ")), (Limit, After("context size is "))]),
    phrase(&["exceeds context size"], &[(Input, After("tokens (")), (Limit, After("context size ("))]),
    phrase(&["greater than the context length"], &[(Input, After("n_keep: ")), (Limit, After("n_ctx: "))]),
    phrase(&["keep the first", "context"], &[(Input, After("keep the first ")), (Limit, After("context length of only "))]),
    phrase(&["cannot exceed", "prompt and prediction"], &[(Limit, After("cannot exceed ")), (Total, After("received "))]),
    phrase(&["total tokens exceeds the model's max"], &[(Limit, After("model's max of "))]),
    phrase(&["exceeded model token limit"], &[(Limit, After("token limit: ")), (Input, After("requested: "))]),
    phrase(&["range of input length should be"], &[(Limit, After("[1, "))]),
    phrase(&["prompt token count of", "exceeds the limit"], &[(Input, After("token count of ")), (Limit, After("the limit of "))]),
    phrase(
        &["reduce the length of the messages", "current length is"],
        &[(Input, After("current length is ")), (Limit, After("limit is "))],
    ),
    phrase(&["maximum context length"], &[]),
    phrase(&["prompt too long"], &[]),
    phrase(&["prompt exceeds max length"], &[]),
    phrase(&["context_length_exceeded"], &[]),
    phrase(&["context length exceeded"], &[]),
    phrase(&["exceeds the context window"], &[]),
    phrase(&["context window exceeded"], &[]),
    phrase(&["context window exceeds limit"], &[]),
    phrase(&["input is too long for requested model"], &[]),
    phrase(&["maximum input token limit"], &[]),
    phrase(&["input tokens exceeded"], &[]),
    phrase(&["exceeded max context length"], &[]),
    phrase(&["exceeds maximum context length"], &[]),
    phrase(&["total length of all messages is too long"], &[]),
    phrase(&["reduce the length of the messages"], &[]),
    phrase(&["contextwindowexceedederror"], &[]),
    phrase(&["max_tokens must be at least 1, got -"], &[]),
    phrase(&["context_exceeded"], &[]),
    phrase(&["model_context_window_exceeded"], &[]),
    phrase(&["model_max_prompt_tokens_exceeded"], &[]),
    phrase(&["size limit exceeded"], &[]),
];

/// Texts about bytes, not tokens.
static BYTES: [&str; 2] = ["request_too_large", "request exceeds the maximum size"];

/// Whether a text in lower case says that a request does not fit.
pub(super) fn find(text: &str) -> Option<(OverflowKind, Numbers)> {
    if BYTES.iter().any(|phrase| has(text, phrase)) {
        return Some((OverflowKind::Bytes, Numbers::default()));
    }
    let phrase = PHRASES.iter().find(|p| p.all.iter().all(|part| has(text, part)))?;
    let mut numbers = Numbers::default();
    for (field, place) in phrase.numbers {
        let value = match place {
            After(words) => number_after(text, words),
            Before(words) => number_before(text, words),
        };
        match field {
            Limit => numbers.limit = value,
            Input => numbers.input = value,
            MoreInput => numbers.input = numbers.input.map(|input| input.saturating_add(value.unwrap_or(0))),
            Output => numbers.output = value,
            Total => numbers.total = value,
            InputAtLeast => {
                numbers.input = value;
                numbers.input_is_at_least = true;
            }
        }
    }
    Some((kind(&numbers), numbers))
}

/// Only the output is too much where the input by itself would fit.
fn kind(numbers: &Numbers) -> OverflowKind {
    match (numbers.input, numbers.limit, numbers.output) {
        (Some(input), Some(limit), Some(_)) if input < limit && !numbers.input_is_at_least => OverflowKind::Output,
        _ => OverflowKind::Input,
    }
}

impl Numbers {
    /// With the numbers that have fields of their own.
    pub(super) fn with(mut self, said: &Said) -> Self {
        self.input = self.input.or(said.prompt);
        self.limit = self.limit.or(said.window);
        self
    }
}

/// The output limit with which a request that overflowed would fit, if there is one: the call is repeated once with it, nothing is
/// summarised (`providers.md` §13.3). `estimate` is our own count of the input, for servers that stop counting.
pub fn smaller_cap(error: &ModelError, estimate: Option<u64>) -> Option<u32> {
    const LEAST: u64 = 1_024;
    let numbers = error.numbers.as_deref()?;
    let (limit, _) = (numbers.limit?, numbers.output?);
    let cap = match error.class {
        ModelErrorClass::Overflow(OverflowKind::Output) => limit.checked_sub(numbers.input?)?.checked_sub(256)?,
        ModelErrorClass::Overflow(OverflowKind::Input) if numbers.input_is_at_least => {
            limit.checked_sub(estimate?)?.checked_sub(1_024)?
        }
        _ => return None,
    };
    u32::try_from(cap).ok().filter(|_| cap >= LEAST)
}

/// The number that follows `anchor`, at most an opening bracket, quote or space between them.
pub(super) fn number_after(text: &str, anchor: &str) -> Option<u64> {
    text.match_indices(anchor).find_map(|(at, _)| {
        let rest = text.get(at + anchor.len()..)?.trim_start_matches([' ', '(', '`', '\'', '"', '[']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    })
}

/// The number in front of `anchor`.
fn number_before(text: &str, anchor: &str) -> Option<u64> {
    let front = text.get(..text.find(anchor)?)?;
    let start = front.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    front.get(start..)?.parse().ok()
}
