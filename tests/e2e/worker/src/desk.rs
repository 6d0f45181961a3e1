//! The agent of the tests of page tools and approvals: tools that have to be allowed, tools that a page runs, and an account of what
//! really ran here. A gated tool whose input names a `key` runs until `release(key)`.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use futures_channel::oneshot;
use serde_json::{Value, json};
use wakeful::{prelude::*, runtime::router::query_param};

pub struct Clerk {
    pub model: ModelRef,
    /// Name and input of each server tool that was started, in order. Gone with the incarnation.
    ran: Rc<RefCell<Vec<Value>>>,
    waiting: Rc<RefCell<BTreeMap<String, oneshot::Sender<()>>>>,
}

impl Clerk {
    pub fn new(model: ModelRef) -> Self {
        Self { model, ran: Rc::default(), waiting: Rc::default() }
    }

    /// A server tool that notes its start, waits if its input says so, and ends with `{done: its name}`.
    fn tool(&self, name: &'static str) -> Tool {
        let (ran, waiting) = (self.ran.clone(), self.waiting.clone());
        Tool::dynamic(name, name, json!({ "type": "object" }), move |input, _| {
            let (ran, waiting) = (ran.clone(), waiting.clone());
            async move {
                let key = input["key"].as_str().map(str::to_owned);
                ran.borrow_mut().push(json!([name, input]));
                if let Some(key) = key {
                    let (release, released) = oneshot::channel();
                    waiting.borrow_mut().insert(key, release);
                    released.await.map_err(|_| ToolError::from("another call waits under this key"))?;
                }
                Ok(json!({ "done": name }))
            }
        })
    }
}

impl Agent for Clerk {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn is_readonly(&self, request: &ConnRequest) -> bool {
        query_param(&request.request.url, "readonly").is_some_and(|v| v == "1")
    }

    fn tools(&self, _: &Turn) -> Tools {
        let of_page = |name| Tool::client_dynamic(name, name, json!({ "type": "object" }));
        let transfer = self.tool("transfer").needs_approval_when(|input, _| async move {
            match input["eur"].as_f64() {
                Some(eur) if eur < 0.0 => Ok(Approval::Deny("no negative amounts".into())),
                Some(eur) if eur <= 100.0 => Ok(Approval::Allow),
                Some(_) => Ok(Approval::Ask),
                None => Err(Error::application("no amount")),
            }
        });
        Tools::new()
            .with(self.tool("pay").needs_approval())
            .with(transfer)
            .with(self.tool("work"))
            .with(of_page("ask"))
            .with(of_page("blink").wait(ClientToolWait::Timeout(1_000)))
    }

    fn callables(&self) -> Callables {
        let (ran, waiting) = (self.ran.clone(), self.waiting.clone());
        Callables::new()
            .with("ran", move |_| {
                let ran = ran.clone();
                async move { Ok(Some(Value::Array(ran.borrow().clone()))) }
            })
            .with("release", move |call| {
                let waiting = waiting.clone();
                async move {
                    let waiter = waiting.borrow_mut().remove(&call.arg::<String>(0)?);
                    Ok(Some(json!(waiter.is_some_and(|w| w.send(()).is_ok()))))
                }
            })
    }
}
