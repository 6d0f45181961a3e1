//! A guide that asks the page: the page brings two tools of its own, the agent declares a third.

use wakeful::prelude::*;

/// What the page is handed. Only its schema is used here.
#[derive(JsonSchema)]
pub struct Wave {
    /// What to say to the person
    pub greeting: String,
}

#[derive(Clone)]
pub struct Guide {
    model: ModelRef,
}

impl Agent for Guide {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn tools(&self, _: &Turn) -> Tools {
        // No function: a page runs it. What the page brings comes with its requests, see `page/index.html`.
        Tools::new().with(Tool::client::<Wave>("wave", "Asks the person to wave back").wait(ClientToolWait::Timeout(20_000)))
    }
}

wakeful::serve!(pub struct ChatAgent for Guide = |env| {
    // The demo answers unless a var names a model.
    let model = env.var("MODEL").map_or_else(|_| "demo".into(), |var| var.to_string());
    Guide { model: model.into() }
});

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wakeful::testkit::{Client, Reply, Status, World, call, calls, script, text};

    use super::*;

    /// A world in which the model has made these calls, and a tab of the page.
    fn asked(first: Reply) -> (World<Guide>, Client) {
        let world = World::new(Guide { model: "ollama/any".into() }).model(script![first, text("Thanks.")]);
        let tab = world.connect("S1");
        tab.set_body(json!({ "clientTools": [{ "name": "read_notes" }, { "name": "ask_person" }] }));
        tab.send("Go.");
        world.run_until(|_| tab.turn_ends().len() == 1);
        (world, tab)
    }

    #[test]
    fn two_answers_in_any_order_make_one_continuation() {
        for order in [[0, 1], [1, 0]] {
            let (world, tab) = asked(calls([("read_notes", json!({})), ("ask_person", json!({}))]));
            let open = tab.open_calls();
            tab.tool_result(&open[order[0]], json!("first"));
            world.run_for(60_000);
            assert_eq!(world.provider_requests().len(), 1, "it waits for the other one");
            tab.tool_result(&open[order[1]], json!("second"));
            world.run();
            assert_eq!(world.provider_requests().len(), 2);
            assert_eq!(tab.said()[1], "assistant: [read_notes output-available] [ask_person output-available] Thanks.");
            world.check();
        }
    }

    #[test]
    fn nobody_waves_and_a_late_wave_changes_nothing() {
        let (world, tab) = asked(call("wave", json!({ "greeting": "Hi" })));
        let late = tab.open_calls()[0].clone();
        world.run_for(19_000);
        assert_eq!(tab.said()[1], "assistant: [wave input-available]");
        world.run_for(2_000);
        assert_eq!(tab.said()[1], "assistant: [wave output-error] Thanks.");
        tab.tool_result(&late, json!("here I am"));
        world.run();
        assert_eq!(world.said()[1], "assistant: [wave output-error] Thanks.");
        assert_eq!((world.provider_requests().len(), tab.said(), tab.status()), (2, world.said(), Status::Ready));
        world.check();
    }
}
