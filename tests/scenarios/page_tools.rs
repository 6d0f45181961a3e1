//! Tools that run in the page: offered, called, answered by any tab, waited for, overtaken (`turns-and-tools.md` §8, §9, §11).

use serde_json::{Value, json};
use wakeful::{
    prelude::*,
    testkit::{Client, Dial, Gates, Reply, Sockets, Status, World, call, calls, http_error, script, text, text_deltas},
};

use crate::{
    assert_idle, assert_parked,
    custom::{Custom, tool},
};

/// A tab whose page brings the tools `look` and `ask`.
pub fn page<A: Agent>(world: &World<A>, label: &str) -> Client {
    let tab = world.connect(label);
    tab.set_body(json!({ "clientTools": [{ "name": "look" }, { "name": "ask", "description": "Asks" }] }));
    tab
}

/// A world in which the model called `look` for S1, and its tab.
fn parked(after: impl IntoIterator<Item = Reply>) -> (World<Custom>, Client, String) {
    let world = World::new(Custom::new()).model(script![call("look", json!({ "at": "map" }))]);
    for reply in after {
        world.answer(reply);
    }
    let tab = page(&world, "S1");
    tab.send("Where am I?");
    world.run();
    let call = tab.open_calls().pop().unwrap();
    (world, tab, call)
}

/// A world whose agent has a tool `work` that waits at the gate of its name.
pub fn world_with_work(script: impl Into<wakeful::testkit::Script>) -> (World<Custom>, Gates) {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = Custom::new().tool("work", move |_, _| {
        let gates = waits.clone();
        async move {
            gates.wait("work").await;
            Ok(json!("done"))
        }
    });
    (World::new(agent).with_gates(&gates).model(script), gates)
}

/// A world whose agent has a gated tool `pay` and a plain one `slow`, which wait at the gate `bank`.
pub fn gated_pay(script: impl Into<wakeful::testkit::Script>) -> (World<Custom>, Gates) {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = Custom::new().tools(move |_| {
        let run = |name: &'static str| {
            let gates = waits.clone();
            tool(name, move |_, _| {
                let gates = gates.clone();
                async move {
                    gates.wait("bank").await;
                    Ok(json!("done"))
                }
            })
        };
        Tools::new().with(run("pay").needs_approval()).with(run("slow"))
    });
    (World::new(agent).with_gates(&gates).model(script), gates)
}

/// The parts of a stored message.
pub fn parts<A: Agent>(world: &World<A>, message: usize) -> Vec<Value> {
    world.get_messages()[message]["parts"].as_array().unwrap().clone()
}

/// How many rows there are.
pub fn rows<A: Agent>(world: &World<A>, of: &str) -> u64 {
    world.db().query(&format!("SELECT count(*) AS n FROM {of}"))[0]["n"].as_u64().unwrap()
}

/// The texts of a column.
pub fn texts<A: Agent>(world: &World<A>, sql: &str) -> Vec<String> {
    let rows = world.db().query(sql);
    rows.iter().filter_map(|row| row.values().next()?.as_str()).map(str::to_owned).collect()
}

fn states<A: Agent>(world: &World<A>, message: usize) -> Vec<String> {
    parts(world, message).iter().filter_map(|p| p["state"].as_str().map(str::to_owned)).collect()
}

fn verdicts<A: Agent>(world: &World<A>) -> Vec<String> {
    let verdict = |e: &wakeful::engine::events::Event| e.fields["verdict"].as_str().unwrap_or_default().to_owned();
    world.events_named("tool:result").iter().map(verdict).collect()
}

fn same_screens<A: Agent>(world: &World<A>, tabs: &[&Client]) {
    for tab in tabs {
        assert_eq!(tab.said(), world.said(), "{}", tab.label());
        assert_eq!(tab.status(), Status::Ready, "{}", tab.label());
    }
}

// T56, T49, wire 114, wire 115, O7: the stock order of frames, `start` without an id, everything flagged
#[test]
fn a_page_answers_and_the_same_message_goes_on() {
    let (world, tab, id) = parked([text("You are in Oslo.")]);
    let other = world.connect("S2");
    assert_eq!(world.provider_requests()[0].tools(), ["look", "ask"]);
    assert_eq!(world.said(), ["user: Where am I?", "assistant: [look input-available]"]);
    assert_eq!(tab.turn_ends()[0].outcome, "completed");
    assert_parked(&world);
    other.take_frames();
    tab.take_frames();

    tab.tool_result(&id, json!({ "city": "Oslo" }));
    world.run();
    assert_eq!(world.said(), ["user: Where am I?", "assistant: [look output-available] You are in Oslo."]);
    same_screens(&world, &[&tab, &other]);
    assert_eq!(world.get_messages().len(), 2, "one message for both legs");
    let asked = &world.provider_requests()[1];
    assert_eq!(asked.roles(), ["system", "user", "assistant", "tool"], "no synthetic words after a result");
    assert_eq!(asked.messages()[3]["content"], r#"{"city":"Oslo"}"#);

    let kinds: Vec<String> = tab.take_frames().iter().map(|f| f["type"].as_str().unwrap()[9..].to_owned()).collect();
    assert_eq!(kinds[..3], ["message_updated", "stream_pending", "stream_resuming"]);
    for seen in [&tab, &other] {
        let resumed = seen.of_type("cf_agent_use_chat_response");
        let leg: Vec<&Value> = resumed.iter().filter(|f| f["continuation"] == true).collect();
        let chunks: Vec<Value> = leg.iter().filter_map(|f| serde_json::from_str(f["body"].as_str()?).ok()).collect();
        assert_eq!(chunks[0], json!({ "type": "start" }), "no id: the old parts would vanish meanwhile");
        assert_eq!((leg.last().unwrap()["outcome"].as_str(), &leg.last().unwrap()["messageIds"]), (Some("completed"), &Value::Null));
    }
    assert_idle(&world);
    world.check();
}

// wire 116, T75: nobody probes, or the one who would is gone
#[test]
fn a_continuation_starts_without_its_owner() {
    for leaves in [false, true] {
        let (world, tab, id) = parked([text("Fine.")]);
        let other = world.connect("S2");
        tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true }));
        world.settle();
        assert_eq!(world.provider_requests().len(), 1, "it waits for the probe");
        if leaves {
            world.disconnect(&tab);
        }
        world.run();
        assert_eq!(tab.of_type("cf_agent_stream_resuming").is_empty(), leaves, "the owner is offered its stream");
        assert_eq!(world.said()[1], "assistant: [look output-available] Fine.");
        assert_eq!(other.said(), world.said());
        assert_idle(&world);
    }
}

// T73, field C-05: result and probe back to back, at every moment after the result
#[test]
fn a_probe_after_the_result_is_never_told_that_nothing_goes_on() {
    for wait in [0, 10, 49, 50, 51, 60] {
        let (world, tab, id) = parked([text_deltas(&["a"; 3]).delay(40).text("b")]);
        tab.take_frames();
        tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "", "output": 1, "autoContinue": true }));
        world.run_for(wait);
        tab.probe();
        world.run();
        assert!(tab.of_type("cf_agent_stream_resume_none").iter().all(|f| f["probeId"] == "S1-p1"), "after {wait} ms");
        assert_eq!(world.provider_requests().len(), 2);
        assert_eq!(tab.said(), world.said(), "after {wait} ms");
        assert_idle(&world);
    }
}

// T74, wire 117, wire 129: the second tab watches
#[test]
fn a_second_tab_gets_the_owned_continuation_live() {
    let (world, tab, id) = parked([text_deltas(&["Step. "; 4]).gate("more").text("Done.")]);
    let other = world.connect("S2");
    tab.tool_result(&id, json!(1));
    world.run();
    let probe = other.probe();
    world.settle();
    let answers: Vec<Value> = other.frames().into_iter().filter(|f| f["probeId"] == probe.as_str()).collect();
    assert_eq!(answers, [json!({ "type": "cf_agent_stream_resume_none", "reason": "continuation-owned", "probeId": probe })]);
    assert_eq!(other.said()[1], "assistant: [look output-available] Step. Step. Step. Step. ");
    world.open_gate("more");
    world.run();
    same_screens(&world, &[&tab, &other]);
    world.check();
}

// wire 118, wire 119: the owner is gone, a new tab takes the stream up with its flags
#[test]
fn a_continuation_whose_owner_is_gone_is_anybodys() {
    let (world, tab, id) = parked([text_deltas(&["Step. "; 12]).gate("more").text("Done.")]);
    tab.tool_result(&id, json!(1));
    world.run();
    world.disconnect(&tab);
    let other = world.connect("S2");
    let resumed = other.of_type("cf_agent_stream_resuming");
    let request = resumed[0]["id"].as_str().unwrap().to_owned();
    assert!(other.responses(&request).iter().all(|f| f["continuation"] == true), "replayed frames too");
    world.open_gate("more");
    world.run();
    world.reconnect(&tab);
    world.run();
    same_screens(&world, &[&other, &tab]);
    world.check();
}

// T63, T64, field T-01, field T-02, wire 120, wire 121, wire 128: any order, any tabs, one continuation
#[test]
fn a_batch_is_continued_once_when_its_last_call_is_answered() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        for apart in [0, 1, 60, 200, 90_000] {
            let three = calls([("look", json!({})), ("ask", json!({})), ("look", json!({ "n": 3 }))]);
            let world = World::new(Custom::new()).model(script![three, text("All three.")]);
            let tabs = [page(&world, "S1"), world.connect("S2"), world.connect("S3")];
            tabs[0].send("Look around.");
            world.run();
            let open = tabs[0].open_calls();
            assert_eq!(open.len(), 3);
            for (n, which) in order.into_iter().enumerate() {
                assert_eq!(world.provider_requests().len(), 1);
                tabs[n].tool_result(&open[which], json!(which));
                world.run_for(apart);
            }
            world.run();
            assert_eq!(world.provider_requests().len(), 2, "{order:?} {apart} ms apart");
            let outputs: Vec<Value> =
                parts(&world, 1).iter().filter(|p| p["output"].is_number()).map(|p| p["output"].clone()).collect();
            assert_eq!(outputs, [0, 1, 2], "in the order of the calls");
            same_screens(&world, &[&tabs[0], &tabs[1], &tabs[2]]);
            assert_eq!(world.events_named("continuation:fired").len(), 1);
            assert_idle(&world);
        }
    }
}

// T65, T66, wire 122, wire 123, tools D9
#[test]
fn an_error_of_a_page_continues_only_if_somebody_wants_it() {
    // Alone: nothing. With a sibling that wants it: once, whichever is last.
    for (first_fails, config) in [(true, false), (false, false), (true, true)] {
        let agent = Custom::new().config(|c| c.continue_on_client_error = config);
        let world = World::new(agent).model(script![calls([("look", json!({})), ("ask", json!({}))]), text("Well.")]);
        let tab = page(&world, "S1");
        tab.send("Look.");
        world.run();
        let open = tab.open_calls();
        let (failing, fine) = if first_fails { (&open[0], &open[1]) } else { (&open[1], &open[0]) };
        if first_fails {
            tab.tool_error(failing, "no camera");
            world.run();
            tab.tool_result(fine, json!(1));
        } else {
            tab.tool_result(fine, json!(1));
            world.run();
            tab.tool_error(failing, "no camera");
        }
        world.run();
        assert_eq!(world.provider_requests().len(), 2);
        assert_eq!(world.said()[1].matches("output-error").count(), 1);
        assert_idle(&world);
    }
    for config in [false, true] {
        let agent = Custom::new().config(|c| c.continue_on_client_error = config);
        let world = World::new(agent).model(script![call("look", json!({})), text("Well.")]);
        let tab = page(&world, "S1");
        tab.send("Look.");
        world.run();
        tab.tool_error(&tab.open_calls()[0], "no camera");
        world.run();
        assert_eq!(world.provider_requests().len(), if config { 2 } else { 1 });
        assert_eq!(parts(&world, 1)[1]["errorText"], "no camera");
        assert_idle(&world);
        let turns: Vec<String> = texts(&world, "SELECT state FROM wk_turn");
        assert_eq!(turns, ["completed"], "nothing is left to wait for");
    }
}

// T67, wire 125: answered while the answer still streams
#[test]
fn a_result_in_mid_stream_is_taken_and_the_continuation_follows_the_stream() {
    let (world, gates) = world_with_work(script![calls([("look", json!({})), ("work", json!({}))]), text("Then.")]);
    let (tab, other) = (page(&world, "S1"), world.connect("S2"));
    tab.send("Look.");
    world.run();
    let id = other.open_calls()[0].clone();
    other.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 5, "autoContinue": true }));
    world.run();
    assert_eq!(world.provider_requests().len(), 1, "not while it streams");
    assert!(tab.said()[1].contains("[look output-available]"), "{:?}", tab.said());
    gates.open("work");
    world.run();
    assert_eq!(world.provider_requests().len(), 2);
    assert_eq!(world.said()[1], "assistant: [look output-available] [work output-available] Then.");
    same_screens(&world, &[&tab, &other]);
    assert_idle(&world);
    world.check();
}

// T68, T70, T84, wire 124, field T-06, field T-11
#[test]
fn the_first_answer_counts_and_others_change_nothing() {
    let (world, tab, id) = parked([text("Fine.")]);
    let other = world.socket("S2");
    tab.tool_result(&id, json!({ "a": 1, "b": 2 }));
    world.run();
    let stored = world.get_messages();
    other.take_frames();
    for (output, status) in [(json!({ "b": 2, "a": 1.0 }), "duplicate"), (json!("other"), "conflict")] {
        other.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": output,
            "autoContinue": true, "ack": true }));
        world.run();
        assert_eq!(
            other.take_frames(),
            [
                json!({ "type": "cf_agent_tool_result_ack", "toolCallId": id, "status": status }),
                json!({ "type": "cf_agent_message_updated", "message": stored[1] })
            ]
        );
    }
    assert_eq!(world.get_messages(), stored);
    assert_eq!(world.provider_requests().len(), 2, "no model call for a result that lost");
    assert_eq!(verdicts(&world), ["accepted", "duplicate", "conflict"]);
    assert_idle(&world);
}

// T69, tools D2: an unknown id while a batch is open
#[test]
fn a_result_of_an_unknown_call_starts_nothing() {
    let (world, tab, _) = parked([]);
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": "nobodys", "toolName": "x", "output": 1, "autoContinue": true, "ack": true }));
    let probe = tab.probe();
    world.run();
    assert_eq!(tab.of_type("cf_agent_tool_result_ack")[0]["status"], "unknown");
    let answer: Vec<Value> = tab.frames().into_iter().filter(|f| f["probeId"] == probe.as_str()).collect();
    assert_eq!(answer[0]["reason"], "idle");
    assert_eq!((world.provider_requests().len(), tab.open_calls().len()), (1, 1));
    assert_parked(&world);
}

// T72
#[test]
fn the_name_in_a_result_is_advice() {
    for (name, mismatches) in [("", 0), ("look", 0), ("other", 1)] {
        let (world, tab, id) = parked([text("Fine.")]);
        tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": name, "output": 1, "autoContinue": true }));
        world.run();
        assert_eq!(world.events_named("tool:result-name-mismatch").len(), mismatches);
        assert_eq!(world.provider_requests().len(), 2);
    }
}

// T62, T62a, T76, T77, wire 126, field T-07, tools D3, tools D15: whatever dies between the calls and their answers
#[test]
fn a_parked_turn_survives_its_object() {
    let run = |declared: bool, held: bool, sockets: Sockets| {
        let turns = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let seen = turns.clone();
        let agent = Custom::new().tools(move |_| match declared {
            true => Tools::new().with(Tool::client_dynamic("look", "Looks", json!({ "type": "object" }))),
            false => Tools::new(),
        });
        let agent = agent.before_turn(move |turn| {
            seen.borrow_mut().push((turn.trigger.clone(), turn.continuation, turn.body.clone()));
            async { Ok(TurnPlan::default()) }
        });
        let two = calls([("look", json!({})), ("look", json!({ "n": 2 }))]);
        let world = World::new(agent).model(script![two, text("Fine.")]);
        let tab = world.connect("S1");
        let mut body = json!({ "mood": "good" });
        if !declared {
            body["clientTools"] = json!([{ "name": "look" }, { "name": "ask" }]);
        }
        tab.set_body(body);
        tab.send("Look.");
        world.run();
        let open = tab.open_calls();
        let result = |call: &str, more: bool| json!({ "type": "cf_agent_tool_result", "toolCallId": call, "toolName": "look", "output": 1, "autoContinue": more });
        if held {
            tab.frame(result(&open[0], true));
            world.run();
        }
        assert_parked(&world);
        world.restart(sockets);
        let last = world.socket("late");
        if !held {
            last.frame(result(&open[0], true));
            world.run();
        }
        // The wish of the first is a row: the second need not repeat it.
        last.frame(result(&open[1], false));
        world.run();
        assert_eq!(world.provider_requests().len(), 2, "{declared} {held} {sockets:?}");
        let offered = if declared { vec!["look"] } else { vec!["look", "ask"] };
        assert_eq!(world.provider_requests()[1].tools(), offered);
        assert_eq!(world.said()[1], "assistant: [look output-available] [look output-available] Fine.");
        let body = Some(json!({ "mood": "good" }));
        let expected = [("ws-chat".to_owned(), false, body.clone()), ("auto-continuation".to_owned(), true, body)];
        assert_eq!(*turns.borrow(), expected);
        assert_idle(&world);
    };
    for declared in [false, true] {
        for held in [false, true] {
            for sockets in [Sockets::Kept, Sockets::Closed] {
                run(declared, held, sockets);
            }
        }
    }
}

// decision 31: the object dies between the last answer and the continuation
#[test]
fn a_complete_batch_is_continued_after_a_death_without_anybody_asking() {
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let (world, tab, id) = parked([text("Fine.")]);
        tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true }));
        world.settle();
        assert_eq!(world.provider_requests().len(), 1);
        world.restart(sockets);
        world.run();
        assert_eq!(world.provider_requests().len(), 2, "the alarm brings it back");
        assert_eq!(world.said()[1], "assistant: [look output-available] Fine.");
        assert_idle(&world);
    }
}

// wire 68, T61, field T-07: which tools later turns know
#[test]
fn the_tools_of_a_page_are_kept_until_it_says_otherwise() {
    let world =
        World::new(Custom::new()).model(script![text("1"), text("2"), call("look", json!({})), text("4"), text("5"), text("6")]);
    let tab = page(&world, "S1");
    let ask = |body: Value| {
        tab.set_body(body);
        tab.send("Hello.");
        world.run();
    };
    ask(json!({ "clientTools": [{ "name": "look" }] }));
    ask(json!({}));
    ask(json!({}));
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": tab.open_calls()[0], "toolName": "look", "output": 1,
        "autoContinue": true, "clientTools": [{ "name": "newer" }] }));
    world.run();
    world.restart(Sockets::Kept);
    world
        .block_on({
            let handle = world.handle();
            async move { handle.save_messages(vec![UiMessage::user("p1", "From the server.")]).await }
        })
        .unwrap();
    ask(json!({ "clientTools": [] }));
    let offered: Vec<Vec<String>> =
        world.provider_requests().iter().map(|r| r.tools().iter().map(|t| (*t).to_owned()).collect()).collect();
    assert_eq!(offered, [vec!["look"], vec!["look"], vec!["look"], vec!["newer"], vec!["newer"], vec![]]);
    assert_idle(&world);
}

// T57, T58, decision 9, tools D4
#[test]
fn a_page_may_replace_a_server_tool_unless_it_is_protected_or_gated() {
    let both = |gated: bool, config: ClientToolOverride| {
        let agent = Custom::new().config(|c| c.client_tool_override = config.clone()).tools(move |_| {
            let look = tool("look", |_, _| async { Ok(json!("server")) });
            Tools::new().with(if gated { look.needs_approval() } else { look })
        });
        let world = World::new(agent).model(script![call("look", json!({})), text("Fine.")]);
        let tab = world.connect("S1");
        tab.set_body(json!({ "clientTools": [{ "name": "look", "description": "page" }] }));
        tab.send("Look.");
        world.run();
        (states(&world, 1)[0].clone(), world.events_named("tool:client-override-refused").len())
    };
    assert_eq!(both(false, ClientToolOverride::Allow), ("input-available".into(), 0), "the page runs it");
    assert_eq!(both(false, ClientToolOverride::Deny), ("output-available".into(), 1), "the server ran it");
    assert_eq!(both(false, ClientToolOverride::Protect(vec!["look".into()])), ("output-available".into(), 1));
    assert_eq!(both(false, ClientToolOverride::Protect(vec!["ask".into()])), ("input-available".into(), 0));
    assert_eq!(both(true, ClientToolOverride::Allow), ("approval-requested".into(), 1), "a person stays in the loop");
}

// T59, tools D14
#[test]
fn unusable_tools_of_a_page_are_left_out() {
    let world = World::new(Custom::new()).model(script![text("Hi."), text("Hi."), text("Hi.")]);
    let tab = world.connect("S1");
    tab.set_body(
        json!({ "clientTools": [{ "name": "a b" }, { "name": "x".repeat(65) }, { "name": "é" }, { "name": "" }, { "name": "fine" }] }),
    );
    tab.send("Hello.");
    world.run();
    assert_eq!(world.provider_requests()[0].tools(), ["fine"]);
    assert_eq!(world.events_named("tool:client-schema-rejected").len(), 4);
    tab.set_body(json!({ "clientTools": (0..10_000).map(|n| json!({ "name": format!("t{n}") })).collect::<Vec<_>>() }));
    tab.send("Hello.");
    world.run();
    assert_eq!(world.provider_requests()[1].tools().len(), 128);
    assert_eq!(world.events_named("tool:client-schema-rejected").len(), 4 + 9, "a flood is a number");
    tab.set_body(json!({ "clientTools": { "look": {} } }));
    tab.send("Hello.");
    world.run();
    assert_eq!(world.provider_requests()[2].tools().len(), 0);
    assert_idle(&world);
}

// T60: what the application declares is refused loudly
#[test]
fn a_declared_tool_that_cannot_be_used_is_an_error_that_names_it() {
    for (name, schema) in [("a b", json!({ "type": "object" })), ("list", json!({ "type": "array" }))] {
        let agent = Custom::new().tools(move |_| Tools::new().with(Tool::client_dynamic(name, "Looks", schema.clone())));
        let world = World::new(agent).model(script![]);
        let tab = world.connect("S1");
        tab.send("Hello.");
        world.run();
        let Status::Error(shown) = tab.status() else { panic!("{:?}", tab.status()) };
        assert!(shown.contains(&format!("tool `{name}`")), "{shown}");
        assert!(world.provider_requests().is_empty());
        assert_idle(&world);
    }
}

// T78, recovery I23: waiting costs nothing
#[test]
fn a_parked_turn_costs_no_timer_no_alarm_and_no_row() {
    let (world, tab, id) = parked([text("Fine.")]);
    let alarms = world.alarms().len();
    world.hibernate();
    world.run_for(86_400_000);
    assert_eq!((world.meter(), world.alarms().len()), (Default::default(), alarms));
    tab.tool_result(&id, json!(1));
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] Fine.");
    assert_idle(&world);
}

// T79, tools D12, decision 47: the person writes instead of answering
#[test]
fn a_new_message_overtakes_what_was_waited_for() {
    let (world, tab, id) = parked([text("As you like.")]);
    let other = world.connect("S2");
    other.send("Never mind.");
    world.run();
    assert_eq!(world.said(), ["user: Where am I?", "assistant: [look output-error]", "user: Never mind.", "assistant: As you like."]);
    assert_eq!(world.provider_requests()[1].roles(), ["system", "user", "assistant", "tool", "user"]);
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true, "ack": true }));
    let probe = tab.probe();
    world.run();
    assert_eq!(tab.of_type("cf_agent_tool_result_ack")[0]["status"], "late");
    assert!(tab.frames().iter().any(|f| f["probeId"] == probe.as_str() && f["reason"] == "idle"));
    assert_eq!(world.provider_requests().len(), 2);
    same_screens(&world, &[&tab, &other]);
    let turns = texts(&world, "SELECT state || ' ' || coalesce(reason, '') FROM wk_turn ORDER BY seq");
    assert_eq!(turns, ["completed superseded", "completed "]);
    assert_idle(&world);
}

// tools D12: a queued continuation whose message is no longer the end of the path
#[test]
fn a_queued_continuation_gives_way_to_a_newer_message() {
    let (world, tab, id) = parked([text("Newer.")]);
    let other = world.connect("S2");
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true }));
    world.settle();
    other.send("Wait.");
    world.run();
    assert_eq!(world.said(), ["user: Where am I?", "assistant: [look output-available]", "user: Wait.", "assistant: Newer."]);
    assert_eq!(world.provider_requests().len(), 2);
    assert_eq!(world.events_named("continuation:dropped").len(), 1);
    assert!(tab.frames().contains(&json!({ "type": "cf_agent_stream_resume_none" })), "who waited for it is told");
    same_screens(&world, &[&tab, &other]);
    assert_idle(&world);
}

// T80
#[test]
fn an_output_that_is_too_large_or_deep_becomes_an_error_and_the_turn_goes_on() {
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    for (output, reason) in
        [(json!("x".repeat(300 * 1024)), "tool output too large: 307202 bytes, limit 262144"), (deep, "nested deeper")]
    {
        let (world, tab, id) = parked([text("Too much.")]);
        tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": output, "autoContinue": true, "ack": true }));
        world.run();
        assert_eq!(tab.of_type("cf_agent_tool_result_ack")[0]["status"], "too_large");
        assert!(parts(&world, 1)[1]["errorText"].as_str().unwrap().contains(reason));
        assert_eq!(world.provider_requests().len(), 2);
        assert_idle(&world);
    }
}

// T81, T82, T84, T85, decision 10, field R-12: a deadline, over a death, with a late answer
#[test]
fn a_page_that_does_not_answer_in_time_is_settled_by_the_alarm() {
    for dies in [None, Some(Sockets::Kept), Some(Sockets::Closed)] {
        let world = World::new(Custom::new()).model(script![call("slow", json!({})), text("Nobody answered.")]);
        let (tab, other) = (world.connect("S1"), world.connect("S2"));
        tab.set_body(json!({ "clientTools": [{ "name": "slow", "timeoutMs": 2_000 }] }));
        tab.send("Look.");
        world.run_until(|w| rows(w, "wk_turn WHERE state = 'parked'") == 1);
        world.settle();
        let (id, parked_at) = (tab.open_calls()[0].clone(), world.clock().now());
        assert_eq!(world.alarm_at(), Some(parked_at + 2_000));
        if let Some(sockets) = dies {
            world.restart(sockets);
        }
        world.run_for(1_999);
        assert_eq!(world.provider_requests().len(), 1);
        world.run();
        assert_eq!(world.provider_requests().len(), 2);
        assert_eq!(parts(&world, 1)[1]["errorText"], "client tool timed out");
        assert_eq!(world.events_named("tool:timeout").len(), 1);
        if dies == Some(Sockets::Closed) {
            world.reconnect(&tab);
            world.reconnect(&other);
            world.run();
        }
        tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "slow", "output": 1, "autoContinue": true, "ack": true }));
        world.run();
        assert_eq!(tab.of_type("cf_agent_tool_result_ack")[0]["status"], "late");
        assert_eq!(world.provider_requests().len(), 2);
        assert_eq!(other.said(), world.said());
        assert_idle(&world);
    }
}

// T85, T83: some calls have a deadline, one has none
#[test]
fn deadlines_do_not_hurry_a_call_without_one() {
    let agent = Custom::new().tools(|_| {
        let declared = |name: &str| Tool::client_dynamic(name, "Looks", json!({ "type": "object" }));
        Tools::new()
            .with(declared("one").wait(ClientToolWait::Timeout(120_000)))
            .with(declared("two").wait(ClientToolWait::Timeout(1_000)))
            .with(declared("three"))
    });
    let three = calls([("one", json!({})), ("two", json!({})), ("three", json!({}))]);
    let world = World::new(agent.clone()).model(script![three, text("Fine.")]);
    let tab = world.connect("S1");
    tab.send("Look.");
    world.run_for(600_000);
    assert_eq!(world.provider_requests().len(), 1);
    assert_eq!(states(&world, 1), ["output-error", "output-error", "input-available"]);
    assert_parked(&world);
    tab.tool_result(&tab.open_calls()[0], json!(1));
    world.run();
    assert_eq!(world.provider_requests().len(), 2);
    assert_idle(&world);

    // Nobody is connected at all, and the application's own word wins over that of the tool.
    let world = World::new(agent.wait(ClientToolWait::Timeout(3_000))).model(script![call("three", json!({})), text("Alone.")]);
    let tab = world.connect("S1");
    tab.send("Look.");
    world.run_until(|w| rows(w, "wk_turn WHERE state = 'parked'") == 1);
    world.disconnect(&tab);
    world.run();
    assert_eq!(world.said()[1], "assistant: [three output-error] Alone.");
    assert_idle(&world);
}

// turns-and-tools.md §11: an answer after the deadline and before the alarm is taken
#[test]
fn an_answer_that_beats_the_alarm_counts() {
    let world = World::new(Custom::new().wait(ClientToolWait::Timeout(2_000))).model(script![call("look", json!({})), text("Fine.")]);
    let tab = page(&world, "S1");
    tab.send("Look.");
    world.run_until(|w| rows(w, "wk_turn WHERE state = 'parked'") == 1);
    world.settle();
    tab.tool_result(&tab.open_calls()[0], json!(1));
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] Fine.");
    assert_eq!(world.events_named("tool:timeout").len(), 0);
    assert_eq!(rows(&world, "wk_call WHERE deadline_at IS NOT NULL"), 0);
    assert_idle(&world);
}

// wire 127: the outputs come with the request instead of a frame
#[test]
fn outputs_in_a_posted_transcript_are_taken_and_one_turn_runs() {
    let (world, tab, id) = parked([text("From the transcript.")]);
    let mut messages = tab.messages();
    messages[1]["parts"][1]["state"] = "output-available".into();
    messages[1]["parts"][1]["output"] = json!({ "city": "Oslo" });
    messages[1]["parts"][0] = json!({ "type": "text", "text": "forged" });
    let body = json!({ "messages": messages, "trigger": "submit-message" }).to_string();
    tab.frame(json!({ "id": "r-posted", "init": { "method": "POST", "body": body }, "type": "cf_agent_use_chat_request" }));
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] From the transcript.");
    assert_eq!(world.provider_requests().len(), 2);
    assert_eq!(world.provider_requests()[1].roles(), ["system", "user", "assistant", "tool"]);
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 2, "autoContinue": true }));
    world.run();
    assert_eq!(world.provider_requests().len(), 2);
    assert_idle(&world);
}

// wire 134, field T-06: an old copy of the message
#[test]
fn a_stale_copy_of_a_settled_call_changes_nothing() {
    let (world, tab, id) = parked([text("Fine."), text("Again.")]);
    let stale = tab.messages();
    tab.tool_result(&id, json!("real"));
    world.run();
    let mut messages = stale;
    messages[1]["parts"][1]["output"] = json!("forged");
    messages[1]["parts"][1]["state"] = "output-available".into();
    messages.push(json!({ "id": "u2", "role": "user", "parts": [{ "type": "text", "text": "next" }] }));
    let body = json!({ "messages": messages }).to_string();
    tab.frame(json!({ "id": "r2", "init": { "method": "POST", "body": body }, "type": "cf_agent_use_chat_request" }));
    world.run();
    assert_eq!(parts(&world, 1)[1]["output"], "real");
    assert_idle(&world);
}

// T148, X23, wire 2.13: stop() names the pending continuation
#[test]
fn a_held_or_queued_continuation_can_be_cancelled() {
    // Held: one of two calls is answered.
    let world = World::new(Custom::new()).model(script![calls([("look", json!({})), ("ask", json!({}))]), text("Later.")]);
    let tab = page(&world, "S1");
    tab.send("Look.");
    world.run();
    let open = tab.open_calls();
    tab.tool_result(&open[0], json!(1));
    world.run();
    let id = tab.of_type("cf_agent_stream_pending")[0]["id"].as_str().unwrap().to_owned();
    tab.cancel(&id);
    world.run();
    assert!(tab.frames().contains(&json!({ "type": "cf_agent_stream_resume_none" })));
    assert_eq!(tab.status(), Status::Ready);
    tab.tool_error(&open[1], "no");
    world.run();
    assert_eq!(world.provider_requests().len(), 1, "nobody wants it any more");
    assert_idle(&world);

    // Queued: complete, and cancelled before it starts.
    let (world, tab, call) = parked([text("Never.")]);
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": call, "toolName": "look", "output": 1, "autoContinue": true }));
    world.settle();
    let id = texts(&world, "SELECT request_id FROM wk_turn WHERE state = 'queued'")[0].clone();
    tab.cancel(&id);
    world.run();
    assert_eq!(world.provider_requests().len(), 1);
    assert!(tab.terminals(&id).is_empty(), "nothing of it was ever shown");
    assert_idle(&world);
}

// T146, tools D13: a stopped turn never parks
#[test]
fn stopping_settles_open_calls_and_continues_nothing() {
    let (world, gates) = world_with_work(script![calls([("look", json!({})), ("work", json!({}))])]);
    let (tab, other) = (page(&world, "S1"), world.connect("S2"));
    let request = tab.send("Look.");
    world.run();
    let id = tab.open_calls()[0].clone();
    other.cancel(&request);
    gates.open("work");
    world.run();
    assert_eq!(states(&world, 1), ["output-error", "output-available"]);
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true, "ack": true }));
    world.run();
    assert_eq!(tab.of_type("cf_agent_tool_result_ack")[0]["status"], "late");
    assert_eq!(world.provider_requests().len(), 1);
    assert_eq!(other.said(), world.said());
    assert_idle(&world);
}

// T48 for page tools, decision 40
#[test]
fn calls_of_an_answer_that_was_cut_off_are_not_left_open() {
    let world = World::new(Custom::new()).model(script![call("look", json!({})).finish("length"), text("next")]);
    let tab = page(&world, "S1");
    tab.send("Look.");
    world.run();
    assert_eq!(parts(&world, 1)[1]["errorText"], "not executed: the model stopped early (length)");
    assert_idle(&world);
    tab.send("Go on.");
    world.run();
    assert_eq!(world.said()[3], "assistant: next");
    assert_idle(&world);
}

// wire 149, T04 while parked
#[test]
fn clearing_forgets_calls_deadlines_and_wishes() {
    let world = World::new(Custom::new().wait(ClientToolWait::Timeout(60_000)));
    world.answer(script![calls([("look", json!({})), ("ask", json!({}))]), text("anew")]);
    let (tab, other) = (page(&world, "S1"), world.connect("S2"));
    tab.send("Look.");
    world.run_until(|w| rows(w, "wk_turn WHERE state = 'parked'") == 1);
    world.settle();
    let open = tab.open_calls();
    tab.tool_result(&open[0], json!(1));
    world.settle();
    other.clear();
    world.run();
    assert!(tab.frames().contains(&json!({ "type": "cf_agent_stream_resume_none" })));
    assert_eq!(["wk_call", "wk_continuation", "wk_turn", "wk_msg"].map(|table| world.db().count(table)), [0; 4]);
    tab.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": open[1], "toolName": "ask", "output": 1, "autoContinue": true }));
    world.run();
    assert_eq!(world.provider_requests().len(), 1);
    assert_idle(&world);
    tab.send("Again.");
    world.run();
    same_screens(&world, &[&tab, &other]);
    assert_idle(&world);
}

// turns-and-tools.md §9.7: the continuation fails like any leg
#[test]
fn a_continuation_that_fails_ends_with_an_error_and_keeps_the_answers() {
    let (world, tab, id) = parked([http_error(401, json!({ "error": { "message": "bad key" } }))]);
    tab.tool_result(&id, json!(1));
    world.run();
    assert!(matches!(tab.status(), Status::Error(_)), "{:?}", tab.status());
    let terminal = tab.of_type("cf_agent_use_chat_response").pop().unwrap();
    assert_eq!((&terminal["error"], &terminal["continuation"]), (&json!(true), &json!(true)));
    assert_eq!(states(&world, 1), ["output-available"]);
    assert_idle(&world);
}

// §9.6: a result for the next batch, given while the continuation still streams
#[test]
fn results_during_a_continuation_belong_to_the_next_batch() {
    let second = calls([("ask", json!({})), ("work", json!({}))]);
    let (world, gates) = world_with_work(script![call("look", json!({})), second, text("Done.")]);
    let (tab, other) = (page(&world, "S1"), world.socket("S2"));
    tab.send("Look.");
    world.run();
    tab.tool_result(&tab.open_calls()[0], json!(1));
    world.run();
    let open = texts(&world, "SELECT call_id FROM wk_call WHERE state = 'waiting'");
    other
        .frame(json!({ "type": "cf_agent_tool_result", "toolCallId": open[0], "toolName": "ask", "output": 2, "autoContinue": true }));
    world.run();
    assert_eq!(world.provider_requests().len(), 2);
    gates.open("work");
    world.run();
    assert_eq!(world.provider_requests().len(), 3);
    assert_eq!(world.said()[1], "assistant: [look output-available] [ask output-available] [work output-available] Done.");
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}

// T49 with all three kinds, field T-12: server calls run, the others stay open
#[test]
fn a_mixed_step_runs_what_it_can_and_parks() {
    let agent = Custom::new().tool("work", |_, _| async { Ok(json!("done")) });
    let world = World::new(agent).model(script![calls([("look", json!({})), ("work", json!({}))]), text("Both.")]);
    let tab = page(&world, "S1");
    tab.send("Go.");
    world.run();
    assert_eq!(states(&world, 1), ["input-available", "output-available"]);
    assert_parked(&world);
    tab.tool_result(&tab.open_calls()[0], json!("seen"));
    world.run();
    assert_eq!(world.provider_requests()[1].roles(), ["system", "user", "assistant", "tool", "tool"]);
    assert_eq!(world.said()[1], "assistant: [look output-available] [work output-available] Both.");
    assert_idle(&world);
}

// T149, decision 42
#[test]
fn a_read_only_connection_answers_nothing() {
    let (world, tab, id) = parked([]);
    let guest = world.dial(Dial::new("guest").raw().query("readonly"));
    world.settle();
    let stored = world.get_messages();
    guest.take_frames();
    guest.frame(json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true }));
    let probe = guest.probe();
    world.run();
    assert_eq!(
        guest.take_frames(),
        [
            json!({ "type": "cf_agent_message_updated", "message": stored[1] }),
            json!({ "type": "cf_agent_stream_resume_none", "reason": "idle", "probeId": probe })
        ]
    );
    assert_eq!((world.get_messages(), tab.open_calls().len()), (stored, 1));
    assert_parked(&world);
}

// turns-and-tools.md §11: more time for a page
#[test]
fn the_application_lets_a_page_have_more_time() {
    let world = World::new(Custom::new().wait(ClientToolWait::Timeout(2_000))).model(script![call("look", json!({})), text("Fine.")]);
    let tab = page(&world, "S1");
    tab.send("Look.");
    world.run_until(|w| rows(w, "wk_turn WHERE state = 'parked'") == 1);
    world.settle();
    let id = tab.open_calls()[0].clone();
    let more = |call: String, ms: u32| {
        let handle = world.handle();
        world.block_on(async move { handle.extend_client_tool_wait(&call, ms).await })
    };
    more(id.clone(), 60_000).unwrap();
    world.run_for(50_000);
    assert_eq!((world.events_named("tool:timeout").len(), tab.open_calls()), (0, vec![id.clone()]));
    assert_eq!(more("nobodys".into(), 1).unwrap_err().message(), "the call nobodys is not waited for with a deadline");
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-error] Fine.");
    assert!(more(id, 1).is_err(), "it is over");
    assert_idle(&world);
}

// a tab that waits for the continuation goes on waiting when the object sleeps meanwhile
#[test]
fn who_waits_for_the_continuation_is_known_after_a_hibernation() {
    let two = calls([("look", json!({})), ("ask", json!({})), ("look", json!({}))]);
    let world = World::new(Custom::new()).model(script![two, text("Fine.")]);
    let tabs = [page(&world, "S1"), world.connect("S2"), world.connect("S3")];
    tabs[0].send("Look.");
    world.run();
    let open = tabs[0].open_calls();
    tabs[0].tool_result(&open[0], json!(1));
    tabs[1].tool_result(&open[1], json!(2));
    world.run();
    world.hibernate();
    tabs[2].tool_result(&open[2], json!(3));
    world.run();
    for tab in &tabs {
        assert_eq!(tab.of_type("cf_agent_stream_resuming").len(), 1, "{}", tab.label());
    }
    same_screens(&world, &[&tabs[0], &tabs[1], &tabs[2]]);
    assert_idle(&world);
}

// on_client_tool_result, on_chat_response for each leg (decision 30)
#[test]
fn hooks_see_each_leg_and_each_answer() {
    let agent = Custom::new();
    let seen = agent.seen.clone();
    let world = World::new(agent).model(script![call("look", json!({})), text("Fine.")]);
    let tab = page(&world, "S1");
    tab.send("Look.");
    world.run();
    let id = tab.open_calls().pop().unwrap();
    let request = tab.turn_ends()[0].request.clone();
    tab.tool_result(&id, json!({ "city": "Oslo" }));
    world.run();
    let seen = seen.take();
    let told: Vec<&str> = seen.iter().map(String::as_str).filter(|line| !line.starts_with("connect")).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[0], format!("response {request} completed \"\""));
    assert_eq!(told[1], r#"client tool look {"city":"Oslo"}"#);
    assert!(told[2].ends_with("completed \"Fine.\" continuation"), "{}", told[2]);
    assert_eq!(world.db().count("wk_outbox"), 0);
}
