//! [`Platform`] over what a Durable Object is given: its storage, its sockets, its environment.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use worker::{
    Env, State,
    js_sys::{Date, Math, Promise, futures::JsFuture},
    wasm_bindgen::{JsCast, JsValue},
    wasm_bindgen_futures::spawn_local,
};

use super::{
    bindings::{self, JsState, JsStorage, Sleep, thrown},
    fetch,
    sockets::Sockets,
    sql::ObjectSql,
};
use crate::{
    engine::{events::Event, input::ConnMeta},
    error::{Error, Result},
    ids::ConnId,
    model::codec::WireRequest,
    runtime::platform::{Answer, Cancel, Platform},
    store::Sql,
    time::Millis,
};

/// The world of one object.
pub struct ObjectPlatform {
    state: JsState,
    storage: Rc<JsStorage>,
    sql: ObjectSql,
    pub(super) sockets: Rc<Sockets>,
    env: Env,
    name: String,
    class: String,
}

impl ObjectPlatform {
    pub(super) fn new(class: &str, state: &State, env: Env) -> Self {
        let raw = || JsValue::from(state.as_raw()).unchecked_into::<JsState>();
        let storage = || JsValue::from(state.storage().as_raw()).unchecked_into::<JsStorage>();
        // An object addressed by a unique id has no name; its id is as good and as stable.
        let id = state.id();
        let name = id.name().unwrap_or_else(|| id.to_string());
        Self {
            state: raw(),
            storage: Rc::new(storage()),
            sql: ObjectSql::new(storage()),
            sockets: Sockets::new(raw()),
            env,
            name,
            class: class.into(),
        }
    }
}

impl Platform for ObjectPlatform {
    fn sql(&self) -> &dyn Sql {
        &self.sql
    }

    fn now(&self) -> Millis {
        Millis(Date::now() as i64)
    }

    fn entropy(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        if getrandom::fill(&mut bytes).is_err() {
            // Ids of two incarnations must differ; they need not be secret.
            bytes.fill_with(|| (Math::random() * 256.0) as u8);
        }
        bytes
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn class(&self) -> String {
        self.class.clone()
    }

    fn sockets(&self) -> Vec<(ConnId, ConnMeta)> {
        self.sockets.all()
    }

    fn arm(&self, at: Option<Millis>) -> Result<()> {
        // The call acts at once; its promise only says that the write is on disk, and the output gate waits for that anyway.
        let written = match at {
            Some(at) => self.storage.set_alarm(at.0 as f64),
            None => self.storage.delete_alarm(),
        }
        .map_err(storage)?;
        spawn_local(async move {
            if let Err(e) = settled(written).await {
                worker::console_error!("the alarm was not written: {e}");
            }
        });
        Ok(())
    }

    fn sync(&self) -> LocalBoxFuture<'static, ()> {
        let written = self.storage.sync().map_err(storage);
        Box::pin(async move {
            let written = match written {
                Ok(promise) => settled(promise).await,
                Err(e) => Err(e),
            };
            if let Err(e) = written {
                // Where the write failed the object is broken, and nothing after this is heard of.
                worker::console_error!("the disk did not confirm: {e}");
            }
        })
    }

    fn send(&self, to: &[ConnId], frame: &str) {
        self.sockets.send(to, frame);
    }

    fn send_binary(&self, to: &ConnId, frame: &[u8]) {
        self.sockets.send_binary(to, frame);
    }

    fn close(&self, conn: &ConnId, code: u16, reason: &str) {
        self.sockets.close(conn, code, reason);
    }

    fn fetch(&self, request: WireRequest, cancel: Cancel) -> LocalBoxFuture<'static, Result<Answer>> {
        Box::pin(fetch::send(self.env.clone(), request, cancel))
    }

    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()> {
        Box::pin(Sleep::new(ms))
    }

    fn spawn(&self, job: LocalBoxFuture<'static, ()>) {
        // An object is one I/O context for all its events: a job goes on when the event that started it is over, and the
        // heartbeat of the alarm keeps the object. `waitUntil` would add nothing but a promise (tried).
        spawn_local(job);
    }

    fn abort(&self, reason: &str) {
        if let Err(e) = bindings::abort(&self.state, reason) {
            worker::console_error!("the object could not be ended: {}", thrown(&e));
        }
    }

    fn emit(&self, event: &Event) {
        worker::console_log!("{}", event.line());
    }
}

async fn settled(promise: Promise) -> Result<()> {
    JsFuture::from(promise).await.map(|_| ()).map_err(storage)
}

fn storage(value: JsValue) -> Error {
    Error::storage(thrown(&value))
}
