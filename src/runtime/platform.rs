//! What the runtime needs from the world: storage, a clock, sockets, the network. The Durable Object and the simulator implement it.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use futures_util::{future::LocalBoxFuture, stream::Stream};

use crate::{
    engine::{events::Event, input::ConnMeta, outcome::Effect},
    error::Result,
    ids::ConnId,
    model::codec::WireRequest,
    store::Sql,
    time::Millis,
};

/// A request, as the object's HTTP side and outgoing calls see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// The whole address.
    pub url: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, at most [`crate::limits::HTTP_BODY`].
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// The path of the address, without query.
    pub fn path(&self) -> &str {
        let after_scheme = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let path = after_scheme.find('/').map_or("/", |i| after_scheme.get(i..).unwrap_or("/"));
        path.split(['?', '#']).next().unwrap_or("/")
    }

    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// A text answer.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, headers: vec![("content-type".into(), "text/plain; charset=utf-8".into())], body: text.into().into_bytes() }
    }

    /// A JSON answer from JSON text.
    pub fn json(status: u16, text: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into()), ("cache-control".into(), "no-store".into())],
            body: text.into().into_bytes(),
        }
    }
}

/// Bytes as they arrive.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Vec<u8>>>>>;

/// The beginning of a streamed answer and its body.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; dropping it releases the connection.
    pub body: ByteStream,
}

/// A switch that stops a job. Cloning shares it; tripping twice is tripping once.
#[derive(Clone, Default)]
pub struct Cancel(Rc<CancelState>);

#[derive(Default)]
struct CancelState {
    tripped: Cell<bool>,
    wakers: RefCell<Vec<(u64, Waker)>>,
    next: Cell<u64>,
}

impl Cancel {
    /// A switch that is not tripped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trips it and wakes everyone who waits for that.
    pub fn trip(&self) {
        self.0.tripped.set(true);
        let wakers = std::mem::take(&mut *self.0.wakers.borrow_mut());
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Whether it is tripped.
    pub fn is_tripped(&self) -> bool {
        self.0.tripped.get()
    }

    /// Waits until it is tripped.
    pub fn tripped(&self) -> Tripped {
        let key = self.0.next.get();
        self.0.next.set(key + 1);
        Tripped { state: self.0.clone(), key }
    }
}

/// Waits until a switch is tripped. Dropped, it leaves nothing behind: a stream makes one for every read.
pub struct Tripped {
    state: Rc<CancelState>,
    key: u64,
}

impl Future for Tripped {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.tripped.get() {
            return Poll::Ready(());
        }
        let mut wakers = self.state.wakers.borrow_mut();
        match wakers.iter_mut().find(|(waits, _)| *waits == self.key) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => wakers.push((self.key, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Tripped {
    fn drop(&mut self) {
        self.state.wakers.borrow_mut().retain(|(waits, _)| *waits != self.key);
    }
}

/// The world as the runtime sees it. Everything is single-threaded; nothing here blocks.
pub trait Platform: 'static {
    /// The database.
    fn sql(&self) -> &dyn Sql;
    /// The wall clock.
    fn now(&self) -> Millis;
    /// Fresh randomness; asked once an incarnation.
    fn entropy(&self) -> [u8; 32];
    /// The object's name, if it was addressed by one.
    fn name(&self) -> String;
    /// The name of its class, as clients know it in kebab case.
    fn class(&self) -> String {
        "ChatAgent".into()
    }
    /// The sockets that are attached now, in any order.
    fn sockets(&self) -> Vec<(ConnId, ConnMeta)>;
    /// Sets the alarm, or clears it with `None`. Acts in the same synchronous stretch as the commit.
    ///
    /// # Errors
    /// The platform refused.
    fn arm(&self, at: Option<Millis>) -> Result<()>;
    /// Waits until everything committed is on disk.
    fn sync(&self) -> LocalBoxFuture<'static, ()>;
    /// Sends one text frame to each of `to`; a socket that is gone is skipped.
    fn send(&self, to: &[ConnId], frame: &str);
    /// Sends one binary frame to one socket.
    fn send_binary(&self, to: &ConnId, frame: &[u8]);
    /// Closes a socket.
    fn close(&self, conn: &ConnId, code: u16, reason: &str);
    /// Sends a provider's request; `cancel` aborts it.
    fn fetch(&self, request: WireRequest, cancel: Cancel) -> LocalBoxFuture<'static, Result<Answer>>;
    /// Waits.
    fn sleep(&self, ms: u32) -> LocalBoxFuture<'static, ()>;
    /// Runs a job in the background until it ends or the object dies.
    fn spawn(&self, job: LocalBoxFuture<'static, ()>);
    /// Ends this incarnation where it stands. What was committed stays; the next event builds a new one.
    fn abort(&self, reason: &str);
    /// An effect of a committed step is about to happen. Where a simulated object may die; the real one needs no such place.
    fn performing(&self, _effect: &Effect) {}
    /// Writes one event to the log.
    fn emit(&self, event: &Event);
}
