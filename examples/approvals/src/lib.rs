//! A clerk whose tools wait for a person: one always, one when the sum is large.

use wakeful::prelude::*;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Account {
    Savings,
    Rent,
    Holiday,
}

#[derive(Deserialize, JsonSchema)]
struct Transfer {
    /// Where it goes
    to: Account,
    /// Whole euros
    eur: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Closing {
    account: Account,
}

#[derive(Clone)]
pub struct Clerk {
    model: ModelRef,
}

impl Agent for Clerk {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn tools(&self, _: &Turn) -> Tools {
        let transfer = Tool::server("transfer", "Moves money to an account", |input: Transfer, _| async move {
            // A real bank is told `scope.idempotency_key()` besides, so that it never books a call twice.
            Ok::<_, ToolError>(format!("Moved {} EUR to {:?}.", input.eur, input.to))
        });
        let close = Tool::server("close_account", "Closes an account for good", |input: Closing, _| async move {
            Ok::<_, ToolError>(format!("{:?} is closed.", input.account))
        });
        Tools::new().with(close.needs_approval()).with(transfer.needs_approval_when(|input, _| async move {
            Ok(match input["eur"].as_u64() {
                Some(eur) if eur > 10_000 => Approval::Deny("more than 10,000 EUR is never moved from here".into()),
                Some(eur) if eur <= 100 => Approval::Allow,
                _ => Approval::Ask,
            })
        }))
    }
}

wakeful::serve!(pub struct ChatAgent for Clerk = |env| {
    // The demo answers unless a var names a model.
    let model = env.var("MODEL").map_or_else(|_| "demo".into(), |var| var.to_string());
    Clerk { model: model.into() }
});

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wakeful::testkit::{Client, Sockets, World, call, script, text};

    use super::*;

    /// A world in which the model wants to move so much money, and the tab that asked for it.
    fn asked(eur: u32) -> (World<Clerk>, Client) {
        let clerk = Clerk { model: "ollama/any".into() };
        let world = World::new(clerk).model(script![call("transfer", json!({ "to": "rent", "eur": eur })), text("Well.")]);
        let tab = world.connect("S1");
        tab.send("Pay the rent.");
        world.run();
        (world, tab)
    }

    #[test]
    fn small_sums_move_at_once_and_huge_ones_never() {
        assert_eq!(asked(100).1.said()[1], "assistant: [transfer output-available] Well.");
        assert_eq!(asked(10_001).1.said()[1], "assistant: [transfer output-denied] Well.");
    }

    #[test]
    fn a_person_may_take_their_time_and_the_object_may_die_meanwhile() {
        let (world, tab) = asked(500);
        assert_eq!(tab.said()[1], "assistant: [transfer approval-requested]");
        world.restart(Sockets::Kept);
        world.run_for(7 * 86_400_000);
        tab.approve(&tab.open_calls()[0], true);
        world.run();
        assert_eq!(tab.said()[1], "assistant: [transfer output-available] Well.");
        world.check();
    }

    #[test]
    fn a_denial_and_its_reason_reach_the_model() {
        let (world, tab) = asked(500);
        tab.deny(&tab.open_calls()[0], "The rent is paid already.");
        world.run();
        assert_eq!(tab.said()[1], "assistant: [transfer output-denied] Well.");
        assert!(world.provider_requests()[1].texts()[3].contains("The rent is paid already."));
        world.check();
    }
}
