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
use worker::{
    AbortController, AbortSignal, Env, Fetch, Headers, Method, Request, RequestInit, Response,
    js_sys::{JSON, Object, Reflect, futures::JsFuture},
    wasm_bindgen::{JsCast, JsValue},
    web_sys,
};

use super::bindings::{JsAi, field, has_method, thrown};
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
    let mut hold = Hold(Some(AbortController::default()));
    let Some(signal) = hold.0.as_ref().map(AbortController::signal) else { return Err(Error::platform("aborted")) };
    let answer = async {
        match &request.target {
            Target::Url(url) => over_network(url, &request, &signal).await,
            Target::AiBinding { model, options } => through_binding(&env, model, options, &request.body, &signal).await,
        }
    };
    let response = match select(std::pin::pin!(answer), std::pin::pin!(cancel.tripped())).await {
        Either::Left((response, _)) => response?,
        Either::Right(_) => return Err(Error::platform("aborted")),
    };
    answer_of(response, hold.0.take(), cancel)
}

/// Aborts a request that nobody waits for any more, however the waiting ended. Taken out once there is an answer.
struct Hold(Option<AbortController>);

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(controller) = self.0.take() {
            controller.abort();
        }
    }
}

async fn over_network(url: &str, request: &WireRequest, signal: &AbortSignal) -> Result<Response> {
    let headers = Headers::new();
    for (name, value) in &request.headers {
        headers
            .append(name, value)
            .map_err(|e| Error::input(format!("the header `{name}` of a model request is not acceptable: {e}")))?;
    }
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_headers(headers).with_body(Some(JsValue::from_str(&request.body)));
    let request = Request::new_with_init(url, &init)
        .map_err(|e| Error::input(format!("the model's address `{url}` is not acceptable: {}", text(&e))))?;
    Fetch::Request(request).send_with_signal(signal).await.map_err(|e| Error::platform(text(&e)))
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

fn answer_of(mut response: Response, controller: Option<AbortController>, cancel: Cancel) -> Result<Answer> {
    let headers = response.headers().entries().collect();
    let body: ByteStream = match response.body() {
        worker::ResponseBody::Stream(_) => Box::pin(Body {
            bytes: Some(response.stream().map_err(|e| Error::platform(text(&e)))?),
            tripped: cancel.tripped().boxed_local(),
            controller,
        }),
        worker::ResponseBody::Empty | worker::ResponseBody::Body(_) => Box::pin(stream::empty()),
    };
    Ok(Answer { status: response.status_code(), headers, body })
}

/// The body of an answer. It ends when the peer ends it, when `cancel` trips (whether or not a read is pending: the binding's
/// streams do not observe a signal), or by dropping it; the latter two release the connection.
struct Body {
    bytes: Option<worker::ByteStream>,
    tripped: LocalBoxFuture<'static, ()>,
    controller: Option<AbortController>,
}

impl Body {
    fn stop(&mut self) {
        self.bytes = None;
        if let Some(controller) = self.controller.take() {
            controller.abort();
        }
    }
}

impl Stream for Body {
    type Item = Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(bytes) = &mut self.bytes else { return Poll::Ready(None) };
        let read = Pin::new(bytes).poll_next(cx);
        if self.tripped.poll_unpin(cx).is_ready() {
            self.stop();
            return Poll::Ready(None);
        }
        match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(bytes))) => Poll::Ready(Some(Ok(bytes))),
            Poll::Ready(Some(Err(e))) => {
                self.stop();
                Poll::Ready(Some(Err(Error::platform(text(&e)))))
            }
            Poll::Ready(None) => {
                self.bytes = None;
                self.controller = None;
                Poll::Ready(None)
            }
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.bytes.is_some() {
            self.stop();
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
