//! Conversations whose object is going to die: what is said and done in each, and what must be true of it whatever happens.
//!
//! Every decision of the recovery table (recovery §2.9, D1–D24) that exists has a script, and so has what mixes them.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use serde_json::{Value, json};
use wakeful::{
    prelude::*,
    testkit::{Client, Death, ProviderRequest, Reply, World, http_error, reasoning, stall, text, text_deltas},
};

/// What happened outside of the object, whichever of its incarnations did it.
#[derive(Default)]
pub struct Ledger {
    /// The starts of each call: its tool, and the key of each start.
    starts: RefCell<BTreeMap<String, (String, Vec<String>)>>,
    /// The messages whose response hook ran.
    hooks: RefCell<Vec<Value>>,
    /// How often the application was asked about each interrupted turn.
    pub asked: RefCell<BTreeMap<String, u32>>,
    /// Requests that let a batch of answered calls go on.
    pub continuations: RefCell<Vec<String>>,
}

impl Ledger {
    /// How often tools were started, in all.
    pub fn starts(&self) -> usize {
        self.starts.borrow().values().map(|(_, keys)| keys.len()).sum()
    }

    pub fn hook_ran_for(&self, message: &Value) -> bool {
        self.hooks.borrow().contains(message)
    }

    /// I13: a tool that must not run twice did not, another one has its key and its three tries.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (call, (tool, keys)) in &*self.starts.borrow() {
            let most = if matches!(tool.as_str(), "look" | "book") { 3 } else { 1 };
            if keys.len() > most {
                broken.push(format!("I13: {tool} was started {} times for {call}", keys.len()));
            }
            if keys.iter().any(|key| *key != keys[0]) {
                broken.push(format!("I13: {tool} was started with other keys for {call}: {keys:?}"));
            }
        }
        broken
    }
}

/// The agent of every script.
#[derive(Clone)]
pub struct Helper {
    pub ledger: Rc<Ledger>,
    config: Config,
    decision: RecoveryDecision,
    gated: bool,
}

impl Helper {
    fn tool(&self, name: &'static str, ms: u32) -> Tool {
        let (ledger, gated) = (self.ledger.clone(), self.gated);
        Tool::dynamic(name, "Works.", json!({ "type": "object" }), move |_, scope| {
            let key = scope.idempotency_key().to_owned();
            let ledger = ledger.clone();
            let start = move |call: &str| {
                ledger.starts.borrow_mut().entry(call.to_owned()).or_insert_with(|| (name.into(), Vec::new())).1.push(key.clone());
            };
            // A tool reaches the outside by a request, which the output gate holds back while its row is not on disk.
            if !gated {
                start(scope.call_id());
            }
            async move {
                if gated {
                    scope.sleep(1).await;
                    start(scope.call_id());
                }
                if ms > 0 {
                    scope.sleep(ms).await;
                }
                if name == "fatal" { Err(ToolError::Fatal("closed".into())) } else { Ok(json!(format!("{name} done"))) }
            }
        })
    }
}

impl Agent for Helper {
    fn model(&self, _: &Turn) -> ModelRef {
        ModelRef::from("openai-compatible/scripted").base_url("https://model.test/v1").api_key("key")
    }

    fn config(&self) -> Config {
        self.config.clone()
    }

    fn tools(&self, _: &Turn) -> Tools {
        Tools::new()
            .with(self.tool("quick", 0))
            .with(self.tool("slow", 3_000))
            .with(self.tool("look", 1_000).pure())
            .with(self.tool("book", 1_000).keyed())
            .with(self.tool("pay", 0).needs_approval())
            .with(self.tool("haul", 2_000).needs_approval())
            .with(self.tool("fatal", 0))
    }

    async fn before_turn(&self, turn: &Turn) -> Result<TurnPlan> {
        if turn.trigger == "auto-continuation" {
            let mut seen = self.ledger.continuations.borrow_mut();
            if !seen.contains(&turn.request_id) {
                seen.push(turn.request_id.clone());
            }
        }
        Ok(TurnPlan::default())
    }

    async fn on_chat_response(&self, _: &AgentHandle, response: &ChatResponse) {
        if let Some(message) = &response.message {
            self.ledger.hooks.borrow_mut().push(json!(message.id));
        }
    }

    async fn on_chat_recovery(&self, _: &AgentHandle, turn: &RecoveryInfo) -> Result<RecoveryDecision> {
        *self.ledger.asked.borrow_mut().entry(turn.incident_id.clone()).or_default() += 1;
        Ok(self.decision)
    }

    fn callables(&self) -> Callables {
        Callables::new()
            .with("save", |call| async move {
                let result = call.handle.save_messages(vec![UiMessage::user("app", "question")]).await?;
                Ok(Some(json!(result.status.as_str())))
            })
            .with("submit", |call| async move {
                let options = SubmitOptions { submission_id: Some("sub".into()), ..SubmitOptions::default() };
                call.handle.submit_messages(vec![UiMessage::user("sub-m", "question")], options).await?;
                Ok(Some(json!("accepted")))
            })
    }
}

/// A world with two tabs in it.
pub struct Stage {
    pub world: World<Helper>,
    pub one: Client,
    pub two: Client,
    pub ledger: Rc<Ledger>,
}

impl Stage {
    /// The text on the screen of the first tab.
    fn shows(&self, words: &str) -> bool {
        self.one.said().iter().any(|line| line.starts_with("assistant") && line.contains(words))
    }

    /// Whether so many calls wait for the first tab or the person in front of it.
    fn open(&self, n: usize) -> bool {
        waiting(&self.one).len() >= n
    }

    fn answer_all(&self) {
        for call in waiting(&self.one) {
            self.answer(&self.one, &call, true);
        }
    }

    /// Answers as the person in front of a tab would.
    pub fn answer(&self, tab: &Client, call: &str, yes: bool) {
        let messages = tab.messages();
        let part = messages.iter().filter_map(|m| m["parts"].as_array()).flatten().find(|part| part["toolCallId"] == call);
        match part {
            Some(part) if part["state"] == "approval-requested" => tab.approve(call, yes),
            _ => tab.tool_result(call, json!("seen")),
        }
    }
}

/// The calls on a screen that a page runs or a person is asked about; a call of the object's own looks like one until it is.
pub fn waiting(tab: &Client) -> Vec<String> {
    let messages = tab.messages();
    let parts = messages.iter().filter_map(|m| m["parts"].as_array()).flatten();
    let open = parts.filter(|part| match part["state"].as_str() {
        Some("approval-requested") => true,
        Some("input-available") => ["peek", "ask", "hurry"].iter().any(|name| {
            part["toolName"] == *name || part["type"].as_str().is_some_and(|kind| kind.strip_prefix("tool-") == Some(name))
        }),
        _ => false,
    });
    open.filter_map(|part| part["toolCallId"].as_str()).map(str::to_owned).collect()
}

/// What a script's model is asked.
pub struct Asked {
    /// Results of tools since the question.
    results: usize,
    /// Whether it is to go on from words of its own.
    resumes: bool,
    /// How often it was asked before.
    n: usize,
}

impl Asked {
    /// A reply that calls these, under ids that no other reply uses.
    fn calls(&self, reply: Reply, tools: &[&str]) -> Reply {
        let id = |i: usize| format!("c{}-{i}", self.n);
        tools.iter().enumerate().fold(reply, |reply, (i, tool)| reply.call_raw(&id(i), tool, r#"{"place":"Oslo"}"#))
    }
}

/// One thing somebody does, once it is time.
pub struct Cue {
    pub when: fn(&Stage) -> bool,
    pub then: fn(&Stage),
}

/// A conversation.
pub struct Script {
    pub name: &'static str,
    config: fn(&mut Config),
    decision: fn() -> RecoveryDecision,
    /// What is said before, undisturbed.
    before: fn(&Stage),
    pub cues: &'static [Cue],
    /// What the model says to `question`, while none of its steps is repeated.
    reply: fn(&Asked) -> Reply,
    /// Model calls of an undisturbed run.
    pub calls: usize,
    /// Whether what was shown of a long answer must be in the transcript in the end.
    pub keeps_words: bool,
    /// What a person says who is asked for an approval.
    pub allows: bool,
    /// What else must be true in the end.
    pub check: fn(&Stage) -> Vec<String>,
}

const fn at(when: fn(&Stage) -> bool, then: fn(&Stage)) -> Cue {
    Cue { when, then }
}

const ASK: Cue = at(|_| true, |stage| drop(stage.one.send("question")));
const PLAIN: Script = Script {
    name: "",
    config: |_| (),
    decision: RecoveryDecision::default,
    before: |_| (),
    cues: &[ASK],
    reply: |_| text("answer"),
    calls: 1,
    keeps_words: false,
    allows: true,
    check: |_| Vec::new(),
};

/// A reply that begins with tools and ends with words.
fn after(asked: &Asked, steps: usize, tools: &[&str]) -> Reply {
    if asked.results >= steps { text("All done.") } else { asked.calls(text("Let me see."), tools) }
}

fn words(asked: &Asked) -> Reply {
    if asked.resumes { text("and the rest") } else { text_deltas(&["word "; 25]) }
}

fn limited() -> Reply {
    http_error(429, json!({ "error": { "message": "slow down", "type": "rate_limit_error" } })).header("retry-after", "5")
}

fn first_question(stage: &Stage) {
    stage.one.send("before");
    stage.world.run();
}

fn one_continuation(stage: &Stage) -> Vec<String> {
    let seen = stage.ledger.continuations.borrow();
    if stage.world.db().lost_commits() > 0 {
        // One that was lost before anybody knew of it has another id the next time.
        return Vec::new();
    }
    if seen.len() > 1 { vec![format!("I18: one batch was continued {} times: {seen:?}", seen.len())] } else { Vec::new() }
}

fn is_asked(stage: &Stage) -> bool {
    !stage.world.provider_requests().is_empty()
}

fn is_streaming(stage: &Stage) -> bool {
    stage.shows("word")
}

fn has_question(stage: &Stage) -> bool {
    stage.world.db().count("wk_turn") > 0
}

pub const SCRIPTS: &[Script] = &[
    Script { name: "a text (D1, D2)", ..PLAIN },
    Script { name: "a long text (D3)", keeps_words: true, before: first_question, reply: words, calls: 2, ..PLAIN },
    Script {
        name: "thoughts (D3)",
        reply: |asked| {
            if asked.resumes { text("so") } else { reasoning("hm").reasoning(" well").text("so").reasoning("or").text("not") }
        },
        ..PLAIN
    },
    Script { name: "nothing", reply: |_| wakeful::testkit::empty(), ..PLAIN },
    Script { name: "arguments that stream (D4)", reply: |asked| after(asked, 1, &["quick"]).cut_every(90), calls: 2, ..PLAIN },
    Script { name: "a tool that runs (D5)", reply: |asked| after(asked, 1, &["slow"]), calls: 2, ..PLAIN },
    Script { name: "a tool with a key (D5)", reply: |asked| after(asked, 1, &["book"]), calls: 2, ..PLAIN },
    Script { name: "a tool that may be repeated (D5)", reply: |asked| after(asked, 1, &["look"]), calls: 2, ..PLAIN },
    Script { name: "after a tool (D6)", reply: |asked| after(asked, 1, &["quick"]), calls: 2, ..PLAIN },
    Script { name: "three steps (D7)", reply: |asked| after(asked, 3, &["quick"]), calls: 4, ..PLAIN },
    Script {
        name: "tools at once, partly settled (D6)",
        reply: |asked| after(asked, 1, &["quick", "slow", "look"]),
        calls: 2,
        ..PLAIN
    },
    Script { name: "a tool that ends it", reply: |asked| after(asked, 1, &["fatal", "quick"]), calls: 1, ..PLAIN },
    Script {
        name: "a call of the page (D9)",
        cues: &[ASK, at(|stage| stage.open(1), Stage::answer_all)],
        reply: |asked| after(asked, 1, &["peek"]),
        calls: 2,
        check: one_continuation,
        ..PLAIN
    },
    Script {
        name: "a call of the page and one that runs (D10)",
        cues: &[ASK, at(|stage| stage.open(1), Stage::answer_all)],
        reply: |asked| after(asked, 1, &["peek", "slow"]),
        calls: 2,
        check: one_continuation,
        ..PLAIN
    },
    Script {
        name: "a call of the page and one with a key (D10)",
        cues: &[ASK, at(|stage| stage.open(1), Stage::answer_all)],
        reply: |asked| after(asked, 1, &["peek", "book"]).cut_every(90),
        calls: 2,
        check: one_continuation,
        ..PLAIN
    },
    Script {
        name: "two calls of pages, two tabs (I18)",
        cues: &[
            ASK,
            at(|stage| stage.open(2), |stage| stage.answer(&stage.one, &waiting(&stage.one)[0], true)),
            at(|stage| waiting(&stage.two).len() == 1, |stage| stage.answer(&stage.two, &waiting(&stage.two)[0], true)),
        ],
        reply: |asked| after(asked, 1, &["peek", "ask"]),
        calls: 2,
        check: one_continuation,
        ..PLAIN
    },
    Script { name: "a page that takes too long", cues: &[ASK], reply: |asked| after(asked, 1, &["hurry"]), calls: 2, ..PLAIN },
    Script {
        name: "an approval granted (D8, D11)",
        cues: &[ASK, at(|stage| stage.open(1), Stage::answer_all)],
        reply: |asked| after(asked, 1, &["pay"]),
        calls: 2,
        check: one_continuation,
        ..PLAIN
    },
    Script {
        name: "an approval denied (D8)",
        allows: false,
        cues: &[ASK, at(|stage| stage.open(1), |stage| stage.answer(&stage.one, &waiting(&stage.one)[0], false))],
        reply: |asked| after(asked, 1, &["pay"]),
        calls: 2,
        check: |stage| {
            let ran = stage.ledger.starts();
            if ran > 0 { vec![format!("what was denied ran {ran} times")] } else { Vec::new() }
        },
        ..PLAIN
    },
    Script {
        name: "an approved call that runs (D11)",
        cues: &[ASK, at(|stage| stage.open(1), Stage::answer_all)],
        reply: |asked| after(asked, 1, &["haul"]),
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "three questions",
        cues: &[
            ASK,
            at(has_question, |stage| drop(stage.two.send("another"))),
            at(|stage| stage.world.db().count("wk_turn") > 1, |stage| drop(stage.one.send("a third"))),
        ],
        reply: |_| text("one ").delay(50).text("two"),
        calls: 3,
        ..PLAIN
    },
    Script {
        name: "an answer given anew (D1)",
        before: |stage| {
            stage.one.send("question");
            stage.world.run();
        },
        cues: &[at(|_| true, |stage| drop(stage.one.regenerate()))],
        reply: words,
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "an edit (D21)",
        before: first_question,
        cues: &[at(
            |_| true,
            |stage| {
                let id = stage.one.messages()[0]["id"].as_str().unwrap().to_owned();
                stage.one.edit(&id, "question");
            },
        )],
        reply: words,
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "an edit of what is answered (D21)",
        cues: &[
            ASK,
            at(is_streaming, |stage| {
                let id = stage.one.messages()[0]["id"].as_str().unwrap().to_owned();
                stage.one.edit(&id, "better");
            }),
        ],
        reply: words,
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "a stop (D18)",
        cues: &[ASK, at(is_streaming, |stage| stage.one.stop())],
        calls: 2,
        reply: |asked| words(asked).delay(50).text("no"),
        ..PLAIN
    },
    Script {
        name: "a stop of a tool",
        cues: &[ASK, at(|stage| stage.ledger.starts() > 0, |stage| stage.one.stop())],
        calls: 2,
        reply: |asked| after(asked, 1, &["slow", "look"]),
        ..PLAIN
    },
    Script {
        name: "a clear (D24)",
        before: first_question,
        cues: &[ASK, at(is_streaming, |stage| stage.one.clear())],
        reply: |asked| words(asked).delay(50).text("no"),
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "a turn of the application",
        keeps_words: true,
        cues: &[at(|_| true, |stage| drop(stage.one.rpc("save", json!([]))))],
        reply: words,
        ..PLAIN
    },
    Script {
        name: "a submission (D12, D13)",
        keeps_words: true,
        cues: &[at(|_| true, |stage| drop(stage.one.rpc("submit", json!([]))))],
        reply: words,
        ..PLAIN
    },
    Script {
        name: "a stall (D15)",
        keeps_words: true,
        config: |config| config.chat_stream_stall_timeout_ms = Some(2_000),
        reply: |asked| if asked.resumes { text("and the rest") } else { text_deltas(&["word "; 5]).stall() },
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "a silent provider (D15)",
        config: |config| config.chat_stream_stall_timeout_ms = Some(2_000),
        reply: |asked| if asked.n == 0 { stall() } else { text("at last") },
        calls: 2,
        ..PLAIN
    },
    Script { name: "a rate limit (D16)", reply: |asked| if asked.n == 0 { limited() } else { text("now") }, calls: 2, ..PLAIN },
    Script {
        name: "a broken stream (D16)",
        keeps_words: true,
        reply: |asked| if asked.resumes { text("and the rest") } else { text_deltas(&["word "; 12]).broken("reset by peer") },
        calls: 2,
        ..PLAIN
    },
    Script { name: "an error for good (D14, D17)", reply: |_| text("half").in_stream_error("invalid_request_error", "no"), ..PLAIN },
    Script { name: "a refused key (D17)", reply: |_| http_error(401, json!({ "error": { "message": "bad key" } })), ..PLAIN },
    Script {
        name: "a busy provider",
        reply: |asked| if asked.n < 2 { http_error(503, "busy") } else { text("now") },
        calls: 3,
        ..PLAIN
    },
    Script {
        name: "a stop of what waits (D22)",
        cues: &[
            ASK,
            at(
                |stage| stage.one.recovering(),
                |stage| {
                    let ids = stage.world.db().query("SELECT root_request_id AS id FROM wk_turn WHERE ended_at IS NULL");
                    if let Some(id) = ids.first().and_then(|row| row["id"].as_str()) {
                        stage.one.cancel(id);
                    }
                },
            ),
        ],
        reply: |asked| if asked.n == 0 { limited() } else { text("now") },
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "a question while one waits (D21)",
        cues: &[ASK, at(|stage| stage.one.recovering(), |stage| drop(stage.two.send("another")))],
        reply: |asked| if asked.n == 0 { limited() } else { text("now") },
        calls: 3,
        ..PLAIN
    },
    Script {
        name: "recovered before",
        keeps_words: true,
        cues: &[ASK, at(is_streaming, |stage| stage.world.die(Death::Hard))],
        reply: words,
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "recovered before, in a tool",
        cues: &[ASK, at(|stage| stage.ledger.starts() > 0, |stage| stage.world.die(Death::Hard))],
        reply: |asked| after(asked, 1, &["slow", "look"]),
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "declined (D23)",
        keeps_words: true,
        decision: || RecoveryDecision { go_on: false, ..RecoveryDecision::default() },
        reply: words,
        ..PLAIN
    },
    Script {
        name: "not kept",
        decision: || RecoveryDecision { persist: false, ..RecoveryDecision::default() },
        reply: |asked| if asked.results > 0 { words(asked) } else { asked.calls(Reply::new(), &["quick"]) },
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "a key that is not kept",
        decision: || RecoveryDecision { persist: false, ..RecoveryDecision::default() },
        reply: |asked| after(asked, 1, &["book"]),
        calls: 2,
        ..PLAIN
    },
    Script {
        name: "steered",
        config: |config| config.message_concurrency = MessageConcurrency::Steer,
        cues: &[ASK, at(is_asked, |stage| drop(stage.two.send("another")))],
        reply: |asked| after(asked, 2, &["quick"]),
        calls: 4,
        ..PLAIN
    },
    Script {
        name: "interrupted",
        config: |config| config.message_concurrency = MessageConcurrency::Interrupt,
        cues: &[ASK, at(is_streaming, |stage| drop(stage.two.send("another")))],
        reply: |asked| words(asked).delay(50).text("no"),
        calls: 2,
        ..PLAIN
    },
];

fn asked(request: &ProviderRequest, n: usize) -> Asked {
    let texts = request.texts();
    let roles = request.roles();
    let question = texts.iter().zip(&roles).rposition(|(text, role)| *role == "user" && is_said(text)).unwrap_or(0);
    Asked {
        results: roles.iter().skip(question).filter(|role| **role == "tool").count(),
        resumes: roles.last() == Some(&"user") && texts.last().is_some_and(|text| !is_said(text)),
        n,
    }
}

/// Whether a person said it, and not the object that asks its model to go on.
fn is_said(text: &str) -> bool {
    ["question", "before", "another", "a third", "better", "later"].contains(&text)
}

/// A world in which everything before the script has happened. `gated` says that commits may be lost, so that it matters what they
/// are followed by before they are on disk.
pub fn staged(script: &Script, slow_disk: bool, gated: bool) -> Stage {
    let ledger = Rc::new(Ledger::default());
    let mut config = Config { max_steps: 6, ..Config::default() };
    (script.config)(&mut config);
    let agent = Helper { ledger: ledger.clone(), config, decision: (script.decision)(), gated };
    let reply = script.reply;
    let mut n = 0;
    let world = World::new(agent).model_fn(move |request| {
        let texts = request.texts();
        let last = texts.iter().zip(request.roles()).rfind(|(text, role)| *role == "user" && is_said(text));
        if last.is_some_and(|(text, _)| text != "question") {
            return text("fine");
        }
        let asked = asked(request, n);
        n += 1;
        reply(&asked)
    });
    let world = if slow_disk { world.slow_disk() } else { world };
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    for tab in [&one, &two] {
        tab.set_body(json!({ "clientTools": [{ "name": "peek" }, { "name": "ask" }, { "name": "hurry", "timeoutMs": 2_000 }] }));
    }
    let stage = Stage { world, one, two, ledger };
    (script.before)(&stage);
    stage
}
