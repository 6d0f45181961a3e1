//! The object's HTTP side: the transcript, what the application answers, and 404.

use std::rc::Rc;

use super::{
    Runtime,
    platform::{HttpRequest, HttpResponse, Platform},
};
use crate::{
    agent::{Agent, handle::Mailbox},
    engine::input::{Answer, Command},
    wire,
};

impl<A: Agent, P: Platform> Runtime<A, P> {
    /// Answers a request that is no upgrade. Routes match by suffix: the application may mount the object anywhere (wire §1.4).
    pub async fn http(self: Rc<Self>, request: HttpRequest) -> HttpResponse {
        self.heard();
        if request.path().ends_with("/get-messages") {
            return match request.method.as_str() {
                "GET" | "HEAD" => self.get_messages().await,
                _ => HttpResponse::text(405, "get-messages is read with GET"),
            };
        }
        match self.agent.on_request(&self.handle(), &request).await {
            Some(response) => response,
            None => HttpResponse::text(404, "Not implemented"),
        }
    }

    /// The newest window of the stored path (wire §1.6). Answered from rows at once, whatever is running.
    async fn get_messages(self: Rc<Self>) -> HttpResponse {
        match self.ask(Command::GetMessages).await {
            Ok(Ok(Answer::Messages(messages))) => {
                let mut body = String::new();
                wire::array(&mut body, &messages);
                HttpResponse::json(200, body)
            }
            // The cause is in the log; a stack or a statement is nobody's business.
            _ => HttpResponse::text(500, "the conversation could not be read"),
        }
    }
}
