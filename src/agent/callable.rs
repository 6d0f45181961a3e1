//! Methods that clients may call by name (wire §2.5).

use std::{future::Future, rc::Rc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::handle::AgentHandle;
use crate::{
    error::{Error, Result},
    ids::ConnId,
};

/// Method names that stock clients may know from the TypeScript original and that no client may call.
const NOT_CALLABLE: &[&str] = &[
    "abortAllRequests",
    "abortRequest",
    "addMessages",
    "alarm",
    "broadcast",
    "cancelSubmission",
    "clearMessages",
    "continueLastTurn",
    "deleteSubmission",
    "deleteSubmissions",
    "destroy",
    "fetch",
    "inspectSubmission",
    "listSubmissions",
    "onChatMessage",
    "onChatResponse",
    "onConnect",
    "onMessage",
    "onRequest",
    "onStart",
    "saveMessages",
    "schedule",
    "setState",
    "sql",
    "submitMessages",
    "waitForSubmission",
];

/// One call by a client.
#[derive(Clone)]
pub struct Call {
    /// The arguments, as sent.
    pub args: Vec<Value>,
    /// The socket that calls.
    pub conn: ConnId,
    /// The agent; refuses to change state if the connection is read-only.
    pub handle: AgentHandle,
    pub(crate) out: Rc<dyn Fn(Value)>,
}

impl Call {
    /// The argument at `i`.
    ///
    /// # Errors
    /// It is missing, or not of this type.
    pub fn arg<T: DeserializeOwned>(&self, i: usize) -> Result<T> {
        let value = self.args.get(i).cloned().unwrap_or(Value::Null);
        serde_json::from_value(value).map_err(|e| Error::input(format!("argument {i}: {e}")))
    }

    /// Sends a piece of a stream; the caller has to have asked for one.
    pub fn send(&self, piece: Value) {
        (self.out)(piece);
    }
}

type Method = Rc<dyn Fn(Call) -> LocalBoxFuture<'static, Result<Option<Value>>>>;

/// An allow-list of methods.
///
/// ```
/// use wakeful::{agent::callable::Callables, prelude::*};
/// use serde_json::json;
///
/// let callables = Callables::new()
///     .with("add", |call| async move { Ok(Some(json!(call.arg::<i64>(0)? + call.arg::<i64>(1)?))) })
///     .with("count", |call| async move {
///         for i in 0..call.arg::<u32>(0)? {
///             call.send(json!(i));
///         }
///         Ok(None)
///     });
/// assert!(callables.get("add").is_ok());
/// ```
#[derive(Clone, Default)]
pub struct Callables(Vec<(String, Method)>);

impl Callables {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method. `Ok(None)` is a call without a result.
    pub fn with<F, Fut>(mut self, name: impl Into<String>, method: F) -> Self
    where
        F: Fn(Call) -> Fut + 'static,
        Fut: Future<Output = Result<Option<Value>>> + 'static,
    {
        self.0.push((name.into(), Rc::new(move |call| method(call).boxed_local())));
        self
    }

    /// The method of this name.
    ///
    /// # Errors
    /// The text the caller gets: there is none, or it is not for clients.
    pub fn get(&self, name: &str) -> Result<Method> {
        match self.0.iter().find(|(n, _)| n == name) {
            Some((_, method)) => Ok(method.clone()),
            None if NOT_CALLABLE.contains(&name) => Err(Error::refused(format!("Method {name} is not callable"))),
            None => Err(Error::new(crate::error::ErrorKind::NotFound, format!("Method {name} does not exist"))),
        }
    }
}
