//! Chat Completions, as OpenAI defined it and everyone else bends it (`providers.md` §5, §9, §10).
//!
//! The request is written from the neutral one and the server's [`Profile`](super::profile::Profile); the answer is read as it
//! comes: untyped, tolerant of what is missing, odd or new. Workers AI answers in the same protocol and shares both directions.

mod calls;
mod decode;
mod encode;
mod files;
pub(crate) mod json;
mod step;
mod think;

use super::{
    ModelError, ModelErrorClass, ModelRequest,
    classify::Origin,
    codec::{Decoder, Head, Target, WireRequest},
    profile::{Auth, Endpoint, Route},
};

pub(crate) use decode::{count, take_items, take_text};
pub(crate) use encode::{body, session_hash};
pub(crate) use step::Step;

/// Encodes a request for an HTTP server.
///
/// # Errors
/// `Overflow(Bytes)` above the server's cap, `InvalidRequest` where there is nothing to send or a header cannot be sent.
pub fn encode(request: &ModelRequest, endpoint: &Endpoint) -> Result<WireRequest, ModelError> {
    let model = request.model.model.as_str();
    let body = body(request, endpoint.profile, Some(model), &[])?;
    let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    if let Some(key) = endpoint.api_key.as_deref().map(str::trim).filter(|key| !key.is_empty()) {
        headers.push(match endpoint.profile.auth {
            Auth::Bearer => ("authorization".to_owned(), format!("Bearer {key}")),
            Auth::ApiKey => ("api-key".to_owned(), key.to_owned()),
        });
    }
    for (name, value) in own_headers(request)? {
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
    }
    check_headers(&headers)?;
    Ok(WireRequest { target: Target::Url(address(&endpoint.base_url)), headers, body })
}

/// A decoder for the answer that begins with `head`.
pub fn decoder(request: &ModelRequest, route: &Route, head: Head) -> Box<dyn Decoder> {
    let mut origin = Origin::of(route, &request.model.headers);
    if origin.profile.mute_overflow {
        origin = origin.request_bytes(encode::rough_size(request));
    }
    Box::new(decode::ChatDecoder::new(request, origin, head))
}

/// The headers the application adds, names in lower case.
pub(crate) fn own_headers(request: &ModelRequest) -> Result<Vec<(String, String)>, ModelError> {
    let own = request.model.headers.iter().map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    let own: Vec<(String, String)> = own.collect();
    check_headers(&own)?;
    Ok(own)
}

/// A header that the platform would refuse with a text of its own, value included.
fn check_headers(headers: &[(String, String)]) -> Result<(), ModelError> {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    for (name, value) in headers {
        if name.is_empty() || !name.chars().all(token) || value.chars().any(|c| c.is_control()) {
            let text =
                format!("the header \"{}\" cannot be sent: its name or value has characters no header may have", name.escape_debug());
            return Err(ModelError::new(ModelErrorClass::InvalidRequest, text));
        }
    }
    Ok(())
}

/// `base` with the path of the protocol, in front of a query if there is one.
fn address(base: &str) -> String {
    let (path, query) = match base.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (base, None),
    };
    let path = path.trim_end_matches('/');
    let end = if path.ends_with("/chat/completions") { "" } else { "/chat/completions" };
    match query {
        Some(query) => format!("{path}{end}?{query}"),
        None => format!("{path}{end}"),
    }
}
