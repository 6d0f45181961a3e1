//! Requests to model providers: over the network or through the AI binding, abortable from the first byte to the last.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{
    FutureExt, Stream,
    future::{Either, LocalBoxFuture, select},
    stream,
};
use serde_json::{Map, Value, json};
use worker::{
    AbortController, AbortSignal, Env, Response,
    js_sys::{JSON, Object, Reflect, futures::JsFuture},
    wasm_bindgen::{JsCast, JsValue},
    web_sys,
};

use super::bindings::{JsAi, fetch, field, has_method, thrown};
use crate::{
    error::{Error, Result},
    model::codec::{Target, WireRequest},
    runtime::platform::{Answer, ByteStream, Cancel},
};

const AI: &str = "AI";
/// What to do without the binding.
const NO_BINDING: &str = "name it in wrangler.toml (`[ai]`, `binding = \"AI\"`) and run or deploy with a Cloudflare account, or choose \
                          another model: `openai/…` with a key, `openai-compatible/…` with an address, or `demo`";

/// Sends `request` and resolves when the answer begins. Tripping `cancel` aborts it, then and while the body is read.
///
/// # Errors
/// No answer: the network's or the binding's own text. An answer with an error status is an answer.
pub(super) async fn send(env: Env, request: WireRequest, cancel: Cancel) -> Result<Answer> {
    let controller = AbortController::default();
    let signal = controller.signal();
    // From here on, whatever drops this future, or the body that comes out of it, releases the connection.
    let connection = Connection(Some(controller));
    let answer = async {
        match &request.target {
            Target::Url(url) => over_network(url, &request, &signal).await,
            Target::AiBinding { model, options } => through_binding(&env, model, options, &request.body, &signal).await,
        }
    };
    match select(std::pin::pin!(answer), std::pin::pin!(cancel.tripped())).await {
        Either::Left((response, _)) => answer_of(response?, connection, cancel),
        Either::Right(_) => Err(Error::platform("aborted")),
    }
}

async fn over_network(url: &str, request: &WireRequest, signal: &AbortSignal) -> Result<Response> {
    // One object, made by one call: a request costs every turn, and each call into JavaScript costs more than what it does.
    let headers: Map<String, Value> = request.headers.iter().map(|(n, v)| (n.clone(), Value::from(v.as_str()))).collect();
    let init = JSON::parse(&json!({ "method": "POST", "headers": headers }).to_string()).map_err(platform)?;
    let signal: &web_sys::AbortSignal = signal;
    for (name, value) in [("body", &JsValue::from_str(&request.body)), ("signal", signal.as_ref())] {
        Reflect::set(&init, &name.into(), value).map_err(platform)?;
    }
    let promise = fetch(url, &init).map_err(|e| Error::input(format!("the model cannot be asked at `{url}`: {}", thrown(&e))))?;
    let answer = JsFuture::from(promise).await.map_err(platform)?;
    Ok(answer.unchecked_into::<web_sys::Response>().into())
}

async fn through_binding(env: &Env, model: &str, options: &str, body: &str, signal: &AbortSignal) -> Result<Response> {
    // Not `Env::ai`: it insists on a constructor name that a proxied binding of local development does not have.
    let binding = field(env.as_ref(), AI)
        .filter(|b| has_method(b, "run"))
        .ok_or_else(|| Error::platform(format!("this worker has no Workers AI binding: {NO_BINDING}")))?;
    let input = JSON::parse(body).map_err(platform)?;
    let options = JSON::parse(if options.is_empty() { "{}" } else { options }).map_err(platform)?.unchecked_into::<Object>();
    let signal: &web_sys::AbortSignal = signal;
    for (name, value) in [("returnRawResponse", &JsValue::TRUE), ("signal", signal.as_ref())] {
        Reflect::set(&options, &name.into(), value).map_err(platform)?;
    }
    let promise = binding.unchecked_ref::<JsAi>().run(model, &input, &options).map_err(binding_error)?;
    let answer = JsFuture::from(promise).await.map_err(binding_error)?;
    let response = answer
        .dyn_into::<web_sys::Response>()
        .map_err(|_| Error::platform("the AI binding answered with something that is no response"))?;
    Ok(response.into())
}

fn answer_of(mut response: Response, mut connection: Connection, cancel: Cancel) -> Result<Answer> {
    let headers = if response.status_code() < 400 {
        // What is read of a good answer: reading all would cost every turn.
        let read = ["content-type", "x-request-id", "request-id", "cf-aig-log-id", "date"];
        read.iter().filter_map(|name| Some((name.to_string(), response.headers().get(name).ok()??))).collect()
    } else {
        response.headers().entries().collect()
    };
    let body: ByteStream = match response.body() {
        worker::ResponseBody::Stream(_) => Box::pin(Body {
            bytes: Some(response.stream().map_err(|e| Error::platform(text(&e)))?),
            tripped: cancel.tripped().boxed_local(),
            connection,
        }),
        worker::ResponseBody::Empty | worker::ResponseBody::Body(_) => {
            connection.ended();
            Box::pin(stream::empty())
        }
    };
    Ok(Answer { status: response.status_code(), headers, body })
}

/// A request under way: aborted when it is dropped, unless it has come to its end by itself.
struct Connection(Option<AbortController>);

impl Connection {
    fn release(&mut self) {
        if let Some(controller) = self.0.take() {
            controller.abort();
        }
    }

    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.release();
    }
}

/// The body of an answer. It ends when the peer ends it, when `cancel` trips (whether or not a read is pending: the binding's
/// streams do not observe a signal), or by dropping it; the latter two release the connection.
struct Body {
    bytes: Option<worker::ByteStream>,
    tripped: LocalBoxFuture<'static, ()>,
    connection: Connection,
}

impl Stream for Body {
    type Item = Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(bytes) = &mut self.bytes else { return Poll::Ready(None) };
        let read = Pin::new(bytes).poll_next(cx);
        if self.tripped.poll_unpin(cx).is_ready() {
            self.bytes = None;
            self.connection.release();
            return Poll::Ready(None);
        }
        match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) => Poll::Ready(Some(Ok(bytes))),
            Poll::Ready(Some(Err(e))) => {
                self.bytes = None;
                self.connection.release();
                Poll::Ready(Some(Err(Error::platform(text(&e)))))
            }
            Poll::Ready(None) => {
                self.bytes = None;
                self.connection.ended();
                Poll::Ready(None)
            }
        }
    }
}

/// `wrangler dev --local` has the binding, but only to refuse.
fn binding_error(value: JsValue) -> Error {
    let text = thrown(&value);
    if text.contains("run remotely") {
        return Error::platform(format!("Workers AI has no local simulation: {NO_BINDING}"));
    }
    Error::platform(text)
}

fn text(error: &worker::Error) -> String {
    thrown(&error.to_js_value())
}

fn platform(value: JsValue) -> Error {
    Error::platform(thrown(&value))
}
