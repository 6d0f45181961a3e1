//! Recovery of turns that wait for pages and people, which cost nothing meanwhile (`recovery.md` §7.3).

use super::*;

// recovery 31, 33: who waits for a person costs nothing however often the object dies, and an allowed call runs once.
#[test]
fn a_parked_turn_is_not_taken_up() {
    let seen = crate::custom::Seen::default();
    let runs = seen.clone();
    let agent = agent().tools(move |_| {
        let runs = runs.clone();
        Tools::new().with(
            tool("pay", move |_, _| {
                runs.add("pay");
                async { Ok(json!("paid")) }
            })
            .needs_approval(),
        )
    });
    let world = World::new(agent).model(script![call("pay", json!({})), text("Paid.")]);
    let tab = world.connect("S1");
    tab.send("pay");
    world.run();
    for _ in 0..10 {
        world.restart(Sockets::Kept);
        world.run_for(25_920_000);
        crate::assert_parked(&world);
    }
    assert!(world.events().iter().all(|event| !event.name.starts_with("chat:recovery")));
    tab.approve(&tab.open_calls()[0], true);
    world.run_until(|world| !world.events_named("tool:approval").is_empty());
    die(&world);
    assert_eq!(seen.take(), ["pay"]);
    assert_eq!(world.provider_requests().len(), 2);
    assert!(world.said()[1].ends_with("Paid."), "{:?}", world.said());
}

// recovery 35, D10: a call of the page goes on, a server's that was running does not.
#[test]
fn a_call_of_the_page_is_still_open_after_a_death() {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = agent().tools(move |_| {
        let waits = waits.clone();
        Tools::new().with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" }))).with(tool("work", move |_, _| {
            let waits = waits.clone();
            async move {
                waits.wait("work").await;
                Ok(json!("worked"))
            }
        }))
    });
    let script = script![wakeful::testkit::calls([("look", json!({})), ("work", json!({}))]), text("Both.")];
    let world = World::new(agent).with_gates(&gates).model(script);
    let tab = world.connect("S1");
    tab.send("go");
    world.run();
    world.restart(Sockets::Kept);
    world.run();
    assert_eq!(world.said()[1], "assistant: [look input-available] [work output-error]");
    crate::assert_parked(&world);
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] [work output-error] Both.");
    assert_eq!((world.provider_requests().len(), tab.said()), (2, world.said()));
    assert_idle(&world);
}
