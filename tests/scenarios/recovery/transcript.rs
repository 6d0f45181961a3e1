//! Recovery of the transcript: what counts as pending, and whose a late result is (`recovery.md` §2.15, §3.4).

use super::*;

/// Whether the object is stable within so long, and how long that took.
fn stable(world: &World<Custom>, ms: u32) -> (bool, i64) {
    let (handle, began) = (world.handle(), world.clock().passed());
    let stable = world.block_on(async move { handle.wait_until_stable(Some(ms)).await }).unwrap();
    (stable, world.clock().passed() - began)
}

fn pending(world: &World<Custom>) -> bool {
    let handle = world.handle();
    world.block_on(async move { handle.has_pending_interaction().await }).unwrap()
}

// recovery 123: nothing to wait for, a page that does not answer, a continuation that is about to run.
#[test]
fn stable_is_when_nothing_runs_and_nobody_is_waited_for() {
    let world = World::new(agent()).model(script![text_deltas(&["word "; 25]).delay(100_000), text("the end")]);
    world.connect("S1").send("hi");
    world.settle();
    assert_eq!(stable(&world, 1_000), (false, 1_000), "a turn runs");
    world.restart(Sockets::Closed);
    assert!(stable(&world, 60_000).0, "a turn is recovered, and ends");
    assert!(world.said()[1].ends_with("the end"));
    assert_eq!(stable(&world, 1_000), (true, 0));
    let world = World::new(agent()).model(script![call("look", json!({})), text("A hill.")]);
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    assert_eq!(stable(&world, 1_000), (false, 1_000), "a page is waited for");
    tab.tool_result(&tab.open_calls()[0], json!("a hill"));
    assert!(stable(&world, 1_000).0);
    assert_eq!(world.said()[1], "assistant: [look output-available] A hill.");
    world.run();
    assert_at_rest(&world);
}

// recovery 123, W7, I16: the call of a server that died is nobody's.
#[test]
fn a_dead_server_tool_is_not_waited_for() {
    let (_, gates, tools) = gated(&["work"]);
    let world = World::new(agent().tools(tools)).with_gates(&gates).model(script![call("work", json!({})), text("unclear")]);
    world.connect("S1").send("work");
    world.run();
    assert!(!pending(&world));
    world.restart(Sockets::Closed);
    assert!(!pending(&world));
    let (is_stable, ms) = stable(&world, 1_000);
    assert!(is_stable && ms < 1_000, "{is_stable} after {ms} ms");
    assert_eq!(world.said()[1], "assistant: [work output-error] unclear");
    assert_at_rest(&world);
}

// recovery 124, tools D15: each state of a call, by who is to answer it.
#[test]
fn only_calls_of_pages_and_people_are_pending() {
    let (_, gates, tools) = gated(&["work", "pay"]);
    let tools = move |turn: &Turn| {
        let all = tools(turn);
        Tools::new()
            .with(all.get("work").unwrap().clone())
            .with(all.get("pay").unwrap().clone().needs_approval())
            .with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" })))
    };
    let half =
        json!({ "tool_calls": [{ "index": 0, "id": "c", "type": "function", "function": { "name": "look", "arguments": "{" } }] });
    for (reply, expected) in [
        (text("so ").gate("never"), false),
        (Reply::new().delta(half).gate("never"), false),
        (call("work", json!({})), false),
        (call("look", json!({})), true),
        (call("pay", json!({})), true),
        (call("nobody's", json!({})), false),
        (calls([("work", json!({})), ("look", json!({}))]), true),
    ] {
        let world = World::new(agent().tools(tools.clone())).with_gates(&gates).model(script![reply.clone(), text("end")]);
        let tab = world.connect("S1");
        tab.send("go");
        world.settle();
        assert_eq!(pending(&world), expected, "{:?}", world.said());
        let Some(open) = tab.open_calls().into_iter().find(|_| world.jobs() == 0) else { continue };
        world.restart(Sockets::Kept);
        assert!(pending(&world), "also after a death");
        if parts(&world, 1).iter().any(|part| part["state"] == "approval-requested") {
            tab.deny(&open, "no");
        } else {
            tab.tool_result(&open, json!(1));
        }
        world.run();
        assert!(!pending(&world));
        assert_at_rest(&world);
    }
}

// recovery 127, T-X34: a provider repeats its ids; a late result changes the call it is for and no other.
#[test]
fn the_same_call_id_in_two_messages_is_two_calls() {
    let world = World::new(agent()).model(script![call("look", json!({ "n": 1 })), call("look", json!({ "n": 2 })), text("Two.")]);
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    let first = tab.open_calls().pop().unwrap();
    tab.send("look again");
    world.run();
    die(&world);
    world.reconnect(&tab);
    world.run();
    let second = tab.open_calls().pop().unwrap();
    let before = parts(&world, 1);
    tab.frame(
        json!({ "type": "cf_agent_tool_result", "toolCallId": first, "toolName": "look", "output": "late", "autoContinue": true }),
    );
    world.run();
    assert_eq!((parts(&world, 1), asked(&world)), (before.clone(), 2), "what the model has read stays as it is");
    tab.tool_result(&second, json!("in time"));
    world.run();
    assert_eq!(parts(&world, 1), before);
    assert_eq!(world.said()[3], "assistant: [look output-available] Two.");
    assert!(parts(&world, 3).iter().any(|part| part["output"] == "in time"));
    assert_at_rest(&world);
}

// recovery 127: an id that the object never gave is in a message that was put there, further back than the model is shown.
#[test]
fn the_id_of_a_call_from_elsewhere_may_be_met_again() {
    let agent = agent().config(|config| config.hydration_budget = 1_000);
    let world = World::new(agent).model(script![call("look", json!({})), text("Seen.")]);
    let old = json!({ "id": "old", "role": "assistant", "parts": [
        { "type": "tool-look", "toolCallId": "call_0", "state": "output-available", "input": {}, "output": "of old" } ] });
    let filling = json!({ "id": "filling", "role": "user", "parts": [{ "type": "text", "text": "x".repeat(2_000) }] });
    let (handle, messages) = (world.handle(), [old.clone(), filling].map(|message| serde_json::from_value(message).unwrap()).into());
    world.block_on(async move { handle.add_messages(messages).await }).unwrap();
    let tab = page(&world, "S1");
    tab.send("look");
    world.run();
    die(&world);
    world.reconnect(&tab);
    world.run();
    assert_eq!(tab.open_calls(), ["call_0"], "the model's own id");
    tab.tool_result("call_0", json!("now"));
    world.run();
    assert_eq!(json!(parts(&world, 0)), old["parts"], "what was there before");
    assert_eq!(world.said()[3], "assistant: [look output-available] Seen.");
    assert!(parts(&world, 3).iter().any(|part| part["output"] == "now"));
    assert_eq!((asked(&world), tab.said()), (2, world.said()));
    assert_at_rest(&world);
}
