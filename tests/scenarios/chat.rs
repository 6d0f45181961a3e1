//! What becomes of a message: order, branches, retries, tools, stops, and what nobody may forge.

use serde_json::{Value, json};
use wakeful::{
    prelude::*,
    testkit::{Client, Exchange, Gates, Reply, Script, Sockets, Status, World, call, calls, cut, empty, gate, http_error, refused, script, stall, text, text_deltas},
};

use crate::{
    assert_idle,
    custom::{Custom, tool},
};

fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|f| f["type"].as_str().unwrap()).collect()
}

fn outcome(client: &Client, request: &str) -> String {
    let terminals = client.terminals(request);
    assert_eq!(terminals.len(), 1, "terminals of {request}: {terminals:?}");
    terminals[0]["outcome"].as_str().unwrap_or_default().to_owned()
}

fn busy() -> Reply {
    http_error(503, "busy")
}

fn failing() -> Reply {
    http_error(400, json!({ "error": { "message": "no such thing", "type": "invalid_request_error" } }))
}

/// An agent with a tool that waits at a gate named by its input, says so, and notices a stop.
fn gated(gates: &Gates) -> Custom {
    let agent = Custom::new();
    let (gates, seen) = (gates.clone(), agent.seen.clone());
    agent.tool("wait", move |input, _| {
        let (gates, seen) = (gates.clone(), seen.clone());
        let name = input["at"].as_str().unwrap_or("tool").to_owned();
        seen.add(format!("begins {name}"));
        async move {
            gates.wait(&name).await;
            seen.add(format!("ends {name}"));
            Ok(json!(format!("{name} done")))
        }
    })
}

fn gated_world(script: impl Into<Script>) -> (World<Custom>, Gates) {
    let gates = Gates::new();
    (World::new(gated(&gates)).with_gates(&gates).model(script), gates)
}

fn plain(script: impl Into<Script>) -> World<Custom> {
    World::new(Custom::new()).model(script)
}

fn parts(world: &World<Custom>, message: usize) -> Vec<Value> {
    world.get_messages()[message]["parts"].as_array().unwrap().clone()
}

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

/// A chat request as any program may send it.
fn post(client: &Client, request: &str, messages: Value, trigger: &str) {
    let body = json!({ "messages": messages, "trigger": trigger }).to_string();
    client.frame(json!({ "id": request, "type": "cf_agent_use_chat_request", "init": { "method": "POST", "body": body } }));
}

// --- the order of questions and answers

// T01, T02, D7, wire 138, wire 59
#[test]
fn a_question_that_comes_at_any_moment_of_an_answer_is_answered_after_it() {
    let moments: [(&str, Script); 5] = [
        ("before the head", script![Reply::new().head_gate("g").text("A")]),
        ("before the first chunk", script![gate("g").text("A")]),
        ("in the text", script![text("A").gate("g")]),
        ("before a tool", script![call("wait", json!({ "at": "open" })).gate("g"), text("A")]),
        ("in a tool", script![call("wait", json!({ "at": "g" })), text("A")]),
    ];
    for (moment, script) in moments {
        for same_tab in [false, true] {
            let (world, gates) = gated_world(script_of(&script));
            gates.open("open");
            world.answer(text("B"));
            let (one, two) = (world.connect("S1"), world.connect("S2"));
            let a = one.send("uA");
            world.run();
            assert_eq!(gates.waiting(), ["g"], "{moment}");
            let b = if same_tab { one.send("uB") } else { two.send("uB") };
            world.run();
            gates.open("g");
            world.run();
            let said: Vec<String> = world.said().iter().map(|line| line.split(' ').next_back().unwrap().to_owned()).collect();
            assert_eq!(said, ["uA", "A", "uB", "B"], "{moment}, same tab: {same_tab}");
            let requests = world.provider_requests();
            let (first, last) = (&requests[0], &requests[requests.len() - 1]);
            assert_eq!(first.texts(), ["Be brief.", "uA"], "{moment}");
            assert_eq!(last.texts().last().unwrap(), "uB", "{moment}");
            assert_eq!(last.roles().iter().filter(|role| **role == "user").count(), 2, "{moment}");
            // Nothing of the second answer before the end of the first, on any socket.
            for tab in [&one, &two] {
                let frames = tab.of_type("cf_agent_use_chat_response");
                let end = frames.iter().position(|f| f["id"] == a.as_str() && f["done"] == true).unwrap();
                assert!(frames[..end].iter().all(|f| f["id"] != b.as_str()), "{moment}");
            }
            assert_idle(&world);
        }
    }
}

/// The same script again.
fn script_of(script: &Script) -> Script {
    script.clone()
}
