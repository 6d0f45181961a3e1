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
