//! The sockets of an object: accepted so that they outlive its memory, found again by what is attached to them.
//!
//! A socket is named by an id of ours. `_pk` is only its label: it is reused on every reconnect, so two live sockets may carry
//! the same (wire §1.9).

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
};

use serde::{Deserialize, Serialize};
use worker::{
    js_sys::{Array, JsString, Uint8Array},
    wasm_bindgen::{JsCast, JsValue},
};

use super::bindings::{JsSocket, JsState, thrown};
use crate::{
    engine::input::ConnMeta,
    error::{Error, Result},
    ids::ConnId,
    limits,
};

const OPEN: u16 = 1;
/// "Service restart": clients connect again.
const RESTART: u16 = 1012;

thread_local! {
    /// Those of every object of this instance.
    static OF_INSTANCE: RefCell<Vec<Weak<Sockets>>> = RefCell::default();
}

/// What is attached to a socket. Short names: it is written at every connect.
#[derive(Serialize, Deserialize)]
struct Attachment {
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "m")]
    meta: ConnMeta,
}

/// The attached sockets by id. Filled at the first question of an incarnation, kept up to date by the events.
pub(super) struct Sockets {
    state: JsState,
    live: RefCell<Option<BTreeMap<ConnId, Entry>>>,
}

struct Entry {
    socket: JsSocket,
    meta: ConnMeta,
}

impl Sockets {
    pub(super) fn new(state: JsState) -> Rc<Self> {
        let this = Rc::new(Self { state, live: RefCell::new(None) });
        OF_INSTANCE.with_borrow_mut(|all| {
            all.retain(|sockets| sockets.strong_count() > 0);
            all.push(Rc::downgrade(&this));
        });
        this
    }

    /// Accepts a socket under `id`, with `tags` after it.
    ///
    /// # Errors
    /// A tag that is empty or too long, too many tags, or the platform refused. The socket is then not accepted.
    pub(super) fn accept(&self, socket: JsSocket, id: &ConnId, meta: ConnMeta, tags: &[String]) -> Result<()> {
        check_tags(tags)?;
        let all = Array::new();
        all.push(&JsValue::from_str(id));
        for tag in tags {
            all.push(&JsValue::from_str(tag));
        }
        self.state.accept_web_socket(&socket, &all).map_err(platform)?;
        attach(&socket, id, &meta)?;
        self.with(|live| live.insert(id.clone(), Entry { socket, meta }));
        Ok(())
    }

    /// The socket's id, if it is one of ours.
    pub(super) fn id_of(&self, socket: &JsSocket) -> Option<ConnId> {
        read(socket).map(|a| a.id.into())
    }

    pub(super) fn all(&self) -> Vec<(ConnId, ConnMeta)> {
        self.with(|live| live.iter().map(|(id, entry)| (id.clone(), entry.meta.clone())).collect())
    }

    /// Sends one text frame; the string crosses into JavaScript once, however many get it. A socket on its way out throws,
    /// which is nothing to anyone (wire §2.0).
    pub(super) fn send(&self, to: &[ConnId], frame: &str) {
        if to.is_empty() {
            return;
        }
        let frame = JsValue::from_str(frame);
        self.with(|live| {
            for entry in to.iter().filter_map(|id| live.get(id)) {
                let _ = entry.socket.send(&frame);
            }
        });
    }

    pub(super) fn send_binary(&self, to: &ConnId, frame: &[u8]) {
        let frame = Uint8Array::from(frame);
        self.with(|live| live.get(to).map(|entry| entry.socket.send(&frame.buffer())));
    }

    pub(super) fn close(&self, id: &ConnId, code: u16, reason: &str) {
        self.with(|live| live.get(id).map(|entry| entry.socket.close_with(code, cut(reason, crate::limits::CLOSE_REASON))));
    }

    /// Drops a socket that is gone.
    pub(super) fn forget(&self, id: &ConnId) {
        self.with(|live| live.remove(id));
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<ConnId, Entry>) -> T) -> T {
        f(self.live.borrow_mut().get_or_insert_with(|| self.found()))
    }

    /// The sockets that survived the last incarnation.
    fn found(&self) -> BTreeMap<ConnId, Entry> {
        let mut live = BTreeMap::new();
        let Ok(sockets) = self.state.get_web_sockets() else { return live };
        for socket in sockets.iter().map(JsCast::unchecked_into::<JsSocket>) {
            if socket.ready_state().is_ok_and(|s| s != OPEN) {
                continue;
            }
            match read(&socket) {
                Some(Attachment { id, meta }) => {
                    live.insert(id.into(), Entry { socket, meta });
                }
                // Nobody can be told apart by it any more: let the client come back as a new one.
                None => {
                    let _ = socket.close_with(1011, "unknown socket");
                }
            }
        }
        live
    }
}

/// The instance is at its end, in the middle of whatever it was doing: sockets would outlive it and never hear what they were owed.
/// Their clients come back by themselves, which also wakes what was interrupted.
pub(super) fn close_all() {
    let all = OF_INSTANCE.with(|all| all.try_borrow().map(|all| all.clone()).unwrap_or_default());
    for sockets in all.iter().filter_map(Weak::upgrade) {
        // Only those of the object whose event this is: others throw, being in the middle of nothing.
        let attached = sockets.state.get_web_sockets().unwrap_or_default();
        for socket in attached.iter().map(JsCast::unchecked_into::<JsSocket>) {
            let _ = socket.close_with(RESTART, "the object starts anew");
        }
    }
}

/// Accepts a socket only to say `frame` and close it. Not for hibernation: workerd never lets go of the connection of a hibernatable
/// socket that is closed before its client has said anything, and some clients wait for that (tried, with JavaScript too).
pub(super) fn refuse(socket: &JsSocket, frame: Option<&str>, code: u16, reason: &str) -> Result<()> {
    socket.accept().map_err(platform)?;
    if let Some(frame) = frame {
        socket.send(&JsValue::from_str(frame)).map_err(platform)?;
    }
    socket.close_with(code, cut(reason, crate::limits::CLOSE_REASON)).map_err(platform)
}

/// Answers a peer's close (wire §1.10): the same code, but for those that no frame may carry.
pub(super) fn answer_close(socket: &JsSocket, code: u16, reason: &str) {
    let _ = match code {
        1004..=1006 | 1015 => socket.close(),
        _ => socket.close_with(code, cut(reason, crate::limits::CLOSE_REASON)).or_else(|_| socket.close()),
    };
}

/// A label as it is kept: at most as long as a tag may be.
pub(super) fn label(text: &str) -> &str {
    cut(text, limits::TAG)
}

fn attach(socket: &JsSocket, id: &ConnId, meta: &ConnMeta) -> Result<()> {
    let text = serde_json::to_string(&Attachment { id: id.as_str().to_owned(), meta: meta.clone() })?;
    if text.len() > limits::ATTACHMENT {
        return Err(Error::limit(format!(
            "a socket's attachment is {} bytes, limit {} (limits::ATTACHMENT)",
            text.len(),
            limits::ATTACHMENT
        )));
    }
    socket.serialize_attachment(&JsString::from(text)).map_err(platform)
}

fn read(socket: &JsSocket) -> Option<Attachment> {
    let text = socket.deserialize_attachment().ok()?.as_string()?;
    serde_json::from_str(&text).ok()
}

fn check_tags(tags: &[String]) -> Result<()> {
    // The id of the socket is the first of them.
    if tags.len() >= limits::TAGS {
        return Err(Error::limit(format!("a connection has {} tags, limit {}", tags.len(), limits::TAGS - 1)));
    }
    match tags.iter().find(|tag| tag.is_empty() || tag.chars().count() > limits::TAG) {
        Some(tag) => {
            Err(Error::limit(format!("a connection tag has {} characters, it may have 1 to {}", tag.chars().count(), limits::TAG)))
        }
        None => Ok(()),
    }
}

/// The longest beginning of `text` of at most `bytes` bytes that ends between characters.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

fn platform(value: JsValue) -> Error {
    Error::platform(thrown(&value))
}
