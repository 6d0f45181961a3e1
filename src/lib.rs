//! Chat agents on Cloudflare Durable Objects.
//!
//! A conversation is one Durable Object: its messages in SQLite, its clients on hibernatable WebSockets, its answers from Workers
//! AI or any OpenAI-compatible provider. The stock browser clients of the Agents SDK connect to it unchanged.
//!
//! ```
//! use wakeful::prelude::*;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Place {
//!     /// City name
//!     city: String,
//! }
//!
//! struct Helper;
//!
//! impl Agent for Helper {
//!     fn model(&self, _: &Turn) -> ModelRef {
//!         "workers-ai/@cf/moonshotai/kimi-k2.5".into()
//!     }
//!
//!     fn tools(&self, _: &Turn) -> Tools {
//!         Tools::new().with(Tool::server("weather", "Current weather in a city", |place: Place, _| async move {
//!             Ok::<_, ToolError>(format!("Sunny in {}", place.city))
//!         }))
//!     }
//! }
//!
//! wakeful::serve!(pub struct ChatAgent for Helper = |_env| Helper);
//! ```
//!
//! Three rings, one direction: [`agent`] is what you write; [`runtime`] drives the [`engine`] over a [`runtime::platform::Platform`];
//! `wire`, `transcript` and [`model`] are pure values. The Durable Object and the test kit are two platforms under the same runtime.

#[macro_use]
mod mutants;

pub mod agent;
pub mod engine;
pub mod error;
pub mod ids;
pub mod limits;
pub mod model;
pub mod rng;
pub mod runtime;
pub mod store;
pub mod time;
pub mod transcript;
pub mod wire;

pub mod durable;
#[cfg(any(feature = "standalone", test))]
pub mod standalone;
#[cfg(all(feature = "testkit", not(target_arch = "wasm32")))]
pub mod testkit;

pub use agent::Agent;
#[cfg(target_arch = "wasm32")]
pub use durable::routing::{Cors, RouteOptions, route};
pub use engine::{
    budget::{ChatRecovery, InterruptedScope},
    config::{Config, MessageConcurrency},
};
pub use error::{Error, Result};

/// What an agent needs in scope.
pub mod prelude {
    pub use schemars::{self, JsonSchema};
    pub use serde::{self, Deserialize, Serialize};

    pub use crate::{
        Agent, Config, Error, MessageConcurrency, Result,
        agent::{
            Message,
            callable::Callables,
            handle::{AgentHandle, TurnScope},
            tool::{Approval, ClientToolWait, Tool, ToolError, Tools},
            turn::{Step, StepPlan, ToolDecision, Turn, TurnPlan},
        },
        engine::{
            budget::{ChatRecovery, Reason as RecoveryReason},
            config::{AcceptClientMessages, BuiltIns, ClientToolOverride},
            input::{Ambiguous, Decision, Place, RecoveryDecision, ToolOutcome},
            outcome::{
                ChatErrorContext, ChatResponse, ClientToolSettled, Principal, RecoveryExhausted, RecoveryInfo, RecoveryKind, Stage,
                StepResult, ToolCall,
            },
            submissions::{SubmissionInspection, SubmissionStatus, SubmitOptions},
        },
        model::{ErrorClass, ModelError, ModelRef},
        runtime::{
            ConnRequest,
            platform::{Cancel, HttpRequest, HttpResponse},
        },
        wire::message::UiMessage,
    };
}

/// The code in the documents runs too.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/recovery.md")]
    struct Recovery;
    #[doc = include_str!("../docs/tools.md")]
    struct Tools;
}
