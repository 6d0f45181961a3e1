//! The agent: everything it does can be steered and observed from outside, by the query of a socket, by a callable, or over HTTP.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use futures_channel::oneshot;
use serde_json::{Value, json};
use wakeful::{agent::Message, ids::ConnId, prelude::*, runtime::router::query_param};

pub struct Probe {
    pub config: Config,
    pub model: ModelRef,
    /// What reached `on_message`, `on_connect`, `on_close` and `on_state_changed`, in order.
    pub seen: Rc<RefCell<Vec<Value>>>,
    /// Calls of `wait` by key; `release` ends them.
    pub waiting: Rc<RefCell<BTreeMap<String, oneshot::Sender<()>>>>,
    /// Sockets that `on_connect` closes.
    pub unwelcome: RefCell<Vec<ConnId>>,
}

impl Probe {
    pub fn new(config: Config, model: ModelRef) -> Self {
        Self { config, model, seen: Rc::default(), waiting: Rc::default(), unwelcome: RefCell::default() }
    }

    fn note(&self, what: Value) {
        self.seen.borrow_mut().push(what);
    }
}

fn flag(request: &ConnRequest, name: &str) -> bool {
    query_param(&request.request.url, name).is_some_and(|v| v == "1")
}

/// Adds `messages` of `bytes` of text each, the first with the number `from`; people and model take turns.
async fn fill(handle: &AgentHandle, url: &str) -> Result<()> {
    let number = |name| query_param(url, name).and_then(|v| v.parse::<usize>().ok()).ok_or_else(|| Error::input(format!("no {name}")));
    let (from, messages, bytes) = (number("from")?, number("messages")?, number("bytes")?);
    let text = "x".repeat(bytes);
    let message = |n: usize| {
        let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
        json!({ "id": format!("m{n}"), "role": role, "parts": [{ "type": "text", "text": text }] })
    };
    let all: serde_json::Result<Vec<UiMessage>> = (from..from + messages).map(|n| serde_json::from_value(message(n))).collect();
    handle.add_messages(all?).await
}

impl Agent for Probe {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn config(&self) -> Config {
        self.config.clone()
    }

    fn connection_tags(&self, request: &ConnRequest) -> Result<Vec<String>> {
        if flag(request, "fail") {
            return Err(Error::application("secret detail of a failed set-up"));
        }
        if flag(request, "leave") {
            self.unwelcome.borrow_mut().push(request.id.clone());
        }
        Ok(query_param(&request.request.url, "tags").map(|t| t.split(',').map(str::to_owned).collect()).unwrap_or_default())
    }

    fn is_readonly(&self, request: &ConnRequest) -> bool {
        flag(request, "readonly")
    }

    fn sends_protocol(&self, request: &ConnRequest) -> bool {
        !flag(request, "quiet")
    }

    fn validate_state(&self, state: &Value, _: &ConnId) -> Result<()> {
        if state.get("bad").is_some() { Err(Error::input("secret detail of a refused state")) } else { Ok(()) }
    }

    async fn on_connect(&self, handle: &AgentHandle, conn: &ConnId) {
        self.note(json!("connect"));
        let unwelcome = self.unwelcome.borrow().contains(conn);
        if unwelcome && let Err(e) = handle.close(conn, 4403, "not welcome").await {
            self.note(json!({ "notClosed": e.to_string() }));
        }
    }

    async fn on_message(&self, _: &AgentHandle, _: &ConnId, message: &Message) {
        self.note(match message {
            Message::Text(text) => json!({ "text": text }),
            Message::Binary(bytes) => json!({ "binary": bytes.len() }),
        });
    }

    async fn on_close(&self, _: &AgentHandle, _: &ConnId, code: u16, reason: &str) {
        self.note(json!({ "close": code, "reason": reason }));
    }

    async fn on_state_changed(&self, _: &AgentHandle, state: &Value, by: Option<&ConnId>) {
        self.note(json!({ "state": state, "byClient": by.is_some() }));
    }

    async fn on_request(&self, handle: &AgentHandle, request: &HttpRequest) -> Option<HttpResponse> {
        if request.path().ends_with("/fill") {
            return Some(match fill(handle, &request.url).await {
                Ok(()) => HttpResponse::text(200, ""),
                Err(e) => HttpResponse::text(500, e.to_string()),
            });
        }
        if !request.path().ends_with("/echo") {
            return None;
        }
        let headers: BTreeMap<&str, &str> = request.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let answer = json!({ "method": request.method, "path": request.path(), "headers": headers, "body": request.body.len() });
        Some(HttpResponse::json(200, answer.to_string()))
    }

    fn callables(&self) -> Callables {
        let (seen, waiting, released) = (self.seen.clone(), self.waiting.clone(), self.waiting.clone());
        Callables::new()
            .with("add", |call| async move { Ok(Some(json!(call.arg::<f64>(0)? + call.arg::<f64>(1)?))) })
            .with("nothing", |_| async { Ok(None) })
            .with("fails", |call| async move { Err(Error::application(call.arg::<String>(0)?)) })
            .with("count", |call| async move {
                for i in 0..call.arg::<u32>(0)? {
                    call.send(json!({ "chunk": i }));
                }
                Ok(Some(json!("counted")))
            })
            .with("breaks", |call| async move {
                for i in 0..call.arg::<u32>(0)? {
                    call.send(json!({ "chunk": i }));
                }
                Err(Error::application("broken off"))
            })
            .with("wait", move |call| {
                let waiting = waiting.clone();
                async move {
                    let key: String = call.arg(0)?;
                    let (release, released) = oneshot::channel();
                    waiting.borrow_mut().insert(key.clone(), release);
                    released.await.map_err(|_| Error::application("another call waits under this key"))?;
                    Ok(Some(json!(key)))
                }
            })
            .with("release", move |call| {
                let released = released.clone();
                async move {
                    let key: String = call.arg(0)?;
                    let waiter = released.borrow_mut().remove(&key);
                    Ok(Some(json!(waiter.is_some_and(|w| w.send(()).is_ok()))))
                }
            })
            .with("getState", |call| async move { call.handle.state().await })
            .with("assign", |call| async move { call.handle.set_state(call.arg(0)?).await.map(|()| None) })
            .with("close", |call| async move {
                call.handle.close(&call.conn, call.arg(0)?, call.arg::<String>(1)?).await.map(|()| None)
            })
            .with("say", |call| async move { call.handle.broadcast(call.arg::<String>(0)?).await.map(|()| None) })
            .with("bytes", |call| async move {
                call.handle.send_binary(&call.conn, &vec![7; call.arg(0)?]);
                Ok(None)
            })
            .with("greet", |call| async move {
                let message = json!({ "id": call.arg::<String>(0)?, "role": "assistant", "parts": [{ "type": "text", "text": "hello" }] });
                call.handle.add_messages(vec![serde_json::from_value(message)?]).await.map(|()| None)
            })
            .with("ask", |call| async move {
                let message = json!({ "id": call.arg::<String>(0)?, "role": "user", "parts": [{ "type": "text", "text": call.arg::<String>(1)? }] });
                let result = call.handle.save_messages(vec![serde_json::from_value(message)?]).await?;
                Ok(Some(json!({ "status": result.status.as_str(), "requestId": result.request_id, "message": result.message })))
            })
            .with("seen", move |_| {
                let seen = seen.clone();
                async move { Ok(Some(Value::Array(seen.borrow().clone()))) }
            })
            .with("panic", |call| async move {
                if call.args.is_empty() {
                    panic!("a test asked for it");
                }
                Ok(None)
            })
    }
}
