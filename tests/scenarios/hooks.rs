//! The hooks of a turn: in order, with their failures and deadlines, and what each may change (`turns-and-tools.md` §16, §17).

use std::{borrow::Cow, cell::RefCell, rc::Rc};

use serde_json::{Value, json};
use wakeful::{
    model::{Msg, UserPart},
    prelude::*,
    testkit::{Reply, Status, World, call, calls, http_error, script, text},
};

use crate::{assert_idle, assert_parked, custom::tool, page_tools::parts};

type Changes<I, O> = Rc<dyn Fn(&I) -> Result<O>>;
type Mends = Rc<dyn Fn(&ToolCall) -> Option<Value>>;

/// What the hooks saw, and what they do, one closure each.
#[derive(Clone)]
struct Hooked {
    seen: Rc<RefCell<Vec<String>>>,
    turn: Changes<Turn, TurnPlan>,
    may: Changes<Turn, ()>,
    step: Changes<Step, StepPlan>,
    call: Changes<ToolCall, ToolDecision>,
    repair: Mends,
    class: Option<ErrorClass>,
    hangs: &'static str,
}

impl Hooked {
    fn new() -> Self {
        Self {
            seen: Rc::default(),
            turn: Rc::new(|_| Ok(TurnPlan::default())),
            may: Rc::new(|_| Ok(())),
            step: Rc::new(|_| Ok(StepPlan::default())),
            call: Rc::new(|_| Ok(ToolDecision::Allow { input: None })),
            repair: Rc::new(|_| None),
            class: None,
            hangs: "",
        }
    }

    fn note(&self, line: impl Into<String>) {
        self.seen.borrow_mut().push(line.into());
    }

    async fn at(&self, hook: &str) {
        if self.hangs == hook {
            std::future::pending::<()>().await;
        }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.take()
    }
}

impl Agent for Hooked {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn instructions(&self, _: &Turn) -> Cow<'static, str> {
        "Be brief.".into()
    }

    fn tools(&self, _: &Turn) -> Tools {
        let this = self.clone();
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let work = Tool::dynamic("work", "Works.", schema, move |input, _| {
            this.note(format!("work {}", input["n"]));
            async move { if input["n"] == 13 { Err(ToolError::from("unlucky")) } else { Ok(json!({ "done": input["n"] })) } }
        });
        Tools::new().with(work).with(tool("other", |_, _| async { Ok(json!("fine")) }))
    }

    async fn before_turn(&self, turn: &Turn) -> Result<TurnPlan> {
        self.note(format!("before_turn {}", turn.trigger));
        self.at("before_turn").await;
        (self.turn)(turn)
    }

    async fn authorize_turn(&self, turn: &Turn) -> Decision {
        self.note("authorize_turn");
        self.at("authorize_turn").await;
        match (self.may)(turn) {
            Ok(()) => Decision::Allow,
            Err(error) => Decision::Deny(error.message().to_owned()),
        }
    }

    async fn before_step(&self, step: &Step) -> Result<StepPlan> {
        self.note(format!("before_step {} after {}", step.step, step.previous.len()));
        self.at("before_step").await;
        (self.step)(step)
    }

    async fn repair_tool_call(&self, call: &ToolCall, error: &str) -> Option<Value> {
        self.note(format!("repair {} {error}", call.input));
        self.at("repair_tool_call").await;
        (self.repair)(call)
    }

    async fn before_tool_call(&self, call: &ToolCall) -> Result<ToolDecision> {
        self.note(format!("before_tool_call {} {}", call.tool_name, call.input));
        self.at("before_tool_call").await;
        (self.call)(call)
    }

    async fn after_tool_call(&self, call: &ToolCall, outcome: &ToolOutcome, _: i64) {
        self.note(format!("after_tool_call {} {outcome:?}", call.tool_name));
        self.at("after_tool_call").await;
    }

    async fn on_step_finish(&self, _: &Turn, step: &StepResult) {
        let tools: Vec<&str> = step.tools().collect();
        self.note(format!("on_step_finish {} {:?} {tools:?} {:?}", step.step, step.finish_reason, step.text()));
        self.at("on_step_finish").await;
    }

    async fn on_chat_response(&self, _: &AgentHandle, response: &ChatResponse) {
        self.note(format!("on_chat_response {}", response.status.as_str()));
    }

    fn classify_chat_error(&self, error: &ModelError, _: &ChatErrorContext) -> Option<ErrorClass> {
        self.note(format!("classify {:?}", error.judgement()));
        self.class
    }

    fn on_chat_error(&self, error: &ModelError, context: &ChatErrorContext) -> String {
        self.note(format!("on_chat_error {} {:?} {}", context.stage.as_str(), context.classification, context.messages_persisted));
        format!("Sorry: {}", error.message)
    }
}

fn ask(agent: Hooked, replies: impl IntoIterator<Item = Reply>) -> (World<Hooked>, Status) {
    let world = World::new(agent).model(replies.into_iter().collect::<Vec<_>>());
    let tab = world.connect("S1");
    tab.send("Go.");
    world.run();
    (world, tab.status())
}

fn work(n: u32) -> Reply {
    call("work", json!({ "n": n }))
}

// turns-and-tools.md §16.1, T41, T46
#[test]
fn hooks_run_in_order() {
    let agent = Hooked::new();
    let log = agent.clone();
    let (world, status) =
        ask(agent, [text("First. ").call("work", json!({ "n": 1 })).call("work", json!({ "n": 13 })), text("Done.")]);
    assert_eq!(status, Status::Ready);
    assert_eq!(
        log.seen(),
        [
            "before_turn ws-chat",
            "authorize_turn",
            "before_step 1 after 0",
            "before_tool_call work {\"n\":1}",
            "work 1",
            "after_tool_call work Output(Object {\"done\": Number(1)})",
            "before_tool_call work {\"n\":13}",
            "work 13",
            "after_tool_call work Error(\"unlucky\")",
            "on_step_finish 1 ToolCalls [\"work\", \"work\"] \"First. \"",
            "before_step 2 after 1",
            "on_step_finish 2 Stop [] \"Done.\"",
            "on_chat_response completed",
        ]
    );
    assert_idle(&world);
}

// T52: block, substitute, throw, replace the input; §16.2: blocked and substituted are results, not errors
#[test]
fn a_hook_decides_about_each_call() {
    let table: [(Changes<ToolCall, ToolDecision>, Value, bool); 5] = [
        (Rc::new(|_| Ok(ToolDecision::Block { reason: None })), json!("tool work was blocked by a policy hook"), false),
        (Rc::new(|_| Ok(ToolDecision::Block { reason: Some("not on Mondays".into()) })), json!("not on Mondays"), false),
        (Rc::new(|_| Ok(ToolDecision::Substitute { output: json!([1, 2]) })), json!([1, 2]), false),
        (Rc::new(|_| Ok(ToolDecision::Allow { input: Some(json!({ "n": "any" })) })), json!({ "done": "any" }), true),
        (Rc::new(|_| Err(Error::application("the rules are gone"))), Value::Null, false),
    ];
    for (decide, output, runs) in table {
        let agent = Hooked { call: decide, ..Hooked::new() };
        let log = agent.clone();
        let (world, _) = ask(agent, [work(1), text("Done.")]);
        let part = &parts(&world, 1)[1];
        if output.is_null() {
            assert_eq!((&part["state"], &part["errorText"]), (&json!("output-error"), &json!("the rules are gone")));
        } else {
            assert_eq!((&part["state"], &part["output"]), (&json!("output-available"), &output));
        }
        let seen = log.seen();
        assert_eq!(seen.iter().any(|line| line.starts_with("work ")), runs);
        assert_eq!(seen.iter().filter(|line| line.starts_with("after_tool_call")).count(), 1);
        assert_eq!(world.provider_requests().len(), 2, "the turn goes on");
        assert_idle(&world);
    }
}

// T50, §17: a step may have another model, other words, other tools
#[test]
fn a_hook_changes_one_step() {
    let agent = Hooked {
        step: Rc::new(|step| {
            Ok(match step.step {
                1 => StepPlan { tool_choice: Some(wakeful::model::ToolChoice::Named("work".into())), ..StepPlan::default() },
                2 => StepPlan {
                    model: Some(ModelRef::from("openai-compatible/second").base_url("https://model.test/v1").api_key("key")),
                    instructions: Some("Be long.".into()),
                    active_tools: Some(vec!["other".into()]),
                    ..StepPlan::default()
                },
                _ => StepPlan { messages: Some(vec![Msg::User(vec![UserPart::Text("Only this.".into())])]), ..StepPlan::default() },
            })
        }),
        ..Hooked::new()
    };
    // In the second step the model calls a tool it was not offered.
    let (world, _) = ask(agent, [work(1), work(2), text("Done.")]);
    let asked = world.provider_requests();
    let about = |n: usize| (asked[n].body["model"].as_str().unwrap().to_owned(), asked[n].tools().join(","));
    assert_eq!(
        [about(0), about(1), about(2)],
        [("scripted", "work,other"), ("second", "other"), ("scripted", "work,other")].map(|(m, t)| (m.to_owned(), t.to_owned()))
    );
    assert_eq!(asked[0].body["tool_choice"]["function"]["name"], "work");
    assert_eq!(asked[1].body.get("tool_choice"), None, "forced in the first step only");
    assert_eq!(asked[1].messages()[0]["content"], "Be long.");
    assert_eq!(asked[2].texts(), ["Be brief.", "Only this."]);
    let refused = parts(&world, 1)[3].clone();
    assert_eq!(refused["errorText"], "there is no tool `work`; available: other");
    assert_eq!(world.said().len(), 2);
    assert_idle(&world);
}

// T51
#[test]
fn no_active_tools_is_no_tools() {
    let agent = Hooked { turn: Rc::new(|_| Ok(TurnPlan { active_tools: Some(Vec::new()), ..TurnPlan::default() })), ..Hooked::new() };
    let (world, _) = ask(agent, [work(1), text("Well.")]);
    assert!(world.provider_requests()[0].tools().is_empty());
    let part = &parts(&world, 1)[1];
    assert_eq!((&part["type"], &part["state"]), (&json!("dynamic-tool"), &json!("output-error")));
    assert_eq!(world.provider_requests().len(), 2);
    assert_idle(&world);
}

// §17: tools can be narrowed on continuations alone
#[test]
fn a_continuation_may_have_fewer_tools() {
    let agent = Hooked {
        turn: Rc::new(|turn| {
            let active_tools = turn.continuation.then(|| vec!["other".to_owned()]);
            Ok(TurnPlan { active_tools, ..TurnPlan::default() })
        }),
        ..Hooked::new()
    };
    let world = World::new(agent).model(script![call("look", json!({})), text("Done.")]);
    let tab = world.connect("S1");
    tab.set_body(json!({ "clientTools": [{ "name": "look" }] }));
    tab.send("Go.");
    world.run();
    assert_parked(&world);
    tab.tool_result(&tab.open_calls()[0], json!(1));
    world.run();
    let offered: Vec<String> = world.provider_requests().iter().map(|r| r.tools().join(",")).collect();
    assert_eq!(offered, ["work,other,look", "other"]);
    assert_idle(&world);
}

// T53
#[test]
fn a_turn_may_end_with_a_tool() {
    for stops in [true, false] {
        let stop_after = if stops { vec!["work".to_owned()] } else { vec!["other".to_owned()] };
        let agent =
            Hooked { turn: Rc::new(move |_| Ok(TurnPlan { stop_after: stop_after.clone(), ..TurnPlan::default() })), ..Hooked::new() };
        let replies = if stops { vec![work(1)] } else { vec![work(1), text("Done.")] };
        let (world, status) = ask(agent, replies);
        assert_eq!(status, Status::Ready);
        assert_eq!(world.provider_requests().len(), if stops { 1 } else { 2 });
        assert_eq!(parts(&world, 1)[1]["state"], "output-available");
        assert_idle(&world);
    }
}

// T45: an input is mended once; what is still wrong, or not JSON, is refused with the reason
#[test]
fn an_input_that_does_not_fit_may_be_mended() {
    for (given, mended, ran, error) in [
        ("{\"n\":\"7\"}", Some(json!({ "n": 7 })), true, ""),
        ("{\"n\":\"7\"}", Some(json!({ "n": "still" })), false, "/n: expected integer"),
        ("{\"n\":\"7\"}", None, false, "/n: expected integer"),
        ("{\"n\":", Some(json!({ "n": 7 })), true, ""),
        ("{\"n\":", None, false, "JSON"),
    ] {
        let agent = Hooked { repair: Rc::new(move |_| mended.clone()), ..Hooked::new() };
        let log = agent.clone();
        let (world, _) = ask(agent, [Reply::new().call_raw("c1", "work", given), text("Done.")]);
        let seen = log.seen();
        assert_eq!(seen.iter().filter(|line| line.starts_with("repair")).count(), 1, "{given}");
        assert_eq!(seen.contains(&"work 7".to_owned()), ran, "{given} {seen:?}");
        let part = &parts(&world, 1)[1];
        assert_eq!(part["state"], if ran { "output-available" } else { "output-error" });
        assert!(part["errorText"].as_str().unwrap_or_default().contains(error), "{part}");
        assert_eq!(world.provider_requests().len(), 2);
        assert_eq!((world.jobs(), world.alarm_at()), (0, None));
    }
    // A tool that is not there cannot be mended into one.
    let agent = Hooked { repair: Rc::new(|_| Some(json!({ "n": 1 }))), ..Hooked::new() };
    let log = agent.clone();
    let (world, _) = ask(agent, [call("nobody", json!({})), text("Done.")]);
    assert!(!log.seen().iter().any(|line| line.starts_with("repair")));
    assert_eq!(parts(&world, 1)[1]["state"], "output-error");
}

// §6.1 step 8: nothing is asked of the model
#[test]
fn a_turn_may_be_denied() {
    let agent = Hooked { may: Rc::new(|_| Err(Error::refused("the budget is used up"))), ..Hooked::new() };
    let log = agent.clone();
    let (world, status) = ask(agent, []);
    assert_eq!(status, Status::Error("Sorry: the budget is used up".into()));
    assert_eq!(log.seen(), ["before_turn ws-chat", "authorize_turn", "on_chat_error turn Fatal true", "on_chat_response error"]);
    assert_eq!((world.provider_requests().len(), world.said()), (0, vec!["user: Go.".to_owned()]));
    assert_idle(&world);
}

// T111, T18: what clients see of an error is the application's words, wherever it comes up
#[test]
fn errors_are_told_in_the_words_of_the_application() {
    let agent = Hooked::new();
    let log = agent.clone();
    let (world, status) = ask(agent, [http_error(401, json!({ "error": { "message": "bad key" } }))]);
    assert_eq!(status, Status::Error("Sorry: bad key".into()));
    assert!(log.seen().contains(&"on_chat_error stream Fatal true".to_owned()));
    let tab = world.socket("S2");
    tab.frame(json!({ "id": "r1", "init": { "method": "POST", "body": "{" }, "type": "cf_agent_use_chat_request" }));
    world.run();
    assert_eq!(tab.terminals("r1")[0]["body"], "Sorry: the body is not a JSON object");
    assert_eq!(log.seen(), ["on_chat_error parse Fatal false"]);
    world.answer(text("Fine."));
    tab.send("Again.");
    world.run();
    assert_eq!(world.said().last().unwrap(), "assistant: Fine.");
    assert_idle(&world);
}

// classify_chat_error, decision 34: the application knows better which failures pass
#[test]
fn the_application_may_judge_failures() {
    let failing = || http_error(400, json!({ "error": { "message": "odd" } }));
    for (class, model_calls) in [(None, 1), (Some(ErrorClass::Fatal), 1)] {
        let agent = Hooked { class, ..Hooked::new() };
        let (world, status) = ask(agent, [failing()]);
        assert_eq!(status, Status::Error("Sorry: odd".into()));
        assert_eq!(world.provider_requests().len(), model_calls, "{class:?}");
        assert_idle(&world);
    }
    for class in [ErrorClass::Transient, ErrorClass::RateLimit] {
        let agent = Hooked { class: Some(class), ..Hooked::new() };
        let (world, status) = ask(agent, [failing(), failing(), failing(), text("fine")]);
        assert_eq!((status, world.said()), (Status::Ready, vec!["user: Go.".into(), "assistant: fine".into()]), "{class:?}");
        assert_eq!(world.provider_requests().len(), 4, "{class:?}: two quick retries, then it is waited for");
        assert_idle(&world);
    }
    let agent = Hooked { class: Some(ErrorClass::Fatal), ..Hooked::new() };
    let log = agent.clone();
    let (world, _) = ask(agent, [http_error(503, "busy")]);
    assert_eq!(world.provider_requests().len(), 1, "what passes by itself is not tried again either");
    assert!(log.seen().contains(&"on_chat_error stream Fatal true".to_owned()));
}

// §16.2, decision 44: failing and hanging hooks
#[test]
fn a_hook_that_fails_or_hangs_ends_what_it_should_and_nothing_else() {
    let (world, status) = ask(Hooked { step: Rc::new(|_| Err(Error::application("no rules"))), ..Hooked::new() }, []);
    assert_eq!(status, Status::Error("Sorry: no rules".into()));
    assert!(world.provider_requests().is_empty());
    assert_idle(&world);
    for (hook, status, done) in [
        ("before_turn", "before_turn took more than 30000 ms", ""),
        ("authorize_turn", "authorize_turn took more than 10000 ms", ""),
        ("before_step", "before_step took more than 10000 ms", ""),
        ("before_tool_call", "", "output-error"),
        ("after_tool_call", "", "output-available"),
        ("repair_tool_call", "", "output-error"),
        ("on_step_finish", "", "output-available"),
    ] {
        let input = if hook == "repair_tool_call" { json!({ "n": "x" }) } else { json!({ "n": 1 }) };
        let (world, shown) = ask(Hooked { hangs: hook, ..Hooked::new() }, [call("work", input), text("Done.")]);
        match shown {
            Status::Error(text) => assert!(!status.is_empty() && text.contains(status), "{hook}: {text}"),
            shown => assert_eq!((shown, status), (Status::Ready, ""), "{hook}"),
        }
        if done.is_empty() {
            assert!(world.provider_requests().is_empty(), "{hook}");
        } else {
            assert_eq!(parts(&world, 1)[1]["state"], done, "{hook}");
            assert_eq!(world.provider_requests().len(), 2, "{hook}");
        }
        assert_idle(&world);
    }
}

// T44, T42: an empty argument text is `{}`; results stand in the order of the calls
#[test]
fn hooks_leave_the_order_of_results_alone() {
    let (world, _) =
        ask(Hooked::new(), [calls([("other", json!({})), ("work", json!({ "n": 1 })), ("other", json!({ "k": 2 }))]), text("Done.")]);
    let names: Vec<Value> = parts(&world, 1).iter().filter(|p| p["toolCallId"].is_string()).map(|p| p["type"].clone()).collect();
    assert_eq!(names, ["tool-other", "tool-work", "tool-other"]);
    assert_idle(&world);
}
