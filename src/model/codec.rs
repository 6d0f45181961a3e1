//! The contract between a provider codec and the job that pumps bytes through it. Pure in both directions.

use super::{Finish, ModelError, ModelEvent, ModelRequest, profile::Route};

/// One HTTP request to a provider, or one `run` of the AI binding.
#[derive(Clone, Debug, PartialEq)]
pub struct WireRequest {
    /// Where it goes.
    pub target: Target,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The JSON body.
    pub body: String,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// `POST` to this address.
    Url(String),
    /// `run(model, body, options)` on the AI binding; `options` is a JSON object text without the signal.
    AiBinding {
        /// The model id.
        model: String,
        /// Options as JSON.
        options: String,
    },
}

/// How the answer begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Why no more bytes come.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The body ended. Never by itself a success (`providers.md` §3).
    Eof,
    /// Reading failed with this text.
    ReadError(String),
    /// We stopped it.
    Aborted,
    /// Nothing with content came for so long.
    Stalled {
        /// How long, in milliseconds.
        ms: u32,
    },
}

/// What the pump does after a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Read on.
    More,
    /// The answer is complete or beyond help: drop the body and call [`Decoder::end`].
    Done,
}

/// A stream machine: bytes in, events out, in whatever pieces the network cuts them.
pub trait Decoder {
    /// Takes the next bytes and appends what they mean.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Flow;
    /// Says how it ended. Open blocks and complete calls are closed into `out` first.
    fn end(&mut self, end: End, out: &mut Vec<ModelEvent>) -> Result<Finish, ModelError>;
}

/// Encodes `request` for `route`.
///
/// # Errors
/// [`super::ModelErrorClass::Overflow`] of bytes above the profile's cap, `InvalidRequest` where the provider cannot take it.
pub fn encode(request: &ModelRequest, route: &Route) -> Result<WireRequest, ModelError> {
    match route {
        Route::Http(endpoint) => super::openai_chat::encode(request, endpoint),
        Route::AiBinding(binding) => super::workers_ai::encode(request, binding),
        Route::Demo => Err(ModelError::new(super::ModelErrorClass::InvalidRequest, "the demo model has no wire form")),
    }
}

/// A decoder for the answer that begins with `head`.
pub fn decoder(request: &ModelRequest, route: &Route, head: Head) -> Box<dyn Decoder> {
    super::openai_chat::decoder(request, route, head)
}

/// A failure before there was any answer: the transport's own text, classified.
pub fn transport_error(route: &Route, text: &str) -> ModelError {
    super::classify::transport(route, text)
}
