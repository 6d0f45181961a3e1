//! The crate on Cloudflare: the only place that names `worker`, and only where it exists. Natively there are the two macros, which
//! then expand to nothing, so that an agent's crate builds and tests without the platform.

mod macros;

#[cfg(target_arch = "wasm32")]
mod bindings;
#[cfg(target_arch = "wasm32")]
mod fetch;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(target_arch = "wasm32")]
mod platform;
#[cfg(target_arch = "wasm32")]
pub mod routing;
#[cfg(target_arch = "wasm32")]
mod sockets;
#[cfg(target_arch = "wasm32")]
mod sql;

#[cfg(target_arch = "wasm32")]
pub use self::{
    host::Host,
    platform::ObjectPlatform,
    routing::{Cors, Gate, RouteOptions, Target, route, route_to},
};
#[cfg(target_arch = "wasm32")]
pub use worker;
