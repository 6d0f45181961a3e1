//! Run an agent natively in a unit test: a virtual clock, a scripted model, simulated browsers, and death at any moment.
//!
//! ```
//! use wakeful::{prelude::*, testkit::{World, Sockets, script, text}};
//!
//! #[derive(Clone)]
//! struct Helper;
//!
//! impl Agent for Helper {
//!     fn model(&self, _: &Turn) -> ModelRef { "workers-ai/@cf/moonshotai/kimi-k2.5".into() }
//! }
//!
//! let world = World::new(Helper).model(script![text("hello")]);
//! let tab = world.connect("S1");
//! tab.send("hi");
//! world.run();
//! world.restart(Sockets::Kept);
//! assert_eq!(tab.said(), ["user: hi", "assistant: hello"]);
//! world.check();
//! ```
//!
//! What runs is the production runtime and engine on the same SQL; only the world around it is simulated. A [`World`] is
//! single-threaded and a function of its seed: no test waits for real time, and none depends on luck. This module is made for tests,
//! so it panics, with what happened last, wherever a test has gone wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // A test kit reports by panicking.

mod client;
mod clock;
mod db;
mod death;
mod jobs;
mod model;
mod sim;
mod world;

pub use client::{Client, Entry, Status, TurnEnd, essence, said};
pub use clock::{Clock, Gates, Sleep, Wait};
pub use db::{Db, FaultAt, Snapshot};
pub use death::{Death, KillPoint};
pub use model::{
    Exchange, ProviderRequest, Reply, Script, call, calls, cut, delay, empty, gate, http_error, in_stream_error, one_read, raw,
    reasoning, refused, script, stall, text, text_deltas,
};
pub use sim::Sim;
pub use world::{Dial, Sockets, World};
