//! Chat agents on Cloudflare Durable Objects.
pub mod error;
pub mod ids;
pub mod limits;
pub mod model;
pub mod rng;
pub mod time;
