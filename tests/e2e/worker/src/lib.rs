//! A Worker for the tests of what an application can choose: hooks, callables, state, routes. README.md says what answers where.

#![cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]

mod desk;
mod killed;
mod probe;
#[cfg(target_arch = "wasm32")]
mod routes;
#[cfg(target_arch = "wasm32")]
mod tap;
mod twin;
