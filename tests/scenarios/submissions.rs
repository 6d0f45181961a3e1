//! Submissions: accepted now, answered in their order, whatever dies meanwhile (`turns-and-tools.md` §3.6).

use std::{cell::RefCell, rc::Rc};

use serde_json::{Value, json};
use wakeful::{
    agent::submissions::{CancelOutcome, Cancelled, DeleteOptions, ListOptions, Submitted},
    limits,
    prelude::*,
    testkit::{Client, Dial, FaultAt, Gates, Sockets, World, call, http_error, script, text},
    time::Millis,
};

use crate::{
    assert_idle, assert_parked,
    custom::{Custom, Seen},
    page_tools::{page, rows},
};

type Kept = Rc<RefCell<Option<AgentHandle>>>;

/// Runs a call of the handle until it is answered.
fn ask<T: 'static, Fut: Future<Output = T> + 'static>(world: &World<Custom>, run: impl FnOnce(AgentHandle) -> Fut) -> T {
    let handle = world.handle();
    world.block_on(run(handle))
}

fn named(id: &str) -> SubmitOptions {
    SubmitOptions { submission_id: Some(id.into()), ..SubmitOptions::default() }
}

/// Submits one question under its own text as id.
fn try_submit(world: &World<Custom>, question: &str, options: SubmitOptions) -> Result<Submitted> {
    let message = UiMessage::user(format!("m-{question}"), question);
    ask(world, |h| async move { h.submit_messages(vec![message], options).await })
}

fn submit(world: &World<Custom>, question: &str) -> Submitted {
    try_submit(world, question, named(question)).unwrap()
}

fn cancel(world: &World<Custom>, id: &'static str) -> Cancelled {
    ask(world, move |h| async move { h.cancel_submission(id, Some("no need")).await }).unwrap()
}

/// All submissions, oldest first, as `id status`, and the error if there is one.
fn standing(world: &World<Custom>) -> Vec<String> {
    let list = ask(world, |h| async move { h.list_submissions(ListOptions::default()).await }).unwrap();
    let line = |s: &SubmissionInspection| {
        let error = s.error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
        format!("{} {}{error}", s.submission_id, s.status.as_str())
    };
    list.iter().rev().map(line).collect()
}

/// What the hook was told so far.
fn told(seen: &Seen) -> Vec<String> {
    seen.take().iter().filter_map(|line| line.strip_prefix("submission ").map(str::to_owned)).collect()
}

// T23, recovery 103
#[test]
fn the_same_key_is_the_same_submission() {
    let world = World::new(Custom::new()).model(script![text("done")]);
    let keyed = || SubmitOptions { idempotency_key: Some("today".into()), ..SubmitOptions::default() };
    let first = try_submit(&world, "A", keyed()).unwrap();
    let again = try_submit(&world, "A", keyed()).unwrap();
    world.run();
    world.restart(Sockets::Closed);
    let later = try_submit(&world, "A", keyed()).unwrap();
    let by_id = try_submit(&world, "B", named(&first.submission.submission_id)).unwrap();
    world.run();
    assert_eq!([first.accepted, again.accepted, later.accepted, by_id.accepted], [true, false, false, false]);
    assert_eq!(again.submission.submission_id, first.submission.submission_id);
    assert_eq!((later.submission.status, &later), (SubmissionStatus::Completed, &by_id));
    assert_eq!(world.said(), ["user: A", "assistant: done"]);
    assert_eq!(world.provider_requests().len(), 1);
    assert_idle(&world);
}

// T24
#[test]
fn an_id_and_a_key_of_two_submissions_are_refused() {
    let world = World::new(Custom::new()).model(script![text("one"), text("two")]);
    submit(&world, "A");
    try_submit(&world, "B", SubmitOptions { idempotency_key: Some("key".into()), ..named("B") }).unwrap();
    world.run();
    let before = world.db().snapshot();
    let refused = try_submit(&world, "C", SubmitOptions { idempotency_key: Some("key".into()), ..named("A") });
    assert_eq!(refused.unwrap_err().message(), "submissionId and idempotencyKey name two different submissions");
    assert_eq!(before.difference(&world.db().snapshot()), Vec::<String>::new());
    let one = try_submit(&world, "C", SubmitOptions { idempotency_key: Some("new".into()), ..named("A") }).unwrap();
    assert_eq!((one.accepted, one.submission.idempotency_key), (false, None), "one of them is enough to name it");
    assert_idle(&world);
}

// T25
#[test]
fn submissions_are_answered_in_their_order() {
    let agent = Custom::new();
    let seen = agent.seen.clone();
    let world = World::new(agent).model(script![text("a").gate("g"), text("b"), text("c")]);
    let tab = world.connect("S1");
    let at = world.clock().now();
    let metadata = json!({ "why": "test" });
    let first = try_submit(&world, "A", SubmitOptions { metadata: Some(metadata.clone()), ..named("A") }).unwrap();
    assert_eq!(
        serde_json::to_value(&first.submission).unwrap(),
        json!({ "submissionId": "A", "requestId": "A", "status": "pending", "metadata": metadata, "createdAt": at.0 })
    );
    submit(&world, "B");
    submit(&world, "C");
    world.run();
    assert_eq!(standing(&world), ["A running", "B pending", "C pending"]);
    assert_eq!(tab.said(), ["user: A", "assistant: a"]);
    world.open_gate("g");
    world.run();
    let told = told(&seen);
    assert_eq!(told[..4], ["A pending", "A running", "B pending", "C pending"]);
    assert_eq!(told[4..], ["A completed", "B running", "B completed", "C running", "C completed"]);
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: B", "assistant: b", "user: C", "assistant: c"]);
    assert_eq!(tab.said(), world.said());
    let ended = ask(&world, |h| async move { h.inspect_submission("A").await }).unwrap().unwrap();
    let expected = SubmissionInspection {
        status: SubmissionStatus::Completed,
        messages_applied_at: Some(at),
        started_at: Some(at),
        completed_at: Some(world.clock().now()),
        message_id: world.get_messages()[1]["id"].as_str().map(str::to_owned),
        ..first.submission
    };
    assert_eq!(ended, expected);
    let terminal = json!({ "id": "B", "type": "cf_agent_use_chat_response", "body": "", "done": true, "outcome": "completed", "messageIds": ["m-B"] });
    assert_eq!(tab.terminals("B"), [terminal]);
    let finished = &world.events_named("chat:turn:finish")[1].fields;
    assert_eq!((&finished["trigger"], &finished["requestId"]), (&json!("submission"), &json!("B")));
    assert_eq!(world.events_named("submission:create").len(), 3);
    let statuses = world.events_named("submission:status");
    assert_eq!(json!(statuses[1].fields), json!({ "submissionId": "A", "status": "running" }));
    assert_idle(&world);
}

// T26
#[test]
fn a_submission_can_be_cancelled_until_it_has_ended() {
    let world = World::new(Custom::new()).model(script![text("half").gate("never"), text("b")]);
    submit(&world, "A");
    submit(&world, "B");
    submit(&world, "C");
    world.run();
    let waiting = cancel(&world, "C");
    assert_eq!((waiting.outcome, waiting.previous_status), (CancelOutcome::Cancelled, Some(SubmissionStatus::Pending)));
    let gone = waiting.submission.clone().unwrap();
    assert_eq!((gone.status, gone.error.as_deref(), gone.started_at), (SubmissionStatus::Aborted, Some("no need"), None));
    assert!(!waiting.messages_applied);
    let running = cancel(&world, "A");
    assert_eq!((running.previous_status, running.messages_applied), (Some(SubmissionStatus::Running), true));
    assert!(running.submission.unwrap().message_id.is_some(), "what it had is stored");
    world.run();
    assert_eq!(standing(&world), ["A aborted: no need", "B completed", "C aborted: no need"]);
    assert_eq!(world.said(), ["user: A", "assistant: half", "user: B", "assistant: b"]);
    assert_eq!(
        cancel(&world, "C"),
        Cancelled { outcome: CancelOutcome::AlreadyTerminal, previous_status: Some(SubmissionStatus::Aborted), ..waiting }
    );
    assert_eq!(cancel(&world, "B").outcome, CancelOutcome::AlreadyTerminal);
    let unknown = Cancelled { outcome: CancelOutcome::NotFound, previous_status: None, messages_applied: false, submission: None };
    assert_eq!(cancel(&world, "X"), unknown);
    assert_idle(&world);
}

// T26: the turn ends in its own time, the status does not wait for it
#[test]
fn a_cancelled_submission_stays_aborted_however_its_turn_ends() {
    let gates = Gates::new();
    let wait = gates.clone();
    let agent = Custom::new().tool("work", move |_, _| {
        let gates = wait.clone();
        async move {
            gates.wait("work").await;
            Err(ToolError::Fatal("broken".into()))
        }
    });
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![call("work", json!({}))]);
    submit(&world, "A");
    world.run();
    cancel(&world, "A");
    assert_eq!(standing(&world), ["A aborted: no need"]);
    world.open_gate("work");
    world.run();
    assert_eq!(standing(&world), ["A aborted: no need"]);
    assert_eq!(told(&seen), ["A pending", "A running", "A aborted"]);
    assert_idle(&world);
}

// C-03, turns-and-tools §5.1: it keeps its place among turns, and is neither dropped nor does it give way
#[test]
fn a_submission_that_was_cancelled_while_it_waited_leaves_nothing() {
    for strategy in [MessageConcurrency::Queue, MessageConcurrency::Latest] {
        let agent = Custom::new().config(|c| c.message_concurrency = strategy);
        let world = World::new(agent).model(script![text("a").gate("g"), text("c"), text("d")]);
        let tab = world.connect("S1");
        tab.send("A");
        world.run();
        submit(&world, "B");
        submit(&world, "C");
        tab.send("D");
        world.run();
        cancel(&world, "B");
        world.open_gate("g");
        world.run();
        assert_eq!(standing(&world), ["B aborted: no need", "C completed"]);
        // D was stored when it came, as any message of a client is; its answer follows it.
        assert_eq!(world.said(), ["user: A", "assistant: a", "user: D", "assistant: d", "user: C", "assistant: c"], "{strategy:?}");
        let asked: Vec<String> = world.provider_requests().iter().map(|request| request.last_user()).collect();
        assert_eq!(asked, ["A", "C", "D"], "{strategy:?}");
        assert_eq!(tab.said(), world.said());
        assert_eq!(rows(&world, "wk_msg WHERE id = 'm-B'"), 0);
        assert_idle(&world);
    }
}

// turns-and-tools §5.1
#[test]
fn a_submission_counts_as_overlap() {
    let world = World::new(Custom::new().config(|c| c.message_concurrency = MessageConcurrency::Drop));
    world.answer(script![text("a").gate("g"), text("b")]);
    let tab = world.connect("S1");
    submit(&world, "A");
    submit(&world, "B");
    world.run();
    let dropped = tab.send("C");
    world.run();
    assert_eq!(tab.terminals(&dropped)[0]["outcome"], "skipped");
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: B", "assistant: b"]);
    assert_idle(&world);
}

// T27, recovery 4.4: nobody is connected, the alarm alone brings it back
#[test]
fn a_submission_outlives_the_object() {
    for recovers in [true, false] {
        let world = World::new(if recovers { Custom::new() } else { Custom::ending() }).model(script![text("a").gate("never")]);
        if recovers {
            world.answer(text("again"));
        }
        world.answer(text("b"));
        world.answer(text("c"));
        submit(&world, "A");
        submit(&world, "B");
        submit(&world, "C");
        world.run();
        world.restart(Sockets::Closed);
        assert!(world.alarm_at().is_some());
        world.run_for(limits::HEARTBEAT_MS);
        world.run();
        let failed: Vec<Value> = world.events_named("submission:error").iter().map(|event| json!(event.fields)).collect();
        if recovers {
            assert_eq!(standing(&world), ["A completed", "B completed", "C completed"]);
            assert_eq!(world.said(), ["user: A", "assistant: again", "user: B", "assistant: b", "user: C", "assistant: c"]);
            assert_eq!(failed, Vec::<Value>::new());
        } else {
            assert_eq!(standing(&world), ["A error: interrupted", "B completed", "C completed"]);
            assert_eq!(world.said(), ["user: A", "user: B", "assistant: b", "user: C", "assistant: c"]);
            assert_eq!(failed, [json!({ "submissionId": "A", "messagesApplied": true })]);
        }
        assert_idle(&world);
    }
}

// recovery 102, 104: every crash point of one script
#[test]
fn dying_at_any_step_neither_loses_nor_doubles_a_submission() {
    let begin = || {
        let world = World::new(Custom::new()).model_fn(|_| text("one ").text("two ").text("three"));
        submit(&world, "A");
        submit(&world, "B");
        world
    };
    let quiet = begin();
    let steps = std::iter::from_fn(|| quiet.step().then_some(())).count();
    assert!(steps > 5 && standing(&quiet) == ["A completed", "B completed"], "{steps}");
    for n in 0..=steps {
        let world = begin();
        for _ in 0..n {
            world.step();
        }
        let complete = standing(&world).iter().filter(|line| line.ends_with("completed")).count();
        world.restart(Sockets::Closed);
        world.run_for(limits::HEARTBEAT_MS);
        world.run();
        let said = world.said();
        let questions: Vec<&String> = said.iter().filter(|line| line.starts_with("user")).collect();
        assert_eq!(questions, ["user: A", "user: B"], "death at step {n}");
        let ended = standing(&world);
        assert!(ended.iter().all(|line| line.ends_with("completed") || line.ends_with("error: interrupted")), "{ended:?}");
        assert!(ended.iter().filter(|line| line.ends_with("completed")).count() >= complete, "death at step {n}: {ended:?}");
        assert_idle(&world);
    }
}

// recovery 102, 103: every statement of one script fails once, and whoever got an error asks again
#[test]
fn a_failed_write_neither_loses_nor_doubles_a_submission() {
    let mut refused = 0;
    for n in 1.. {
        let world = World::new(Custom::new()).model_fn(|_| text("x"));
        submit(&world, "A");
        world.db().fail(FaultAt::Statement(n), "disk I/O error: SQLITE_IOERR");
        let keyed = || SubmitOptions { idempotency_key: Some("key".into()), ..named("B") };
        if try_submit(&world, "B", keyed()).is_err() {
            refused += 1;
            try_submit(&world, "B", keyed()).unwrap();
        }
        world.run();
        if world.db().pending_faults() > 0 {
            assert!(n > 30 && refused > 3, "{n} statements, {refused} refused");
            break;
        }
        let ended = standing(&world);
        let bad = |line: &&String| !line.ends_with("completed") && !line.ends_with("error: interrupted");
        assert_eq!((ended.len(), ended.iter().find(bad)), (2, None), "statement {n}: {ended:?}");
        let asked: Vec<String> = world.said().into_iter().filter(|line| line.starts_with("user")).collect();
        assert_eq!(asked, ["user: A", "user: B"], "statement {n}");
        assert_idle(&world);
    }
}

// T28
#[test]
fn who_waits_is_answered_after_the_hook() {
    let (gates, kept) = (Gates::new(), Kept::default());
    let (wait, of_hook, of_tool) = (gates.clone(), kept.clone(), kept.clone());
    let refusals: Rc<RefCell<Vec<String>>> = Rc::default();
    let heard = refusals.clone();
    let agent = Custom::new()
        .on_status(move |submission| {
            let (gates, handle, heard) = (wait.clone(), of_hook.borrow().clone().unwrap(), heard.clone());
            async move {
                if submission.status.is_final() {
                    let refused = handle.wait_for_submission(&submission.submission_id).await.unwrap_err();
                    heard.borrow_mut().push(refused.message().into());
                    gates.wait("hook").await;
                }
            }
        })
        .tool("wait", move |_, _| {
            let handle = of_tool.borrow().clone().unwrap();
            async move {
                handle.wait_for_submission("A").await?;
                Ok(Value::Null)
            }
        });
    let seen = agent.seen.clone();
    let world = World::new(agent).with_gates(&gates).model(script![call("wait", json!({})), text("done")]);
    *kept.borrow_mut() = Some(world.handle());
    assert_eq!(ask(&world, |h| async move { h.wait_for_submission("A").await }).unwrap(), None);
    submit(&world, "A");
    world.run();
    // It has ended by now, and the hook is at its gate: who asks so late waits for the hook all the same.
    assert_eq!(standing(&world), ["A completed"]);
    let (handle, line) = (world.handle(), seen.clone());
    let late = async move {
        let ended = handle.wait_for_submission("A").await.unwrap().unwrap();
        line.add(format!("submission waited {}", ended.status.as_str()));
    };
    let opened = gates.clone();
    world.block_on(async move { futures_util::future::join(late, async move { opened.open("hook") }).await });
    assert_eq!(told(&seen), ["A pending", "A running", "A completed", "waited completed"]);
    let part = &world.get_messages()[1]["parts"][1];
    assert!(part["errorText"].as_str().unwrap().contains("turn admission (waitForSubmission) refused"), "{part}");
    assert!(refusals.borrow()[0].contains("inside on_submission_status"), "{refusals:?}");
    kept.borrow_mut().take();
    assert_idle(&world);
}

// T28: who waits learns of a restart, and asks again
#[test]
fn waiting_ends_with_the_incarnation() {
    let world = World::new(Custom::new()).model(script![text("a").gate("g"), text("b")]);
    submit(&world, "A");
    let (heard, handle) = (Rc::new(RefCell::new(None)), world.handle());
    let slot = heard.clone();
    let waiting = async move { *slot.borrow_mut() = Some(handle.wait_for_submission("A").await) };
    // A step that fails is a small death: rows are read anew, and whoever waited is told.
    world.db().fail(FaultAt::Matching("INSERT INTO wk_submission".into()), "database or disk is full: SQLITE_FULL");
    let other = world.handle();
    world.block_on(async move {
        let second = async move { other.submit_messages(vec![UiMessage::user("b", "B")], named("B")).await };
        let (_, refused) = futures_util::future::join(waiting, second).await;
        assert!(refused.unwrap_err().message().contains("SQLITE_FULL"));
    });
    assert!(heard.borrow_mut().take().unwrap().is_err());
    world.run();
    assert_eq!((standing(&world), world.said()), (vec!["A completed".into()], vec!["user: A".into(), "assistant: b".into()]));
    assert_idle(&world);
}

// T28: a hook that takes too long delays nobody beyond its deadline, and no other status overtakes it
#[test]
fn the_status_hook_has_a_deadline_and_keeps_the_order() {
    let agent = Custom::new().on_status(|submission| async move {
        if submission.status == SubmissionStatus::Pending {
            std::future::pending::<()>().await;
        }
    });
    let seen = agent.seen.clone();
    let world = World::new(agent).model(script![text("a")]);
    let began = world.clock().now();
    submit(&world, "A");
    let ended = ask(&world, |h| async move { h.wait_for_submission("A").await }).unwrap().unwrap();
    assert_eq!((ended.status, world.clock().now() - began), (SubmissionStatus::Completed, i64::from(limits::HOOK_MS)));
    assert_eq!(told(&seen), ["A running", "A completed"], "the first was cut off");
    assert_eq!(world.events_named("hook:timeout")[0].fields["hook"], "on_submission_status");
    assert_idle(&world);
}

// T29
#[test]
fn lists_are_clamped_filtered_and_newest_first() {
    let world = World::new(Custom::new()).model_fn(|_| text("x"));
    for n in 0..102 {
        submit(&world, &n.to_string());
    }
    world.run();
    cancel(&world, "101");
    let ids = |status: Vec<SubmissionStatus>, limit: Option<u32>| -> Vec<u32> {
        let list = ask(&world, move |h| async move { h.list_submissions(ListOptions { status, limit }).await }).unwrap();
        list.iter().map(|s| s.submission_id.parse().unwrap()).collect()
    };
    assert_eq!(ids(vec![], Some(0)), [101]);
    assert_eq!(ids(vec![], Some(3)), [101, 100, 99]);
    assert_eq!((ids(vec![], Some(1000)).len(), ids(vec![], None).len()), (100, 50));
    assert_eq!(ids(vec![SubmissionStatus::Pending, SubmissionStatus::Running], None), Vec::<u32>::new());
    assert_eq!(ids(vec![SubmissionStatus::Completed, SubmissionStatus::Error], Some(2)), [101, 100]);
    assert_idle(&world);
}

// T30
#[test]
fn only_what_has_ended_can_be_deleted() {
    let world = World::new(Custom::new()).model(script![text("a"), text("b"), text("c").gate("g"), text("d")]);
    for question in ["A", "B", "C", "D"] {
        submit(&world, question);
        world.clock().advance(10);
    }
    world.run();
    let delete = |id: &'static str| ask(&world, move |h| async move { h.delete_submission(id).await }).unwrap();
    assert_eq!([delete("C"), delete("D"), delete("X"), delete("A"), delete("A")], [false, false, false, true, false]);
    assert_eq!(standing(&world), ["B completed", "C running", "D pending"]);
    world.open_gate("g");
    world.run();
    assert_eq!(world.said().len(), 8, "the conversation stays");
    let delete_many = |options: DeleteOptions| ask(&world, |h| async move { h.delete_submissions(options).await }).unwrap();
    assert_eq!(delete_many(DeleteOptions { status: vec![SubmissionStatus::Aborted], ..DeleteOptions::default() }), 0);
    assert_eq!(delete_many(DeleteOptions { completed_before: Some(Millis(0)), ..DeleteOptions::default() }), 0);
    assert_eq!(delete_many(DeleteOptions { limit: Some(0), ..DeleteOptions::default() }), 1, "the limit is at least one");
    assert_eq!(standing(&world), ["C completed", "D completed"], "the oldest goes first");
    let now = world.clock().now();
    assert_eq!(delete_many(DeleteOptions { completed_before: Some(now + 1), ..DeleteOptions::default() }), 2);
    assert_eq!(rows(&world, "wk_submission"), 0);
    assert_idle(&world);
}

// T08, tools §2.2
#[test]
fn a_tool_submits_what_is_answered_after_its_own_turn() {
    let agent = Custom::new().tool("later", |_, scope| async move {
        let submitted = scope.submit_messages(vec![UiMessage::user("r", "remind me")], named("R")).await?;
        let again = scope.inspect_submission("R").await?;
        Ok(json!([submitted.accepted, again]))
    });
    let world = World::new(agent).model(script![call("later", json!({})), text("I will."), text("Reminded.")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    assert_eq!(world.said(), ["user: hi", "assistant: [later output-available] I will.", "user: remind me", "assistant: Reminded."]);
    let output = &world.get_messages()[1]["parts"][1]["output"];
    assert_eq!((&output[0], &output[1]["status"]), (&json!(true), &json!("pending")));
    assert_eq!(tab.said(), world.said());
    assert_eq!(world.provider_requests()[2].last_user(), "remind me");
    assert_idle(&world);
}

// turns-and-tools §3.5
#[test]
fn a_clear_skips_what_waits_and_what_runs() {
    let agent = Custom::new();
    let seen = agent.seen.clone();
    let world = World::new(agent).model(script![text("done"), text("half").gate("never"), text("new")]);
    let tab = world.connect("S1");
    submit(&world, "A");
    world.run();
    submit(&world, "B");
    submit(&world, "C");
    world.run();
    let handle = world.handle();
    let (waiting, clearing) = (handle.clone(), handle);
    let ended = world.block_on(async move {
        let wait = async move { waiting.wait_for_submission("C").await.unwrap().unwrap() };
        futures_util::future::join(wait, async move { clearing.clear_messages().await.unwrap() }).await.0
    });
    let reset = "skipped: the conversation was reset";
    assert_eq!((ended.status, ended.error.as_deref()), (SubmissionStatus::Skipped, Some(reset)));
    world.run();
    assert_eq!(standing(&world), ["A completed".to_owned(), format!("B skipped: {reset}"), format!("C skipped: {reset}")]);
    assert_eq!(told(&seen)[6..], ["B skipped", "C skipped"]);
    assert_eq!((world.said(), tab.said()), (vec![], vec![]));
    submit(&world, "D");
    world.run();
    assert_eq!(world.said(), ["user: D", "assistant: new"]);
    assert_idle(&world);
}

// wire §2.13: the ordinary ways to stop a request stop a submission too
#[test]
fn a_submission_is_stopped_as_any_request_is() {
    let world = World::new(Custom::new()).model(script![text("half").gate("never"), text("c").gate("never")]);
    let tab = world.connect("S1");
    ["A", "B", "C", "D"].iter().for_each(|question| drop(submit(&world, question)));
    world.run();
    tab.cancel("B");
    tab.cancel("A");
    world.run();
    assert_eq!(standing(&world), ["A aborted", "B aborted", "C running", "D pending"]);
    ask(&world, |h| async move { h.abort_all_requests().await }).unwrap();
    world.run();
    assert_eq!(standing(&world), ["A aborted", "B aborted", "C aborted", "D aborted"]);
    assert_eq!(world.said(), ["user: A", "assistant: half", "user: C", "assistant: c"]);
    assert_idle(&world);
}

// decision 30, recovery 41
#[test]
fn a_submission_whose_turn_parks_is_completed_and_its_answer_goes_on_later() {
    for dies in [false, true] {
        let agent = Custom::new();
        let seen = agent.seen.clone();
        let world = World::new(agent).model(script![text("hello"), call("look", json!({})), text("Oslo.")]);
        let tab = page(&world, "S1");
        tab.send("hi");
        world.run();
        submit(&world, "A");
        world.run();
        assert_eq!(standing(&world), ["A completed"]);
        assert_parked(&world);
        if dies {
            world.restart(Sockets::Closed);
            world.reconnect(&tab);
        }
        tab.tool_result(&tab.open_calls()[0], json!("Oslo"));
        world.run();
        assert_eq!(world.said()[2..], ["user: A", "assistant: [look output-available] Oslo."]);
        assert_eq!(told(&seen), ["A pending", "A running", "A completed"], "a later leg is no news");
        assert_idle(&world);
    }
}

#[test]
fn a_failed_turn_is_a_failed_submission() {
    let world = World::new(Custom::new()).model(script![http_error(401, "bad key"), text("b")]);
    submit(&world, "A");
    submit(&world, "B");
    let ended = ask(&world, |h| async move { h.wait_for_submission("A").await }).unwrap().unwrap();
    world.run();
    assert_eq!((ended.status, ended.message_id), (SubmissionStatus::Error, None));
    assert!(!ended.error.unwrap().is_empty());
    assert_eq!(world.said(), ["user: A", "user: B", "assistant: b"]);
    assert_idle(&world);
}

// all or none
#[test]
fn a_submission_whose_messages_came_another_way_meanwhile_adds_none() {
    let world = World::new(Custom::new()).model(script![text("a").gate("g"), text("c")]);
    submit(&world, "A");
    let two = vec![UiMessage::user("new", "new"), UiMessage::user("same", "same")];
    ask(&world, |h| async move { h.submit_messages(two, named("B")).await }).unwrap();
    submit(&world, "C");
    ask(&world, |h| async move { h.add_messages(vec![UiMessage::user("same", "same")]).await }).unwrap();
    world.open_gate("g");
    world.run();
    let taken = "B error: a message with the id same is stored already: use add_messages to change it";
    assert_eq!(standing(&world), ["A completed", taken, "C completed"]);
    assert_eq!(world.said(), ["user: A", "assistant: a", "user: same", "user: C", "assistant: c"]);
    assert_eq!(json!(world.events_named("submission:error")[0].fields), json!({ "submissionId": "B", "messagesApplied": false }));
    assert_idle(&world);
}

// T109: a chain of hooks is cut whichever way it starts its turns
#[test]
fn response_hooks_cannot_submit_for_ever() {
    let refusals: Rc<RefCell<Vec<String>>> = Rc::default();
    let heard = refusals.clone();
    let agent = Custom::new().on_response(move |handle, response| {
        let heard = heard.clone();
        async move {
            let next = vec![UiMessage::user(format!("after {}", response.request_id), "go on")];
            if let Err(refused) = handle.submit_messages(next, SubmitOptions::default()).await {
                heard.borrow_mut().push(refused.message().into());
            }
        }
    });
    let world = World::new(agent).model_fn(|_| text("x"));
    world.connect("S1").send("hi");
    world.run();
    assert_eq!(world.provider_requests().len(), 1 + limits::HOOK_CHAIN as usize);
    assert!(refusals.borrow()[0].contains("limits::HOOK_CHAIN"), "{refusals:?}");
    assert_idle(&world);
}

// decision 50, decision 42
#[test]
fn clients_submit_by_built_in_methods() {
    let agent = Custom::new().config(|c| c.callables = BuiltIns { submissions: true });
    let world = World::new(agent).model(script![text("a").gate("g"), text("b")]);
    let (socket, guest) = (world.socket("S1"), world.dial(Dial::new("G").raw().query("readonly")));
    let rpc = |client: &Client, method: &str, args: Value| -> Value {
        let id = client.rpc(method, args);
        world.run();
        let reply = client.replies(&id).pop().unwrap();
        if reply["success"] == true { reply["result"].clone() } else { reply["error"].clone() }
    };
    let at = world.clock().now();
    let message = |id: &str| json!([{ "id": id, "role": "user", "parts": [{ "type": "text", "text": id }] }]);
    let options = json!({ "submissionId": "A", "idempotencyKey": "k", "metadata": { "n": 1 } });
    let accepted = json!({
        "accepted": true, "submissionId": "A", "idempotencyKey": "k", "requestId": "A", "status": "pending", "metadata": { "n": 1 }, "createdAt": at.0
    });
    assert_eq!(rpc(&socket, "submitMessages", json!([message("a"), options])), accepted);
    let running = rpc(&socket, "submitMessages", json!([[], { "idempotencyKey": "k" }]));
    assert_eq!((&running["accepted"], &running["status"], &running["startedAt"]), (&json!(false), &json!("running"), &json!(at.0)));
    let second = rpc(&socket, "submitMessages", json!([message("b")]))["submissionId"].clone();
    let inspected = rpc(&guest, "inspectSubmission", json!([second]));
    assert_eq!(inspected, json!({ "submissionId": second, "requestId": second, "status": "pending", "createdAt": at.0 }));
    assert_eq!(rpc(&guest, "inspectSubmission", json!(["X"])), Value::Null);
    assert_eq!(rpc(&guest, "listSubmissions", json!([{ "status": "pending" }])), json!([inspected]));
    assert_eq!(rpc(&guest, "listSubmissions", json!([{ "status": ["pending", "running"], "limit": 1 }])), json!([inspected]));
    assert_eq!(rpc(&guest, "listSubmissions", json!([])).as_array().map(Vec::len), Some(2));
    assert_eq!(rpc(&guest, "submitMessages", json!([message("c")])), "Connection is readonly");
    assert_eq!(rpc(&guest, "cancelSubmission", json!([second])), "Connection is readonly");
    let cancelled = rpc(&socket, "cancelSubmission", json!([second, "no need"]));
    let after = json!({ "submissionId": second, "requestId": second, "status": "aborted", "error": "no need", "createdAt": at.0, "completedAt": at.0 });
    assert_eq!(
        cancelled,
        json!({ "outcome": "cancelled", "previousStatus": "pending", "messagesApplied": false, "submission": after })
    );
    assert_eq!(rpc(&socket, "cancelSubmission", json!(["X"])), json!({ "outcome": "not_found", "messagesApplied": false }));
    world.open_gate("g");
    world.run();
    assert_eq!(world.said(), ["user: a", "assistant: a"]);
    assert_idle(&world);
}

// decision 50
#[test]
fn built_in_methods_are_off_by_default_and_give_way_to_the_application() {
    let own = Callables::new().with("submitMessages", |_| async { Ok(Some(json!("mine"))) });
    let off = "Method inspectSubmission is not callable";
    for (on, expected) in [(false, json!(off)), (true, Value::Null)] {
        let world = World::new(Custom::new().callables(own.clone()).config(|c| c.callables = BuiltIns { submissions: on }));
        let socket = world.socket("S1");
        let (mine, other) = (socket.rpc("submitMessages", json!([])), socket.rpc("inspectSubmission", json!(["X"])));
        world.run();
        assert_eq!(socket.replies(&mine)[0]["result"], "mine");
        let reply = &socket.replies(&other)[0];
        assert_eq!(if on { &reply["result"] } else { &reply["error"] }, &expected);
    }
}

#[test]
fn what_cannot_be_submitted_is_refused_and_leaves_nothing() {
    let world = World::new(Custom::new().config(|c| c.callables = BuiltIns { submissions: true })).model(script![text("a").gate("g")]);
    let socket = world.socket("S1");
    let running = socket.send("hi");
    world.run();
    let deep = (0..limits::VALUE_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    let (ok, id) = (json!([{ "role": "user", "parts": [] }]), "x".repeat(limits::ID + 1));
    let known = world.get_messages()[0]["id"].clone();
    let before = world.db().snapshot();
    for (args, reason) in [
        (json!([]), "needs an array of messages"),
        (json!(["text"]), "needs an array of messages"),
        (json!([[]]), "submitMessages requires at least one message"),
        (json!([["text"]]), "not a UI message"),
        (json!([[null, 7]]), "not a UI message"),
        (json!([[{ "id": "m", "role": "robot", "parts": [] }]]), "`role` is not"),
        (json!([[{ "id": "m", "role": "user", "parts": [{ "type": "data-x", "data": deep }] }]]), "limits::VALUE_DEPTH"),
        (json!([[{ "id": known, "role": "user", "parts": [] }]]), "is stored already"),
        (json!([[{ "id": "m", "role": "user", "parts": [] }, { "id": "m", "role": "user", "parts": [] }]]), "given twice"),
        (
            json!([[{ "id": "m", "role": "user", "parts": [{ "type": "text", "text": "x".repeat(limits::ROW_MAX) }] }]]),
            "limits::ROW_MAX",
        ),
        (json!([ok, "options"]), "the options are not an object"),
        (json!([ok, { "submissionId": 7 }]), "`submissionId` is not a string"),
        (json!([ok, { "submissionId": "" }]), "submissionId must have 1 to 256 bytes"),
        (json!([ok, { "idempotencyKey": id }]), "idempotencyKey must have 1 to 256 bytes"),
        (json!([ok, { "submissionId": running }]), "is running or waiting"),
        (json!([ok, { "metadata": "x".repeat(limits::SUBMISSION_METADATA) }]), "the metadata has 16386 bytes, limit 16384"),
    ] {
        let id = socket.rpc("submitMessages", args.clone());
        world.run();
        let reply = socket.replies(&id).pop().unwrap_or_default();
        let error = reply["error"].as_str().unwrap_or_default();
        assert!(error.contains(reason), "{reason}: {reply}");
    }
    for (method, args) in [
        ("listSubmissions", json!([{ "status": "lost" }])),
        ("listSubmissions", json!([{ "limit": "many" }])),
        ("inspectSubmission", json!([7])),
        ("cancelSubmission", json!(["A", 7])),
    ] {
        let id = socket.rpc(method, args);
        world.run();
        assert_eq!(socket.replies(&id)[0]["success"], false, "{method}");
    }
    assert_eq!(before.difference(&world.db().snapshot()), Vec::<String>::new());
    world.open_gate("g");
    world.run();
    assert_idle(&world);
}

// a flood: what waits is bounded, and boot reads ids only
#[test]
fn ten_thousand_submissions_do_not_wait() {
    let world = World::new(Custom::new()).model(script![text("a").gate("g")]);
    submit(&world, "first");
    world.run();
    let handle = world.handle();
    let refused: Vec<String> = world.block_on(async move {
        let mut refused = Vec::new();
        for n in 0..10_000 {
            let message = UiMessage::user(format!("m{n}"), "x".repeat(100));
            if let Err(error) = handle.submit_messages(vec![message], SubmitOptions::default()).await {
                refused.push(error.message().to_owned());
            }
        }
        refused
    });
    assert_eq!(refused.len(), 10_000 - limits::PENDING_SUBMISSIONS);
    assert_eq!(refused[0], "1000 submissions are waiting already (limits::PENDING_SUBMISSIONS): let them be answered first");
    world.restart(Sockets::Closed);
    ask(&world, |h| async move { h.abort_all_requests().await }).unwrap();
    world.run();
    // Also the first, which would go on otherwise.
    assert_eq!(rows(&world, "wk_submission WHERE status = 'aborted'"), limits::PENDING_SUBMISSIONS as u64 + 1);
    assert_eq!(rows(&world, "wk_submission WHERE messages IS NOT NULL"), 0);
    assert_idle(&world);
}
