//! The conversation as values: folding chunks into messages, merging what clients post, closing what was cut off, and building the
//! model's view. Nothing here reads a row.

pub mod prompt;
pub mod reconcile;
pub mod reducer;
pub mod repair;
pub mod sanitise;
