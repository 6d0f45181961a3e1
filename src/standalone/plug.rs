//! The plug that may be pulled (`PLUG`): routes by which a test or a demonstration ends the object in the middle of its work, and a
//! tool that works long enough for that. Off unless asked for.

use crate::{engine::budget::ChatRecovery, limits, prelude::*};

/// What the page is told when it connects, so that it shows the plug. Stock clients ignore it.
pub(super) const FRAME: &str = r#"{"type":"wakeful_plug"}"#;

const PULLED: &str = "the plug was pulled";

/// Answers `POST <agent-url>/plug/<kind>`; `None` for every other path.
pub(super) fn pull(handle: &AgentHandle, request: &HttpRequest) -> Option<HttpResponse> {
    let kind = request.path().rsplit_once("/plug/")?.1;
    if !matches!(kind, "abort" | "panic" | "hang") {
        return None;
    }
    if request.method != "POST" {
        return Some(HttpResponse::text(405, "a plug is pulled with POST"));
    }
    if kind == "hang" {
        handle.silence_model();
    } else {
        let (doomed, panics) = (handle.clone(), kind == "panic");
        handle.spawn(async move {
            // Not before the answer is out: where the instance is gone, nobody ends the requests that it had.
            doomed.sleep(limits::PLUG_FUSE_MS).await;
            if panics {
                die();
            }
            doomed.abort_object(PULLED);
        });
    }
    Some(HttpResponse { status: 202, headers: Vec::new(), body: Vec::new() })
}

#[allow(clippy::panic)] // it is what was asked for
fn die() -> ! {
    panic!("{PULLED}");
}

/// The bounds of a demonstration: its deaths are no sign that something is wrong, and nobody wants to wait for its silences.
pub(super) fn config(before: Config, model: &ModelRef) -> Config {
    let stall = if model.provider == "demo" { limits::PLUG_STALL_MS } else { limits::PLUG_STALL_MODEL_MS };
    let chat_recovery = ChatRecovery { max_interrupted_attempts: Some(limits::PLUG_PULLS), ..before.chat_recovery };
    Config { chat_recovery, chat_stream_stall_timeout_ms: Some(stall), ..before }
}

#[derive(Deserialize, JsonSchema)]
struct Wait {
    /// How many seconds to wait
    seconds: u32,
}

/// A tool that takes its time. It may run again: to wait once more does no harm.
pub(super) fn wait() -> Tool {
    Tool::server("wait", "Waits for some seconds, then says so", |wait: Wait, scope: TurnScope| async move {
        let seconds = wait.seconds.min(limits::PLUG_WAIT_S);
        scope.sleep(seconds * 1_000).await;
        Ok::<_, ToolError>(serde_json::json!({ "waited": format!("{seconds} s") }))
    })
    .pure()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use serde_json::Value;

    use super::super::{Assistant, Settings};
    use super::*;
    use crate::testkit::{Client, Sockets, World};

    const TALK: &str = "Talk slowly for 8 seconds";

    fn assistant(plug: &str) -> Assistant {
        Assistant::new(Settings::read(|name| (name == "PLUG").then(|| plug.to_owned())))
    }

    fn world() -> World<Assistant> {
        World::new(assistant("on"))
    }

    fn status(world: &World<Assistant>, method: &str, path: &str) -> u16 {
        let request = HttpRequest { method: method.into(), url: world.url(path), ..HttpRequest::default() };
        world.http(request).status
    }

    /// Pulls the plug; everybody whose connection went with it is back at once.
    #[track_caller]
    fn pull(world: &World<Assistant>, tab: &Client, kind: &str) {
        assert_eq!(status(world, "POST", &format!("/plug/{kind}")), 202);
        let fuse = i64::from(limits::PLUG_FUSE_MS);
        if kind == "panic" {
            assert!(catch_unwind(AssertUnwindSafe(|| world.run_for(fuse))).is_err());
            world.restart(Sockets::Closed);
        } else {
            world.run_for(fuse);
            assert_eq!(tab.conn().is_none(), kind == "abort");
        }
        if tab.conn().is_none() {
            world.reconnect(tab);
        }
    }

    /// The one answer: its text in a row, and the outputs of its calls. Every tab shows what is stored.
    #[track_caller]
    fn answer(world: &World<Assistant>, tab: &Client) -> (String, Vec<Value>) {
        world.run();
        assert_eq!(tab.said(), world.said(), "{}", world.story());
        let messages = world.get_messages();
        assert_eq!(messages.len(), 2, "{}", world.story());
        let parts = messages[1]["parts"].as_array().unwrap();
        // Thoughts are not told to a model, and so may begin anew.
        let text = parts.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str()).collect();
        (text, parts.iter().filter_map(|part| part.get("output").cloned()).collect())
    }

    /// What the answer is where nobody pulls anything.
    fn undisturbed(question: &str) -> String {
        let world = world();
        let tab = world.connect("S1");
        tab.send(question);
        answer(&world, &tab).0
    }

    #[test]
    fn without_the_plug_there_is_nothing_to_pull() {
        for value in ["", "off", "On", "true"] {
            let world = World::new(assistant(value));
            let tab = world.connect("S1");
            tab.send("wait for 3 seconds");
            for (method, kind) in [("POST", "abort"), ("POST", "panic"), ("POST", "hang"), ("GET", "abort"), ("POST", "")] {
                assert_eq!(status(&world, method, &format!("/plug/{kind}")), 404, "{value}: {method} {kind}");
            }
            let (text, outputs) = answer(&world, &tab);
            assert!(text.starts_with("You said") && outputs.is_empty(), "{text}");
            assert!(tab.of_type("wakeful_plug").is_empty());
            let config = assistant(value).config();
            assert_eq!((config.chat_recovery, config.chat_stream_stall_timeout_ms), (ChatRecovery::default(), None));
        }
    }

    #[test]
    fn with_it_there_are_three_kinds_and_they_are_posted() {
        let world = world();
        let table = [
            ("GET", "/plug/abort", 405),
            ("HEAD", "/plug/hang", 405),
            ("PUT", "/plug/panic", 405),
            ("POST", "/plug/other", 404),
            ("POST", "/plug/", 404),
            ("POST", "/plug", 404),
            ("POST", "/abort", 404),
            ("POST", "/plug/abort/x", 404),
            ("POST", "/plug/hang", 202),
        ];
        for (method, path, expected) in table {
            assert_eq!(status(&world, method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_page_is_told_that_there_is_a_plug() {
        let world = world();
        let tab = world.connect("S1");
        world.run();
        assert_eq!(tab.of_type("wakeful_plug").len(), 1);
    }

    #[test]
    fn whatever_is_done_to_the_object_the_answer_is_the_same() {
        let whole = undisturbed(TALK);
        assert!(whole.ends_with("nothing is missing."));
        for kind in ["abort", "panic", "hang"] {
            let world = world();
            let tab = world.connect("S1");
            tab.send(TALK);
            for _ in 0..7 {
                world.run_for(1_130);
                pull(&world, &tab, kind);
            }
            assert_eq!(answer(&world, &tab).0, whole, "{kind}\n{}", world.story());
            let ends = tab.turn_ends();
            assert_eq!(ends.last().map(|end| end.outcome.as_str()), Some("completed"), "{kind}: {ends:?}");
        }
    }

    #[test]
    fn it_may_be_pulled_at_any_word_before_between_and_after_a_tool() {
        let questions = ["calculate 6 * 7", "What time is it?", "wait for 1 second", "show me markdown", "Think about rain"];
        for question in questions {
            let whole = undisturbed(question);
            let mut at = 0;
            loop {
                let world = world();
                let tab = world.connect("S1");
                tab.send(question);
                world.run_for(at);
                let over = tab.turn_ends().iter().any(|end| end.outcome == "completed");
                pull(&world, &tab, "abort");
                world.run_for(60);
                pull(&world, &tab, "abort");
                let (text, outputs) = answer(&world, &tab);
                if question.contains("time") {
                    // The time is another one; all around it is the same.
                    let frame = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
                    assert_eq!(frame(&text), frame(&whole), "{at} ms");
                } else {
                    assert_eq!(text, whole, "{question}, {at} ms\n{}", world.story());
                }
                assert!(outputs.len() <= 1, "{question}, {at} ms: {outputs:?}");
                if over {
                    break;
                }
                at += 53;
            }
            assert!(at > 100, "{question}");
        }
    }

    #[test]
    fn it_may_be_pulled_in_a_tool_five_times() {
        let question = "wait for 4 seconds";
        let whole = undisturbed(question);
        for kind in ["abort", "panic"] {
            let world = world();
            let tab = world.connect("S1");
            tab.send(question);
            for _ in 0..5 {
                world.run_for(2_000);
                pull(&world, &tab, kind);
            }
            let (text, outputs) = answer(&world, &tab);
            assert_eq!((text, outputs.len()), (whole.clone(), 1), "{kind}\n{}", world.story());
        }
    }

    #[test]
    fn what_waits_for_a_person_still_waits_and_runs_once() {
        for kind in ["abort", "panic", "hang"] {
            let world = world();
            let tab = world.connect("S1");
            tab.send("Save a note: buy milk");
            world.run();
            for _ in 0..5 {
                pull(&world, &tab, kind);
                world.run_for(40_000);
                assert_eq!(tab.open_calls().len(), 1, "{kind}\n{}", world.story());
                assert_eq!(tab.state(), None);
            }
            tab.approve(&tab.open_calls()[0], true);
            world.run_for(130);
            pull(&world, &tab, kind);
            let (text, outputs) = answer(&world, &tab);
            assert_eq!(text, "I will do that.The note is saved: **buy milk**", "{kind}\n{}", world.story());
            assert_eq!(outputs, [serde_json::json!({ "note": "buy milk" })]);
        }
    }
}
