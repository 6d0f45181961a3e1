//! A class whose statements can be seen, and that can be made to die inside a transaction. No code of an application runs in there, so
//! the class stands between the object and its database: it is what the macro makes, with a tap on `ctx.storage.sql.exec`.

use std::{cell::RefCell, panic::AssertUnwindSafe, rc::Rc};

use serde_json::{Value, json};
use wakeful::{
    Config,
    durable::{
        Host,
        worker::{
            self, DurableObject, Env, Request, Response, Result, State, WebSocket, WebSocketIncomingMessage, durable_object,
            js_sys::{Array, Function, Object, Proxy, Reflect},
            wasm_bindgen::{self, JsCast, JsValue, closure::Closure},
        },
    },
    runtime::router::query_param,
};

use crate::{probe::Probe, routes::model};

#[durable_object]
pub struct Tapped {
    host: AssertUnwindSafe<Host<Probe>>,
    tap: AssertUnwindSafe<Rc<RefCell<Tap>>>,
}

#[derive(Default)]
struct Tap {
    /// The statements of this incarnation with their cursors, which say what they cost once they were read.
    ran: Vec<(String, JsValue)>,
    /// The statement to die after.
    last: Option<String>,
}

impl DurableObject for Tapped {
    fn new(state: State, env: Env) -> Self {
        let tap = Rc::<RefCell<Tap>>::default();
        install(&state, tap.clone());
        let make = |env: &Env| Probe::new(Config::default(), model(env));
        Self { host: AssertUnwindSafe(Host::new("Tapped", state, env, make)), tap: AssertUnwindSafe(tap) }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        // Answered beside the object, so that asking wakes nothing.
        match request.path().rsplit('/').next() {
            Some("statements") => Response::from_json(&self.tap.borrow().statements()),
            Some("trap") => {
                self.tap.borrow_mut().last = query_param(&request.inner().url(), "after");
                Response::empty()
            }
            _ => self.host.0.fetch(request).await,
        }
    }

    async fn alarm(&self) -> Result<Response> {
        self.host.0.alarm().await
    }

    async fn websocket_message(&self, socket: WebSocket, message: WebSocketIncomingMessage) -> Result<()> {
        self.host.0.websocket_message(socket, message).await
    }

    async fn websocket_close(&self, socket: WebSocket, code: usize, reason: String, clean: bool) -> Result<()> {
        self.host.0.websocket_close(socket, code, reason, clean).await
    }

    async fn websocket_error(&self, socket: WebSocket, error: worker::Error) -> Result<()> {
        self.host.0.websocket_error(socket, error).await
    }
}

impl Tap {
    fn statements(&self) -> Value {
        let rows = |cursor: &JsValue| get(cursor, "rowsRead").as_f64();
        let ran: Vec<Value> = self.ran.iter().map(|(text, cursor)| json!({ "text": text, "rowsRead": rows(cursor) })).collect();
        // A wasm memory never shrinks: its size is the most it ever was.
        let memory = get(&get(&wasm_bindgen::memory(), "buffer"), "byteLength").as_f64();
        json!({ "ran": ran, "memory": memory })
    }
}

fn install(state: &State, tap: Rc<RefCell<Tap>>) {
    let storage = state.storage();
    let sql = get(&JsValue::from(storage.as_raw()), "sql");
    // Not the object's own: there stands the tap of an incarnation that died.
    let exec: Function = get(&Object::get_prototype_of(&sql), "exec").unchecked_into();
    let apply = Closure::<dyn Fn(Function, JsValue, Array) -> std::result::Result<JsValue, JsValue>>::new({
        move |exec: Function, sql: JsValue, args: Array| {
            let cursor = Reflect::apply(&exec, &sql, &args)?;
            let text = args.get(0).as_string().unwrap_or_default();
            let mut tap = tap.borrow_mut();
            let dies = tap.last.as_ref().is_some_and(|last| text.starts_with(last.as_str()));
            tap.ran.push((text, cursor.clone()));
            drop(tap);
            if dies {
                panic!("a test asked for it");
            }
            Ok(cursor)
        }
    });
    let handler = Object::new();
    let _ = Reflect::set(&handler, &"apply".into(), &apply.into_js_value());
    let _ = Reflect::set(&sql, &"exec".into(), &Proxy::new(&exec, &handler));
}

fn get(of: &JsValue, name: &str) -> JsValue {
    Reflect::get(of, &name.into()).unwrap_or(JsValue::UNDEFINED)
}
