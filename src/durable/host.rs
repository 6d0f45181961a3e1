//! The handlers of a Durable Object: events of the platform become inputs of the runtime. Nothing is decided here but what the
//! platform forces: how a socket is accepted, refused and closed, and how much of a body is read.

use std::{cell::RefCell, rc::Rc, sync::Once};

use futures_util::StreamExt;
use worker::{
    Env, Headers, Method, Request, Response, ResponseBuilder, State, WebSocket, WebSocketIncomingMessage, WebSocketPair,
    wasm_bindgen::{JsCast, JsValue},
};

use super::{
    bindings::JsSocket,
    platform::ObjectPlatform,
    sockets::{self, Sockets, label},
};
use crate::{
    agent::Agent,
    error::{Error, ErrorKind, Result},
    ids::ConnId,
    limits,
    rng::Rng,
    runtime::{
        ConnRequest, Runtime,
        platform::{HttpRequest, HttpResponse, Platform},
        router::query_param,
    },
};

/// What a class made by [`durable_agent!`](crate::durable_agent) holds: one object with its conversation.
pub struct Host<A: Agent> {
    runtime: Rc<Runtime<A, ObjectPlatform>>,
    rng: RefCell<Option<Rng>>,
}

impl<A: Agent> Host<A> {
    /// Builds the object. Touches no storage: the first event does (a constructor can neither wait nor fail).
    pub fn new(class: &str, state: State, env: Env, agent: impl FnOnce(&Env) -> A) -> Self {
        chain_panic_hooks();
        let agent = agent(&env);
        Self { runtime: Runtime::new(agent, ObjectPlatform::new(class, &state, env)), rng: RefCell::new(None) }
    }

    /// HTTP, and the upgrade to a WebSocket.
    pub async fn fetch(&self, request: Request) -> worker::Result<Response> {
        if is_upgrade(&request) {
            return self.connect(&request);
        }
        match self.http(request).await {
            Ok(answer) => response(answer),
            Err(e) => {
                let status = match e.kind() {
                    ErrorKind::Limit => 413,
                    ErrorKind::Input => 400,
                    _ => 500,
                };
                worker::console_error!("request failed: {e}");
                response(HttpResponse::text(status, if status == 500 { "Internal error" } else { e.message() }))
            }
        }
    }

    /// The alarm.
    pub async fn alarm(&self) -> worker::Result<Response> {
        self.runtime.alarm().map_err(|e| worker::Error::RustError(e.to_string()))?;
        Response::empty()
    }

    /// A frame of a client.
    pub async fn websocket_message(&self, socket: WebSocket, message: WebSocketIncomingMessage) -> worker::Result<()> {
        if let Some(conn) = self.sockets().id_of(&raw(&socket)) {
            match message {
                WebSocketIncomingMessage::String(text) => self.runtime.text(&conn, text),
                WebSocketIncomingMessage::Binary(bytes) => self.runtime.binary(&conn, bytes),
            }
        }
        Ok(())
    }

    /// A client's close.
    pub async fn websocket_close(&self, socket: WebSocket, code: usize, reason: String, clean: bool) -> worker::Result<()> {
        let socket = raw(&socket);
        let code = u16::try_from(code).unwrap_or(1006);
        self.gone(&socket, code, &reason, clean);
        sockets::answer_close(&socket, code, &reason);
        Ok(())
    }

    /// A socket that broke.
    pub async fn websocket_error(&self, socket: WebSocket, _error: worker::Error) -> worker::Result<()> {
        self.gone(&raw(&socket), 1006, "", false);
        Ok(())
    }

    fn gone(&self, socket: &JsSocket, code: u16, reason: &str, clean: bool) {
        if let Some(conn) = self.sockets().id_of(socket) {
            self.sockets().forget(&conn);
            self.runtime.closed(&conn, code, reason, clean);
        }
    }

    fn connect(&self, request: &Request) -> worker::Result<Response> {
        if request.method() != Method::Get {
            return response(HttpResponse::text(405, "a WebSocket upgrade is a GET"));
        }
        let pair = WebSocketPair::new()?;
        let socket = raw(&pair.server);
        let request = head_of(request);
        let accepted = if query_param(&request.url, "__agents_transport").as_deref() == Some("capnweb") {
            // A final code: the page shows it instead of trying for ever (wire §1.12).
            sockets::refuse(&socket, None, 4400, "unsupported transport")
        } else {
            self.accept(socket.clone(), request).or_else(|e| {
                worker::console_error!("a connection failed during set-up: {e}");
                sockets::refuse(
                    &socket,
                    Some(r#"{"error":"The connection could not be set up."}"#),
                    1011,
                    "Uncaught exception during session setup",
                )
            })
        };
        accepted.map_err(|e| worker::Error::RustError(e.message().to_owned()))?;
        Response::from_websocket(pair.client)
    }

    fn accept(&self, socket: JsSocket, request: HttpRequest) -> Result<()> {
        let id: ConnId = self.random(crate::limits::CONN_ID).into();
        let label = match query_param(&request.url, "_pk").filter(|pk| !pk.is_empty()) {
            Some(pk) => label(&pk).to_owned(),
            None => self.random(crate::limits::CONN_LABEL),
        };
        let (meta, tags) = self.runtime.admit(&ConnRequest { id: id.clone(), label, request })?;
        self.sockets().accept(socket, &id, meta.clone(), &tags)?;
        self.runtime.opened(id, meta);
        Ok(())
    }

    async fn http(&self, request: Request) -> Result<HttpResponse> {
        let mut neutral = head_of(&request);
        neutral.body = body_of(request).await?;
        Ok(self.runtime.clone().http(neutral).await)
    }

    fn sockets(&self) -> &Sockets {
        &self.runtime.platform().sockets
    }

    /// Random letters and digits. Not from the engine's generator: a socket is named before the engine is loaded.
    fn random(&self, n: usize) -> String {
        self.rng.borrow_mut().get_or_insert_with(|| Rng::new(self.runtime.platform().entropy())).text(n)
    }
}

pub(super) fn is_upgrade(request: &Request) -> bool {
    request.headers().get("upgrade").ok().flatten().is_some_and(|v| v.eq_ignore_ascii_case("websocket"))
}

fn raw(socket: &WebSocket) -> JsSocket {
    JsValue::from(socket.as_ref()).unchecked_into()
}

fn head_of(request: &Request) -> HttpRequest {
    HttpRequest {
        method: request.inner().method(),
        url: request.inner().url(),
        headers: request.headers().entries().collect(),
        body: Vec::new(),
    }
}

/// The whole body, or an error if it is too large. What is too much is read and dropped: an answer before the end of the request
/// leaves some clients and proxies waiting for ever (tried with workerd behind wrangler's proxy).
async fn body_of(mut request: Request) -> Result<Vec<u8>> {
    if request.inner().body().is_none() {
        return Ok(Vec::new());
    }
    let unreadable = |e: worker::Error| Error::platform(format!("the request body could not be read: {e}"));
    let mut stream = request.stream().map_err(unreadable)?;
    let mut body = Vec::new();
    let mut size = 0;
    while let Some(bytes) = stream.next().await {
        let bytes = bytes.map_err(unreadable)?;
        size += bytes.len();
        if size <= limits::HTTP_BODY {
            body.extend_from_slice(&bytes);
        } else {
            body = Vec::new();
        }
    }
    if size > limits::HTTP_BODY {
        return Err(Error::limit(format!("the request body is {size} bytes, limit {} (limits::HTTP_BODY)", limits::HTTP_BODY)));
    }
    Ok(body)
}

/// The answer as the platform wants it. Statuses it would throw on become a 500: an application's slip must not end the object.
fn response(answer: HttpResponse) -> worker::Result<Response> {
    if !(200..=599).contains(&answer.status) {
        worker::console_error!("an application answered with status {}, which HTTP responses cannot have", answer.status);
        return Response::error("Internal error", 500);
    }
    let headers = Headers::new();
    for (name, value) in &answer.headers {
        headers.append(name, value)?;
    }
    let head = ResponseBuilder::new().with_status(answer.status).with_headers(headers);
    Ok(if answer.body.is_empty() || matches!(answer.status, 204 | 205 | 304) { head.empty() } else { head.fixed(answer.body) })
}

/// The text of a panic goes to the log with a stack, sockets are closed, and then it is the turn of the hook of `worker`, which marks the
/// instance for a fresh start.
fn chain_panic_hooks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            console_error_panic_hook::hook(info);
            sockets::close_all();
            previous(info);
        }));
    });
}
