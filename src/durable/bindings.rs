//! What the platform offers and `worker` does not bind, or binds so that a thrown exception would cross Rust frames.
//!
//! Every call here catches. Types are structural: they are names for objects that `worker` already hands out.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use worker::{
    js_sys::{Array, Function, JsString, Promise, Reflect, futures::JsFuture},
    wasm_bindgen::{JsCast, prelude::*},
};

#[wasm_bindgen(wasm_bindgen = worker::wasm_bindgen)]
extern "C" {
    /// `ctx`.
    pub(super) type JsState;

    #[wasm_bindgen(structural, method, catch, getter)]
    pub(super) fn storage(this: &JsState) -> Result<JsStorage, JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = acceptWebSocket)]
    pub(super) fn accept_web_socket(this: &JsState, socket: &JsSocket, tags: &Array) -> Result<(), JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = getWebSockets)]
    pub(super) fn get_web_sockets(this: &JsState) -> Result<Array, JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = waitUntil)]
    pub(super) fn wait_until(this: &JsState, promise: &Promise) -> Result<(), JsValue>;

    #[wasm_bindgen(structural, method, catch, getter)]
    fn abort(this: &JsState) -> Result<Function, JsValue>;

    /// `ctx.storage`.
    pub(super) type JsStorage;

    #[wasm_bindgen(structural, method, catch, getter)]
    pub(super) fn sql(this: &JsStorage) -> Result<JsSql, JsValue>;

    /// Commits when `body` returns, rolls back when it throws, and throws what it threw.
    #[wasm_bindgen(structural, method, catch, js_name = transactionSync)]
    pub(super) fn transaction_sync(this: &JsStorage, body: &mut dyn FnMut() -> Result<(), JsValue>) -> Result<JsValue, JsValue>;

    /// Acts when called, not when the promise is awaited.
    #[wasm_bindgen(structural, method, catch, js_name = setAlarm)]
    pub(super) fn set_alarm(this: &JsStorage, at_ms: f64) -> Result<Promise, JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = deleteAlarm)]
    pub(super) fn delete_alarm(this: &JsStorage) -> Result<Promise, JsValue>;

    /// Resolves when everything written so far is on disk.
    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn sync(this: &JsStorage) -> Result<Promise, JsValue>;

    /// `ctx.storage.sql`.
    pub(super) type JsSql;

    #[wasm_bindgen(structural, method, catch, variadic)]
    pub(super) fn exec(this: &JsSql, statement: &str, args: &Array) -> Result<JsCursor, JsValue>;

    /// What `exec` returns.
    pub(super) type JsCursor;

    /// The rows as arrays.
    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn raw(this: &JsCursor) -> Result<JsRows, JsValue>;

    #[wasm_bindgen(structural, method, catch, getter, js_name = rowsRead)]
    pub(super) fn rows_read(this: &JsCursor) -> Result<f64, JsValue>;

    #[wasm_bindgen(structural, method, catch, getter, js_name = rowsWritten)]
    pub(super) fn rows_written(this: &JsCursor) -> Result<f64, JsValue>;

    /// The iterator of [`JsCursor::raw`].
    pub(super) type JsRows;

    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn next(this: &JsRows) -> Result<JsNext, JsValue>;

    /// A step of an iterator.
    pub(super) type JsNext;

    #[wasm_bindgen(structural, method, getter)]
    pub(super) fn done(this: &JsNext) -> bool;

    #[wasm_bindgen(structural, method, getter)]
    pub(super) fn value(this: &JsNext) -> JsValue;

    /// A server-side WebSocket.
    #[derive(Clone)]
    pub(super) type JsSocket;

    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn accept(this: &JsSocket) -> Result<(), JsValue>;

    /// Takes a string made once for every socket that gets the frame, or an `ArrayBuffer`.
    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn send(this: &JsSocket, frame: &JsValue) -> Result<(), JsValue>;

    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn close(this: &JsSocket) -> Result<(), JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = close)]
    pub(super) fn close_with(this: &JsSocket, code: u16, reason: &str) -> Result<(), JsValue>;

    #[wasm_bindgen(structural, method, catch, getter, js_name = readyState)]
    pub(super) fn ready_state(this: &JsSocket) -> Result<u16, JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = serializeAttachment)]
    pub(super) fn serialize_attachment(this: &JsSocket, value: &JsString) -> Result<(), JsValue>;

    #[wasm_bindgen(structural, method, catch, js_name = deserializeAttachment)]
    pub(super) fn deserialize_attachment(this: &JsSocket) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(catch)]
    pub(super) fn fetch(url: &str, init: &JsValue) -> Result<Promise, JsValue>;

    /// The handle is a number or an object, depending on the compatibility date; `worker::Delay` insists on a number.
    #[wasm_bindgen(catch, js_name = setTimeout)]
    fn set_timeout(callback: &Function, ms: u32) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(catch, js_name = clearTimeout)]
    fn clear_timeout(handle: &JsValue) -> Result<(), JsValue>;

    /// `env.AI`.
    pub(super) type JsAi;

    #[wasm_bindgen(structural, method, catch)]
    pub(super) fn run(this: &JsAi, model: &str, input: &JsValue, options: &JsValue) -> Result<Promise, JsValue>;
}

/// Ends the object at the next turn of the event loop.
///
/// Not at once: the platform ends what runs like a crash, without unwinding. With Rust on the stack the instance would be left with its
/// executor in mid-poll, and every other object and request that shares it would hang (tried with workerd). So the timer calls the
/// platform's own function, with nothing of ours below it.
pub(super) fn abort(state: &JsState, reason: &str) -> Result<(), JsValue> {
    let bound = state.abort()?.bind1(state, &reason.into());
    set_timeout(bound.unchecked_ref(), 0).map(|_| ())
}

/// Resolves after some milliseconds. Dropping it clears the timer.
pub(super) struct Sleep {
    fired: JsFuture,
    handle: Option<JsValue>,
}

impl Sleep {
    pub(super) fn new(ms: u32) -> Self {
        let mut handle = None;
        let promise = Promise::new(&mut |resolve, _| {
            handle = set_timeout(&resolve, ms).ok();
            if handle.is_none() {
                worker::console_error!("the platform refused a timer of {ms} ms");
                // Early is better than never: whoever sleeps looks at the clock or counts attempts.
                let _ = resolve.call0(&JsValue::UNDEFINED);
            }
        });
        Self { fired: JsFuture::from(promise), handle }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.fired).poll(cx).map(|_| self.handle = None)
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let _ = clear_timeout(&handle);
        }
    }
}

/// The text of something thrown, with the texts of its causes: wrappers hide the one that tells what happened.
pub(super) fn thrown(value: &JsValue) -> String {
    // A cause may name itself; eight wrappers are more than any seen.
    const CAUSES: usize = 8;
    let mut text = String::new();
    let mut current = value.clone();
    for _ in 0..CAUSES {
        let part = current.as_string().or_else(|| string_field(&current, "message"));
        if let Some(part) = part.filter(|p| !p.is_empty() && !text.contains(p.as_str())) {
            if !text.is_empty() {
                text.push_str(", caused by: ");
            }
            text.push_str(&part);
        }
        match field(&current, "cause") {
            Some(cause) => current = cause,
            None => break,
        }
    }
    if text.is_empty() { format!("{value:?}") } else { text }
}

/// A field of an object; `None` for a missing one and for what has no fields.
pub(super) fn field(of: &JsValue, name: &str) -> Option<JsValue> {
    if !of.is_object() {
        return None;
    }
    Reflect::get(of, &name.into()).ok().filter(|v| !v.is_undefined() && !v.is_null())
}

/// A field that is a string.
pub(super) fn string_field(of: &JsValue, name: &str) -> Option<String> {
    field(of, name)?.as_string()
}

/// Whether a field is a function.
pub(super) fn has_method(of: &JsValue, name: &str) -> bool {
    field(of, name).is_some_and(|v| v.is_instance_of::<Function>() || v.is_function())
}
