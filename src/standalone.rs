//! The repository as a deployable: one agent configured by vars and secrets, behind a router that checks origin and token before
//! any object exists. Everything but the last block builds natively.

mod calculate;
mod plug;

use std::borrow::Cow;

use crate::{
    agent::{Agent, DEFAULT_INSTRUCTIONS, turn::Turn},
    ids::ConnId,
    model::ModelRef,
    prelude::*,
    time::Millis,
};

/// What the deployer has set. A var that is empty or blank counts as not set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Who answers: `MODEL`, `MODEL_BASE_URL`, `MODEL_API_KEY` or `OPENAI_API_KEY`.
    pub model: ModelRef,
    /// The system prompt: `INSTRUCTIONS`.
    pub instructions: Option<String>,
    /// Which pages may connect: `ALLOWED_ORIGINS`.
    pub origins: Origins,
    /// What every request must carry: `AUTH_TOKEN`.
    pub auth_token: Option<String>,
    /// Whether the object may be ended by a request, for tests and demonstrations: `PLUG` is `on`.
    pub plug: bool,
}

/// Which pages may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Any may connect, none of another origin may read answers: no CORS headers.
    #[default]
    Unset,
    /// Any, with CORS headers: the list was `*`.
    Any,
    /// These.
    Listed(Vec<String>),
}

impl Settings {
    /// Reads the settings; `var` looks one up.
    ///
    /// Nothing here fails: what is wrong with a model is said in the chat, when it is asked to answer.
    pub fn read(var: impl Fn(&str) -> Option<String>) -> Self {
        let var = |name: &str| var(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let mut model = ModelRef::from(var("MODEL").unwrap_or_else(|| "demo".into()));
        model.base_url = var("MODEL_BASE_URL");
        // The key of one company is not offered to the servers of another.
        let openai = matches!(model.provider.as_str(), "openai" | "openai-chat" | "openai-compatible");
        model.api_key = var("MODEL_API_KEY").or_else(|| var("OPENAI_API_KEY").filter(|_| openai));
        Self {
            model,
            instructions: var("INSTRUCTIONS"),
            origins: origins(var("ALLOWED_ORIGINS")),
            auth_token: var("AUTH_TOKEN"),
            plug: var("PLUG").as_deref() == Some("on"),
        }
    }

    /// Whether a request that carries these credentials may pass.
    pub fn admits(&self, authorization: Option<&str>, query_token: Option<&str>) -> bool {
        let Some(expected) = &self.auth_token else { return true };
        let bearer = authorization.and_then(|a| a.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let offered = [bearer.map(|(_, token)| token.trim()), query_token];
        offered.into_iter().flatten().any(|token| equal(token.as_bytes(), expected.as_bytes()))
    }
}

/// A list separated by commas or blanks. Browsers write origins in lower case and without a slash at the end; people do not.
fn origins(list: Option<String>) -> Origins {
    let Some(list) = list else { return Origins::Unset };
    let listed: Vec<String> =
        list.split([',', ' ', '\n', '\t']).filter(|o| !o.is_empty()).map(|o| o.trim_end_matches('/').to_ascii_lowercase()).collect();
    if listed.iter().any(|o| o == "*") { Origins::Any } else { Origins::Listed(listed) }
}

/// Compares without telling by its duration how much of a guess was right.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |differences, (x, y)| differences | (x ^ y))) == 0
}

/// The agent of the deployable.
#[derive(Clone, Debug)]
pub struct Assistant {
    model: ModelRef,
    instructions: Option<String>,
    plug: bool,
}

impl Assistant {
    /// The agent these settings describe.
    pub fn new(settings: Settings) -> Self {
        Self { model: settings.model, instructions: settings.instructions, plug: settings.plug }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Expression {
    /// Numbers, + - * / % ^ and parentheses, as in `(1 + 2) * 3.5`
    expression: String,
}

#[derive(Deserialize, JsonSchema)]
struct Note {
    /// The note, in the words it is to be kept in
    text: String,
}

#[derive(Serialize)]
struct Now {
    /// As people write it, in UTC.
    iso: String,
    /// As programs count it.
    unix_ms: i64,
}

impl Agent for Assistant {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn instructions(&self, _: &Turn) -> Cow<'static, str> {
        self.instructions.clone().map_or(Cow::Borrowed(DEFAULT_INSTRUCTIONS), Cow::Owned)
    }

    fn config(&self) -> Config {
        let config = Config { callables: BuiltIns { submissions: true }, ..Config::default() };
        if self.plug { plug::config(config, &self.model) } else { config }
    }

    async fn on_connect(&self, handle: &AgentHandle, conn: &ConnId) {
        if self.plug {
            // A tab that is gone by now needs no plug.
            let _ = handle.send(conn, plug::FRAME).await;
        }
    }

    async fn on_request(&self, handle: &AgentHandle, request: &HttpRequest) -> Option<HttpResponse> {
        if self.plug { plug::pull(handle, request) } else { None }
    }

    fn tools(&self, _: &Turn) -> Tools {
        let tools = Tools::new()
            .with(
                Tool::server("current_time", "The current date and time in UTC", |(), scope: TurnScope| async move {
                    let now = scope.now();
                    Ok::<_, ToolError>(Now { iso: iso(now), unix_ms: now.0 })
                })
                .pure(),
            )
            .with(
                Tool::server(
                    "calculate",
                    "Evaluates an arithmetic expression exactly as written",
                    |input: Expression, _| async move {
                        calculate::evaluate(&input.expression)
                            .map(|result| serde_json::json!({ "result": result }))
                            .map_err(ToolError::ToModel)
                    },
                )
                .pure(),
            )
            .with(
                Tool::server(
                    "save_note",
                    "Keeps a note that everybody in this conversation sees, in place of the one before",
                    |note: Note, scope: TurnScope| async move {
                        let state = serde_json::json!({ "note": note.text });
                        scope.set_state(state.clone()).await?;
                        Ok::<_, ToolError>(state)
                    },
                )
                .needs_approval(),
            );
        if self.plug { tools.with(plug::wait()) } else { tools }
    }
}

/// RFC 3339 in UTC. Days are counted from 1 March of year 0, so that the leap day is the last of its year.
fn iso(at: Millis) -> String {
    const DAY: i64 = 86_400_000;
    const ERA: i64 = 146_097; // days of 400 years
    let (days, ms) = (at.0.div_euclid(DAY) + 719_468, at.0.rem_euclid(DAY));
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (seconds, ms) = (ms / 1_000, ms % 1_000);
    format!(
        "{:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        era * 400 + year,
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(all(feature = "standalone", target_arch = "wasm32"))]
mod worker_entry {
    use super::{Assistant, Origins, Settings};
    use crate::{
        durable::{
            routing::{Cors, Gate, RouteOptions, Target, route},
            worker::{Context, Env, Headers, Request, Response, Result, event},
        },
        runtime::router::query_param,
    };

    crate::durable_agent!(pub struct ChatAgent for Assistant = |env| Assistant::new(settings(env)));

    fn settings(env: &Env) -> Settings {
        Settings::read(|name| env.var(name).ok().map(|v| v.to_string()))
    }

    #[event(fetch)]
    async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
        let settings = settings(&env);
        let cors = match &settings.origins {
            Origins::Unset => Cors::Off,
            Origins::Any => Cors::Any,
            Origins::Listed(origins) => Cors::Origins(origins.clone()),
        };
        let gate = move |request: &Request| -> Result<Gate> {
            let authorization = request.headers().get("authorization")?;
            let token = query_param(&request.inner().url(), "token");
            if settings.admits(authorization.as_deref(), token.as_deref()) {
                return Ok(Gate::Pass);
            }
            let headers = Headers::new();
            headers.set("content-type", "application/json")?;
            headers.set("www-authenticate", "Bearer")?;
            let body = r#"{"error":"unauthorized: send AUTH_TOKEN as a Bearer token or as the query parameter `token`"}"#;
            Ok(Gate::Answer(Response::ok(body)?.with_status(401).with_headers(headers)))
        };
        let upgrade = gate.clone();
        let options = RouteOptions::new()
            .cors(cors)
            .on_before_connect(async move |request: &Request, _: &Target| upgrade(request))
            .on_before_request(async move |request: &Request, _: &Target| gate(request));
        match route(&request, &env, &options).await? {
            Some(answer) => Ok(answer),
            None => Response::error("Not found", 404),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Settings {
        Settings::read(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn nothing_set_is_the_demo_model_open_to_all() {
        // decision 49
        let bare = settings(&[("MODEL", " "), ("AUTH_TOKEN", ""), ("ALLOWED_ORIGINS", "")]);
        assert_eq!(bare.model.provider, "demo");
        assert_eq!(bare.origins, Origins::Unset);
        assert!(bare.admits(None, None));
    }

    #[test]
    fn the_model_is_provider_and_name_with_address_and_key() {
        let vars =
            [("MODEL", "openai-compatible/org/mock-1"), ("MODEL_BASE_URL", "http://127.0.0.1:9911/v1"), ("OPENAI_API_KEY", "o")];
        let read = settings(&vars).model;
        assert_eq!((read.provider.as_str(), read.model.as_str()), ("openai-compatible", "org/mock-1"));
        assert_eq!(read.base_url.as_deref(), Some("http://127.0.0.1:9911/v1"));
        assert_eq!(read.api_key.as_deref(), Some("o"));
        let both = settings(&[("MODEL", "openai/gpt"), ("OPENAI_API_KEY", "o"), ("MODEL_API_KEY", "m")]);
        assert_eq!(both.model.api_key.as_deref(), Some("m"));
    }

    #[test]
    fn the_key_of_openai_is_not_sent_to_others() {
        assert_eq!(settings(&[("MODEL", "groq/llama"), ("OPENAI_API_KEY", "o")]).model.api_key, None);
        assert_eq!(settings(&[("MODEL", "groq/llama"), ("MODEL_API_KEY", "m")]).model.api_key.as_deref(), Some("m"));
    }

    #[test]
    fn origins_are_a_list_of_whole_origins() {
        let listed = settings(&[("ALLOWED_ORIGINS", "https://A.example/, http://localhost:5173")]).origins;
        assert_eq!(listed, Origins::Listed(vec!["https://a.example".into(), "http://localhost:5173".into()]));
        assert_eq!(settings(&[("ALLOWED_ORIGINS", "*")]).origins, Origins::Any);
    }

    #[test]
    fn a_token_is_asked_for_in_either_place_and_must_be_whole() {
        // decision 49, field A-02
        let closed = settings(&[("AUTH_TOKEN", "s3cret")]);
        for (authorization, token, expected) in [
            (None, None, false),
            (Some("Bearer s3cret"), None, true),
            (Some("bearer s3cret"), None, true),
            (Some("Basic s3cret"), None, false),
            (Some("s3cret"), None, false),
            (Some("Bearer s3cre"), None, false),
            (Some("Bearer s3cret1"), None, false),
            (Some("Bearer "), None, false),
            (None, Some("s3cret"), true),
            (None, Some("S3cret"), false),
            (None, Some(""), false),
            (Some("Bearer wrong"), Some("s3cret"), true),
        ] {
            assert_eq!(closed.admits(authorization, token), expected, "{authorization:?} {token:?}");
        }
    }

    #[test]
    fn times_are_written_as_calendars_count() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_796_000_461_007, "2026-11-30T01:01:01.007Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso(Millis(ms)), text);
        }
    }
}
