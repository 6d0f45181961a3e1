//! Calls that a person has to allow: asked, allowed, denied, contradicted, after a death (`turns-and-tools.md` §10).

use std::{cell::RefCell, rc::Rc};

use serde_json::{Value, json};
use wakeful::{
    prelude::*,
    testkit::{Client, Dial, Gates, Reply, Sockets, Status, World, call, calls, script, text},
};

use crate::{
    assert_idle, assert_parked,
    custom::{Custom, tool},
    page_tools::{page, parts, rows},
};

/// What the gated tool `pay` did, a line each.
type Ran = Rc<RefCell<Vec<Value>>>;

/// An agent with the gated tool `pay` and the plain tool `work`.
fn payer() -> (Custom, Ran) {
    let ran = Ran::default();
    let log = ran.clone();
    let agent = Custom::new().tools(move |_| {
        let log = log.clone();
        let pay = tool("pay", move |input, _| {
            let log = log.clone();
            async move {
                log.borrow_mut().push(input.clone());
                if input["to"] == "nobody" { Err(ToolError::from("no such account")) } else { Ok(json!("paid")) }
            }
        });
        Tools::new().with(pay.needs_approval()).with(tool("work", |_, _| async { Ok(json!("done")) }))
    });
    (agent, ran)
}

/// A world in which the model wants to pay, and the tab that asked.
fn asked(after: impl IntoIterator<Item = Reply>) -> (World<Custom>, Client, String, Ran) {
    let (agent, ran) = payer();
    let world = World::new(agent).model(script![call("pay", json!({ "eur": 5 }))]);
    for reply in after {
        world.answer(reply);
    }
    let tab = world.connect("S1");
    tab.send("Pay.");
    world.run();
    let call = tab.open_calls().pop().unwrap();
    (world, tab, call, ran)
}

fn chunk_types(client: &Client, request: &str) -> Vec<String> {
    client.chunks(request).iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect()
}

fn same_screens(world: &World<Custom>, tabs: &[&Client]) {
    for tab in tabs {
        assert_eq!(tab.said(), world.said(), "{}", tab.label());
        assert_eq!(tab.status(), Status::Ready, "{}", tab.label());
    }
}

// wire 107, field T-05: asked after the input, stored with the id it is asked under
#[test]
fn a_gated_call_is_put_before_a_person() {
    let (world, tab, id, ran) = asked([]);
    let request = tab.turn_ends()[0].request.clone();
    let types = chunk_types(&tab, &request);
    let available = types.iter().position(|t| t == "tool-input-available").unwrap();
    assert_eq!(types[available + 1..], ["tool-approval-request", "finish-step", "finish"]);
    let part = &parts(&world, 1)[1];
    assert_eq!((&part["state"], &part["input"]), (&json!("approval-requested"), &json!({ "eur": 5 })));
    let approval = part["approval"]["id"].as_str().unwrap();
    assert_eq!(approval.len(), 24);
    assert!(ran.borrow().is_empty());
    // A late tab and a reload build the question from the stored part.
    let late = world.connect("S2");
    assert_eq!(late.open_calls(), [id]);
    assert_eq!(late.said(), tab.said());
    assert_parked(&world);
}

// T86, wire 108, wire 112
#[test]
fn an_allowed_call_runs_once_and_the_message_goes_on() {
    let (world, tab, id, ran) = asked([text("Paid.")]);
    let other = world.connect("S2");
    other.take_frames();
    tab.approve(&id, true);
    world.run();
    assert_eq!(*ran.borrow(), [json!({ "eur": 5 })]);
    assert_eq!(world.said(), ["user: Pay.", "assistant: [pay output-available] Paid."]);
    same_screens(&world, &[&tab, &other]);
    let frames = other.take_frames();
    assert_eq!(frames[0]["message"]["parts"][1]["state"], "approval-responded", "everybody sees that it was allowed");
    let request = frames.iter().find(|f| f["continuation"] == true).unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(chunk_types(&tab, &request)[..3], ["start", "tool-output-available", "start-step"]);
    assert_eq!(world.provider_requests()[1].roles(), ["system", "user", "assistant", "tool"]);
    let part = &parts(&world, 1)[1];
    assert_eq!((&part["output"], &part["approval"]["approved"]), (&json!("paid"), &json!(true)));
    assert_idle(&world);
    world.check();
}

// T87, T88, wire 109, field T-04, tools D5
#[test]
fn a_denied_call_never_runs_and_the_model_learns_why() {
    for (reason, told) in [(Some("too expensive"), "too expensive"), (None, "")] {
        let (world, tab, id, ran) = asked([text("All right.")]);
        let other = world.connect("S2");
        match reason {
            Some(reason) => tab.deny(&id, reason),
            None => tab.approve(&id, false),
        }
        world.run();
        assert!(ran.borrow().is_empty());
        assert_eq!(world.said()[1], "assistant: [pay output-denied] All right.");
        same_screens(&world, &[&tab, &other]);
        let part = &parts(&world, 1)[1];
        assert_eq!(part["approval"]["approved"], false);
        assert_eq!(part["approval"].get("reason").and_then(Value::as_str), reason);
        let result = world.provider_requests()[1].messages()[3]["content"].as_str().unwrap().to_owned();
        assert!(result.contains(told) && !result.is_empty(), "{result}");
        let request = other.of_type("cf_agent_use_chat_response").last().unwrap()["id"].as_str().unwrap().to_owned();
        assert!(!chunk_types(&tab, &request).iter().any(|t| t.starts_with("tool-output")), "no output chunk");
        assert_idle(&world);
    }
}

// T89: a predicate on the input; what goes wrong with it asks
#[test]
fn a_predicate_decides_which_calls_are_asked_for() {
    let world = |says: fn(Value) -> Result<Approval>, eur: u32| {
        let agent = Custom::new().tools(move |_| {
            let pay = tool("pay", |_, _| async { Ok(json!("paid")) });
            Tools::new().with(pay.needs_approval_when(move |input, _| async move { says(input) }))
        });
        let world = World::new(agent).model(script![call("pay", json!({ "eur": eur })), text("Done.")]);
        let tab = world.connect("S1");
        tab.send("Pay.");
        world.run();
        (world, tab)
    };
    let over = |input: Value| Ok(if input["eur"].as_u64() > Some(100) { Approval::Ask } else { Approval::Allow });
    let (small, _) = world(over, 50);
    assert_eq!(small.said()[1], "assistant: [pay output-available] Done.");
    assert_eq!(rows(&small, "wk_call WHERE approval_id IS NOT NULL"), 0);
    assert_idle(&small);
    let (large, tab) = world(over, 500);
    assert_eq!(large.said()[1], "assistant: [pay approval-requested]");
    assert_parked(&large);
    tab.approve(&tab.open_calls()[0], true);
    large.run();
    assert_eq!(large.said()[1], "assistant: [pay output-available] Done.");
    let (failing, _) = world(|_| Err(Error::application("the list of accounts is gone")), 1);
    assert_eq!(failing.said()[1], "assistant: [pay approval-requested]");
    assert_eq!(failing.events_named("hook:failed").len(), 1);
    // Never, and nobody is asked: the model learns it in the same turn.
    let (never, tab) = world(|_| Ok(Approval::Deny("not from here".into())), 1);
    assert_eq!(never.said()[1], "assistant: [pay output-denied] Done.");
    assert_eq!(parts(&never, 1)[1]["approval"]["reason"], "not from here");
    assert_eq!(tab.messages()[1]["parts"][1]["approval"]["reason"], "not from here");
    assert!(never.provider_requests()[1].body.to_string().contains("not from here"));
    assert_idle(&never);
}

// a predicate that hangs asks too (fail closed)
#[test]
fn a_predicate_that_takes_too_long_asks() {
    let agent = Custom::new().tools(|_| {
        let pay = tool("pay", |_, _| async { Ok(json!("paid")) });
        Tools::new().with(pay.needs_approval_when(|_, scope: TurnScope| async move {
            scope.sleep(3_600_000).await;
            Ok(Approval::Allow)
        }))
    });
    let world = World::new(agent).model(script![call("pay", json!({}))]);
    let tab = world.connect("S1");
    tab.send("Pay.");
    world.run_for(10_001);
    assert_eq!(world.said()[1], "assistant: [pay approval-requested]");
    assert_parked(&world);
    assert_eq!(tab.open_calls().len(), 1);
}

// T90, T96, §10.4: several questions and a page's call in one batch, from two tabs
#[test]
fn all_open_questions_of_a_step_are_one_batch() {
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        for apart in [0, 1, 60, 5_000] {
            let (agent, ran) = payer();
            let step = calls([("pay", json!({ "n": 1 })), ("look", json!({})), ("pay", json!({ "n": 2 })), ("work", json!({}))]);
            let world = World::new(agent).model(script![step, text("Sorted.")]);
            let tabs = [page(&world, "S1"), world.connect("S2")];
            tabs[0].send("Go.");
            world.run();
            let open = tabs[0].open_calls();
            assert_eq!(
                world.said()[1],
                "assistant: [pay approval-requested] [look input-available] [pay approval-requested] [work output-available]"
            );
            for (n, which) in order.into_iter().enumerate() {
                assert_eq!(world.provider_requests().len(), 1);
                let tab = &tabs[n % 2];
                match which {
                    0 => tab.approve(&open[0], true),
                    1 => tab.tool_result(&open[1], json!("seen")),
                    _ => tab.deny(&open[2], "once is enough"),
                }
                world.run_for(apart);
            }
            world.run();
            assert_eq!(world.provider_requests().len(), 2, "{order:?} {apart}");
            assert_eq!(*ran.borrow(), [json!({ "n": 1 })]);
            assert_eq!(
                world.said()[1],
                "assistant: [pay output-available] [look output-available] [pay output-denied] [work output-available] Sorted."
            );
            same_screens(&world, &[&tabs[0], &tabs[1]]);
            assert_idle(&world);
        }
    }
}

// T91, wire 110
#[test]
fn the_first_decision_counts() {
    for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
        let (world, tab, id, ran) = asked([text("So be it.")]);
        let other = world.socket("S2");
        other.take_frames();
        let decide = |approved: bool| json!({ "type": "cf_agent_tool_approval", "toolCallId": id, "approved": approved, "autoContinue": true, "ack": true });
        other.frame(decide(first));
        other.frame(decide(second));
        world.run();
        let statuses: Vec<Value> = other.of_type("cf_agent_tool_result_ack").iter().map(|f| f["status"].clone()).collect();
        assert_eq!(statuses, ["accepted", if first == second { "duplicate" } else { "conflict" }]);
        assert_eq!(ran.borrow().len(), usize::from(first));
        assert_eq!(world.provider_requests().len(), 2);
        // Long after it ran, too.
        other.frame(decide(!first));
        world.run();
        assert_eq!(other.of_type("cf_agent_tool_result_ack")[2]["status"], "conflict");
        assert_eq!((ran.borrow().len(), world.provider_requests().len()), (usize::from(first), 2));
        assert_eq!(tab.said(), world.said());
        assert_idle(&world);
    }
}

// wire 111
#[test]
fn a_decision_without_the_wish_to_continue_only_shows() {
    let (world, tab, id, ran) = asked([text("Paid."), text("Next.")]);
    tab.frame(json!({ "type": "cf_agent_tool_approval", "toolCallId": id, "approved": true, "autoContinue": false }));
    world.run();
    assert_eq!(tab.said()[1], "assistant: [pay approval-responded]");
    assert_eq!((world.provider_requests().len(), ran.borrow().len()), (1, 0));
    assert_parked(&world);
    // A request that goes on with the same message runs it (§4.1 step 9).
    tab.resend();
    world.run();
    assert_eq!(world.said()[1], "assistant: [pay output-available] Paid.");
    assert_eq!(ran.borrow().len(), 1);
    assert_idle(&world);
}

// §10.3: allowed, but the conversation went on before it could run
#[test]
fn an_allowed_call_that_was_overtaken_does_not_run() {
    let (world, tab, id, ran) = asked([text("Next.")]);
    tab.frame(json!({ "type": "cf_agent_tool_approval", "toolCallId": id, "approved": true, "autoContinue": false }));
    world.run();
    tab.send("Never mind.");
    world.run();
    assert!(ran.borrow().is_empty());
    let part = &parts(&world, 1)[1];
    assert_eq!(part["errorText"], "The tool call was approved but did not run before the next turn started.");
    assert_eq!(world.provider_requests()[1].roles(), ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}

// T92, §10.5: allowed after a death, with nobody else there
#[test]
fn a_question_survives_the_object() {
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let (world, tab, id, ran) = asked([text("Paid.")]);
        world.restart(sockets);
        world.run_for(86_400_000);
        assert_parked(&world);
        if sockets == Sockets::Closed {
            world.reconnect(&tab);
            world.run();
        }
        assert_eq!(tab.open_calls(), std::slice::from_ref(&id));
        tab.approve(&id, true);
        world.run();
        assert_eq!(ran.borrow().len(), 1);
        assert_eq!(world.said()[1], "assistant: [pay output-available] Paid.");
        same_screens(&world, &[&tab]);
        assert!(world.events_named("chat:turn:interrupted").is_empty());
        assert_idle(&world);
    }
}

// T93, recovery I13: the object dies while the allowed call runs; it is not run again
#[test]
fn a_call_that_was_running_at_a_death_is_not_run_twice() {
    let gates = Gates::default();
    let (waits, ran) = (gates.clone(), Ran::default());
    let log = ran.clone();
    let agent = Custom::new().tools(move |_| {
        let (gates, log) = (waits.clone(), log.clone());
        let pay = tool("pay", move |input, _| {
            log.borrow_mut().push(input);
            let gates = gates.clone();
            async move {
                gates.wait("bank").await;
                Ok(json!("paid"))
            }
        });
        Tools::new().with(pay.needs_approval())
    });
    let world = World::new(agent).with_gates(&gates).model(script![call("pay", json!({})), text("Unclear."), text("Then.")]);
    let tab = world.connect("S1");
    tab.send("Pay.");
    world.run();
    tab.approve(&tab.open_calls()[0], true);
    world.run();
    assert_eq!(ran.borrow().len(), 1);
    world.restart(Sockets::Kept);
    world.run();
    assert_eq!(ran.borrow().len(), 1);
    assert_eq!(world.said(), ["user: Pay.", "assistant: [pay output-error] Unclear."]);
    assert_eq!(parts(&world, 1)[1]["errorText"], "The tool call was interrupted before a result was recorded.");
    assert_idle(&world);
    tab.send("And?");
    world.run();
    assert_eq!((ran.borrow().len(), world.said()[3].as_str()), (1, "assistant: Then."));
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}

// T94: the tools changed between question and answer
#[test]
fn a_tool_that_is_gone_or_changed_gives_an_error() {
    let gone = |later: fn() -> Tools| {
        let after = Rc::new(RefCell::new(false));
        let deployed = after.clone();
        let agent = Custom::new().tools(move |_| {
            if *deployed.borrow() { later() } else { Tools::new().with(tool("pay", |_, _| async { Ok(json!(1)) }).needs_approval()) }
        });
        let world = World::new(agent).model(script![call("pay", json!({ "eur": 5 })), text("I see.")]);
        let tab = world.connect("S1");
        tab.send("Pay.");
        world.run();
        *after.borrow_mut() = true;
        world.restart(Sockets::Kept);
        tab.approve(&tab.open_calls()[0], true);
        world.run();
        assert_eq!(world.said()[1], "assistant: [pay output-error] I see.");
        assert_eq!(tab.said(), world.said());
        assert_idle(&world);
        parts(&world, 1)[1]["errorText"].as_str().unwrap().to_owned()
    };
    assert!(gone(Tools::new).contains("there is no tool `pay`"));
    let strict = || {
        let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } }, "required": ["to"] });
        Tools::new().with(Tool::dynamic("pay", "Pays", schema, |_, _| async { Ok(json!(1)) }).needs_approval())
    };
    assert!(gone(strict).contains("/to: missing"));
    let in_page = || Tools::new().with(Tool::client_dynamic("pay", "Pays", json!({ "type": "object" })));
    assert!(gone(in_page).contains("runs in the page now"));
    let stricter = || {
        let pay = tool("pay", |_, _| async { Ok(json!(1)) });
        Tools::new().with(pay.needs_approval_when(|_, _| async { Ok(Approval::Deny("the account is closed".into())) }))
    };
    assert!(gone(stricter).contains("the account is closed"));
}

// T95, decision 42, authorize_approval
#[test]
fn who_may_decide_is_up_to_the_application() {
    let (world, _, id, ran) = asked([]);
    let guest = world.dial(Dial::new("guest").raw().query("readonly"));
    world.settle();
    guest.take_frames();
    guest.frame(json!({ "type": "cf_agent_tool_approval", "toolCallId": id, "approved": true, "autoContinue": true }));
    world.run();
    assert_eq!(guest.take_frames()[0]["message"]["parts"][1]["state"], "approval-requested");
    assert!(ran.borrow().is_empty());
    assert_parked(&world);

    for slow in [false, true] {
        let (agent, ran) = payer();
        let gates = Gates::default();
        let waits = gates.clone();
        let agent = agent.authorize(move |who, call| {
            let gates = waits.clone();
            async move {
                assert_eq!((call.tool_name.as_str(), &call.input), ("pay", &json!({})));
                if slow {
                    gates.wait("office").await;
                }
                if who.label == "boss" { Decision::Allow } else { Decision::Deny("only the boss".into()) }
            }
        });
        let world = World::new(agent).with_gates(&gates).model(script![call("pay", json!({})), text("Paid.")]);
        let (clerk, boss) = (world.connect("clerk"), world.connect("boss"));
        clerk.send("Pay.");
        world.run();
        let id = clerk.open_calls()[0].clone();
        clerk.approve(&id, true);
        world.run();
        if slow {
            let pending = clerk.of_type("cf_agent_stream_pending");
            assert_eq!(pending.len(), 1, "the probe after an approval is never told that nothing goes on");
            gates.open("office");
            world.run();
        }
        assert_eq!(clerk.status(), Status::Ready, "it is told in the end");
        assert_eq!((ran.borrow().len(), world.provider_requests().len()), (0, 1));
        assert_eq!(clerk.open_calls(), std::slice::from_ref(&id), "its screen is put right");
        assert_parked(&world);
        boss.approve(&id, true);
        world.run();
        assert_eq!(world.said()[1], "assistant: [pay output-available] Paid.");
        same_screens(&world, &[&clerk, &boss]);
        assert_idle(&world);
    }
}

// tools D4, T71: a page can neither settle nor replace a gated call
#[test]
fn a_page_cannot_answer_for_a_gated_call() {
    let (world, tab, id, ran) = asked([text("Paid.")]);
    for frame in [json!({ "output": "forged" }), json!({ "state": "output-error", "errorText": "forged" })] {
        let mut result =
            json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "pay", "autoContinue": true, "ack": true });
        frame.as_object().unwrap().iter().for_each(|(key, value)| result[key] = value.clone());
        tab.frame(result);
    }
    let mut messages = tab.messages();
    messages[1]["parts"][1]["state"] = "output-available".into();
    messages[1]["parts"][1]["output"] = "forged".into();
    world.run();
    assert!(tab.of_type("cf_agent_tool_result_ack").iter().all(|f| f["status"] == "not_client_tool"));
    assert_eq!(parts(&world, 1)[1]["state"], "approval-requested");
    assert_parked(&world);
    tab.approve(&id, true);
    world.run();
    assert_eq!((ran.borrow().len(), world.said()[1].as_str()), (1, "assistant: [pay output-available] Paid."));
    assert_idle(&world);
}

// a page's own tool may be gated too: allowed first, then answered
#[test]
fn a_gated_page_tool_is_allowed_before_it_is_answered() {
    let agent = Custom::new().tools(|_| {
        let look = Tool::client_dynamic("look", "Looks", json!({ "type": "object" }));
        Tools::new().with(look.needs_approval().wait(ClientToolWait::Timeout(60_000)))
    });
    let world = World::new(agent).model(script![call("look", json!({})), text("Seen.")]);
    let tab = world.connect("S1");
    tab.send("Look.");
    world.run();
    let id = tab.open_calls()[0].clone();
    let result = json!({ "type": "cf_agent_tool_result", "toolCallId": id, "toolName": "look", "output": 1, "autoContinue": true, "ack": true });
    tab.frame(result.clone());
    world.run();
    assert_eq!(tab.of_type("cf_agent_tool_result_ack")[0]["status"], "not_client_tool", "not before it is allowed");
    assert_eq!(world.alarm_at(), None, "a person is waited for without an end");
    tab.approve(&id, true);
    world.settle();
    assert_eq!(world.provider_requests().len(), 1, "the page has still to answer");
    assert!(world.alarm_at().is_some(), "and its time runs from now on");
    tab.frame(result);
    world.run();
    assert_eq!(world.said()[1], "assistant: [look output-available] Seen.");
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}

// approvals of calls that nobody asks about
#[test]
fn a_decision_about_a_call_without_a_gate_changes_nothing() {
    let world = World::new(Custom::new()).model(script![call("look", json!({}))]);
    let tab = page(&world, "S1");
    tab.send("Look.");
    world.run();
    let id = tab.open_calls()[0].clone();
    for approved in [true, false] {
        tab.frame(
            json!({ "type": "cf_agent_tool_approval", "toolCallId": id, "approved": approved, "autoContinue": true, "ack": true }),
        );
    }
    tab.frame(
        json!({ "type": "cf_agent_tool_approval", "toolCallId": "nobodys", "approved": true, "autoContinue": true, "ack": true }),
    );
    world.run();
    let statuses: Vec<Value> = tab.of_type("cf_agent_tool_result_ack").iter().map(|f| f["status"].clone()).collect();
    assert_eq!(statuses, ["not_awaiting_approval", "not_awaiting_approval", "unknown"]);
    assert_eq!(world.said()[1], "assistant: [look input-available]");
    assert_parked(&world);
}

// approval_wait_ms: nobody decided in time
#[test]
fn a_question_nobody_answers_in_time_is_denied() {
    let (agent, ran) = payer();
    let world =
        World::new(agent.config(|c| c.approval_wait_ms = Some(60_000))).model(script![call("pay", json!({})), text("Then not.")]);
    let tab = world.connect("S1");
    tab.send("Pay.");
    world.run_until(|w| rows(w, "wk_turn WHERE state = 'parked'") == 1);
    world.restart(Sockets::Kept);
    world.run();
    assert!(ran.borrow().is_empty());
    assert_eq!(world.said()[1], "assistant: [pay output-denied] Then not.");
    assert_eq!(parts(&world, 1)[1]["approval"]["reason"], "approval timed out");
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}

// the answer comes while another call of the step still runs
#[test]
fn a_decision_in_mid_stream_is_kept_and_carried_out_afterwards() {
    for approved in [true, false] {
        let gates = Gates::default();
        let (waits, ran) = (gates.clone(), Ran::default());
        let log = ran.clone();
        let agent = Custom::new().tools(move |_| {
            let (gates, log) = (waits.clone(), log.clone());
            let slow = tool("slow", move |_, _| {
                let gates = gates.clone();
                async move {
                    gates.wait("slow").await;
                    Ok(json!("done"))
                }
            });
            let pay = tool("pay", move |input, _| {
                log.borrow_mut().push(input);
                async { Ok(json!("paid")) }
            });
            Tools::new().with(pay.needs_approval()).with(slow)
        });
        let step = calls([("pay", json!({})), ("slow", json!({}))]);
        let world = World::new(agent).with_gates(&gates).model(script![step, text("Both.")]);
        let (tab, other) = (world.connect("S1"), world.connect("S2"));
        tab.send("Go.");
        world.run();
        let id = other.open_calls()[0].clone();
        other.frame(
            json!({ "type": "cf_agent_tool_approval", "toolCallId": id, "approved": approved, "reason": "why", "autoContinue": true }),
        );
        world.run();
        assert_eq!((ran.borrow().len(), world.provider_requests().len()), (0, 1));
        gates.open("slow");
        world.run();
        assert_eq!((ran.borrow().len(), world.provider_requests().len()), (usize::from(approved), 2));
        let state = if approved { "output-available" } else { "output-denied" };
        assert_eq!(world.said()[1], format!("assistant: [pay {state}] [slow output-available] Both."));
        assert_eq!(parts(&world, 1)[1]["approval"]["reason"], "why");
        same_screens(&world, &[&tab, &other]);
        assert_idle(&world);
        world.check();
    }
}

// T46 after an approval: a tool that fails
#[test]
fn an_allowed_call_may_fail_like_any_other() {
    let (agent, ran) = payer();
    let world = World::new(agent).model(script![call("pay", json!({ "to": "nobody" })), text("No such account.")]);
    let tab = world.connect("S1");
    tab.send("Pay.");
    world.run();
    tab.approve(&tab.open_calls()[0], true);
    world.run();
    assert_eq!(ran.borrow().len(), 1);
    assert_eq!(world.said()[1], "assistant: [pay output-error] No such account.");
    assert_eq!(tab.said(), world.said());
    assert_idle(&world);
}

// wire X29: the tab attached when nothing of the message was allowed yet, so its stream begins with an empty message
#[test]
fn a_tab_that_attached_before_the_approval_gets_its_outcome_as_an_update() {
    for approves in ["S1", "S2"] {
        let (agent, ran) = payer();
        let world = World::new(agent).model(script![calls([("look", json!({})), ("pay", json!({ "n": 1 }))]), text("Both.")]);
        let tabs = [page(&world, "S1"), world.connect("S2")];
        tabs[0].send("Go.");
        world.run();
        let open = tabs[0].open_calls();
        tabs[0].tool_result(&open[0], json!("seen"));
        world.run();
        let approver = tabs.iter().find(|tab| tab.label() == approves).unwrap();
        approver.approve(&open[1], true);
        world.run();
        assert_eq!(ran.borrow().len(), 1);
        assert_eq!(world.said()[1], "assistant: [look output-available] [pay output-available] Both.");
        same_screens(&world, &[&tabs[0], &tabs[1]]);
        assert_idle(&world);
        world.check();
    }
}

// wire X29: decided right after the connection is back, before its transcript came, which shows the call as undecided again
#[test]
fn a_decision_right_after_a_reconnect_leads_to_its_outcome() {
    for seed in 0..40 {
        let (agent, ran) = payer();
        let world = World::new(agent).seed(seed).model(script![calls([("pay", json!({ "n": 1 }))]), text("Paid.")]);
        let tab = world.connect("S1");
        tab.send("Go.");
        world.run();
        let call = tab.open_calls().remove(0);
        world.disconnect(&tab);
        world.reconnect(&tab);
        tab.approve(&call, true);
        world.run();
        assert_eq!((ran.borrow().len(), tab.status()), (1, Status::Ready), "{seed}: {}", tab.story());
        assert_eq!(
            (world.said()[1].as_str(), tab.said()),
            ("assistant: [pay output-available] Paid.", world.said()),
            "{seed}: {}",
            tab.story()
        );
        world.check();
    }
}

// decision 31, wire §2.15: both tabs were promised the stream, so neither is turned away while the allowed calls run
#[test]
fn every_tab_that_decided_is_offered_the_stream_and_none_is_turned_away_before() {
    let (world, gates) =
        crate::page_tools::gated_pay(script![calls([("pay", json!({ "n": 1 })), ("pay", json!({ "n": 2 }))]), text("Done.")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    one.send("Go.");
    world.run();
    let open = one.open_calls();
    one.approve(&open[0], true);
    world.run();
    two.deny(&open[1], "no");
    world.run();
    for tab in [&one, &two] {
        let probe = tab.probe();
        world.settle();
        let answers: Vec<Value> =
            tab.frames().into_iter().filter(|f| f["probeId"] == probe.as_str()).map(|f| f["type"].clone()).collect();
        assert_eq!(answers, ["cf_agent_stream_pending"], "{}", tab.label());
    }
    gates.open("bank");
    world.run();
    assert_eq!(world.said()[1], "assistant: [pay output-available] [pay output-denied] Done.");
    same_screens(&world, &[&one, &two]);
    assert_idle(&world);
}

// O5: a tab that comes back after a death gets the outcome of calls that the log does not have
#[test]
fn who_comes_back_after_a_death_sees_what_became_of_the_calls() {
    for gated in [true, false] {
        let tool = if gated { "pay" } else { "slow" };
        let (world, _) = crate::page_tools::gated_pay(script![call(tool, json!({})), text("Unclear.")]);
        let tab = world.connect("S1");
        tab.send("Go.");
        world.run();
        if gated {
            tab.approve(&tab.open_calls()[0], true);
            world.run();
        }
        world.restart(Sockets::Closed);
        world.reconnect(&tab);
        world.run();
        assert_eq!(world.said()[1], format!("assistant: [{tool} output-error] Unclear."));
        assert_eq!(tab.said(), world.said());
        assert_idle(&world);
    }
}
