//! The agent that the killer ends in mid-work (tests/e2e/kill): tools whose effects are counted outside of this process, and ways to
//! die that are no SIGKILL.

use std::{cell::Cell, future::Future, pin::Pin, rc::Rc};

use serde_json::{Value, json};
use wakeful::prelude::*;

/// Posts a value to the effects' endpoint, at this path of it, and gives back what it says.
pub type Post = Rc<dyn Fn(&'static str, Value) -> Pin<Box<dyn Future<Output = std::result::Result<Value, String>>>>>;

pub struct Killed {
    pub model: ModelRef,
    pub post: Post,
    /// Names this deployment.
    pub build: String,
    /// How often this incarnation was asked for `life`.
    asked: Rc<Cell<u32>>,
}

impl Killed {
    pub fn new(model: ModelRef, build: String, post: Post) -> Self {
        Self { model, post, build, asked: Rc::default() }
    }

    /// A tool that has its effect outside, under the call's id and its idempotency key.
    fn tool(&self, name: &'static str) -> Tool {
        let post = self.post.clone();
        Tool::dynamic(name, name, json!({ "type": "object" }), move |input, scope| {
            let body = json!({ "tool": name, "input": input, "call": scope.call_id(), "key": scope.idempotency_key() });
            let answer = post("tool", body);
            async move { answer.await.map_err(ToolError::ToModel) }
        })
    }
}

impl Agent for Killed {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn config(&self) -> Config {
        Config { callables: BuiltIns { submissions: true }, ..Config::default() }
    }

    fn tools(&self, _: &Turn) -> Tools {
        let of_page = |name| Tool::client_dynamic(name, name, json!({ "type": "object" }));
        Tools::new()
            .with(self.tool("once"))
            .with(self.tool("keyed").keyed())
            .with(self.tool("look").pure())
            .with(self.tool("pay").needs_approval())
            .with(of_page("page"))
    }

    async fn on_chat_response(&self, handle: &AgentHandle, response: &ChatResponse) {
        // The first message names the conversation.
        let first = handle.messages().await.ok().and_then(|all| all.first().map(UiMessage::text));
        let body = json!({
            "of": first,
            "request": response.request_id,
            "message": response.message.as_ref().map(|message| message.id.to_string()),
            "status": response.status.as_str(),
            "recovered": response.recovered,
        });
        // A hook that fails has failed: it is owed no longer.
        let _ = (self.post)("hook", body).await;
    }

    async fn on_request(&self, handle: &AgentHandle, request: &HttpRequest) -> Option<HttpResponse> {
        let path = request.path();
        match path.rsplit('/').next()? {
            "abort" => {
                handle.abort_object("the killer asked for it");
                None
            }
            "panic" => panic!("the killer asked for it"),
            "life" => {
                self.asked.set(self.asked.get() + 1);
                Some(HttpResponse::json(200, json!({ "asked": self.asked.get(), "build": self.build }).to_string()))
            }
            "ask" => {
                let message = serde_json::from_slice(&request.body).ok()?;
                Some(match handle.save_messages(vec![message]).await {
                    Ok(result) => HttpResponse::json(200, json!({ "status": result.status.as_str() }).to_string()),
                    Err(e) => HttpResponse::text(409, e.to_string()),
                })
            }
            _ => None,
        }
    }
}
