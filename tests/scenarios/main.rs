//! Whole conversations in a simulated world: the production runtime on real SQL, scripted providers, simulated browsers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests say so by panicking

mod agent;
mod approvals;
mod badinput;
mod chaos;
mod chat;
mod concurrency;
mod cost;
mod custom;
mod death;
mod hardening;
mod hooks;
mod page_tools;
mod recovery;
mod resume;
mod review;
mod rows;
mod smoke;
mod storage;
mod submissions;

use wakeful::{
    prelude::*,
    testkit::{Gates, World},
};

/// An agent with a tool that waits at the gate `tool` if it was given gates.
#[derive(Clone, Default)]
pub struct Helper {
    pub gates: Option<Gates>,
    /// Whether a turn ends with its object; otherwise it goes on.
    pub ends: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    city: String,
}

impl Agent for Helper {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn config(&self) -> Config {
        let chat_recovery = ChatRecovery { enabled: !self.ends, ..ChatRecovery::default() };
        Config { chat_recovery, ..Config::default() }
    }

    fn tools(&self, _: &Turn) -> Tools {
        let gates = self.gates.clone();
        Tools::new().with(Tool::server("weather", "Current weather in a city", move |place: Place, _| {
            let gates = gates.clone();
            async move {
                if let Some(gates) = gates {
                    gates.wait("tool").await;
                }
                Ok::<_, ToolError>(format!("Sunny in {}", place.city))
            }
        }))
    }
}

/// A world whose tools do not wait.
pub fn world() -> World<Helper> {
    World::new(Helper::default())
}

/// A world whose turns end with their object (decision 37).
pub fn ending() -> World<Helper> {
    World::new(Helper { gates: None, ends: true })
}

/// Asserts that a turn waits for pages or people, and that this costs nothing: the object could sleep.
#[track_caller]
pub fn assert_parked<A: Agent>(world: &World<A>) {
    assert_eq!(page_tools::rows(world, "wk_turn WHERE state = 'parked'"), 1, "{}", world.story());
    assert_eq!(world.db().count("wk_attempt"), 0);
    assert_idle(world);
}

/// Asserts that the object could sleep: no job, no alarm, nothing asked and unanswered.
#[track_caller]
pub fn assert_idle<A: Agent>(world: &World<A>) {
    assert_eq!((world.jobs(), world.alarm_at()), (0, None), "jobs and alarm of an idle object\n{}", world.story());
    world.check();
}
