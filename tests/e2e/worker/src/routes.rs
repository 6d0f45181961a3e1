//! The classes and the routes.

use wakeful::{
    ChatRecovery, Config, MessageConcurrency,
    durable::{
        Cors, Gate, RouteOptions, Target, route, route_to,
        worker::{Context, Env, Fetch, Method, Request, RequestInit, Response, Result, event},
    },
    model::ModelRef,
    runtime::router::query_param,
};

use std::rc::Rc;

use serde_json::Value;

use crate::{
    desk::Clerk,
    killed::{Killed, Post},
    probe::Probe,
    twin::Twin,
};

wakeful::durable_agent!(pub struct OpenState for Probe = |env| Probe::new(Config { client_state: true, ..Config::default() }, model(env)));
wakeful::durable_agent!(pub struct ClosedState for Probe = |env| Probe::new(Config::default(), model(env)));
wakeful::durable_agent!(
    pub struct Anonymous for Probe = |env| Probe::new(Config { client_state: true, send_identity: false, ..Config::default() }, model(env))
);
wakeful::durable_agent!(pub struct Ending for Probe = |env| {
    let chat_recovery = ChatRecovery { enabled: false, ..ChatRecovery::default() };
    Probe::new(Config { chat_recovery, ..Config::default() }, model(env))
});
wakeful::durable_agent!(pub struct Impatient for Probe = |env| {
    Probe::new(Config { chat_stream_stall_timeout_ms: Some(2_000), ..Config::default() }, model(env))
});
wakeful::durable_agent!(pub struct Mortal for Killed = |env| Killed::new(model(env), var(env, "BUILD").unwrap_or_default(), post(env)));
wakeful::durable_agent!(pub struct Desk for Clerk = |env| Clerk::new(model(env)));

// What is compared with the original: one agent, a class for each way to treat messages that overlap.
wakeful::durable_agent!(pub struct QueueChat for Twin = |env| Twin::new(MessageConcurrency::Queue, model(env)));
wakeful::durable_agent!(pub struct LatestChat for Twin = |env| Twin::new(MessageConcurrency::Latest, model(env)));
wakeful::durable_agent!(pub struct MergeChat for Twin = |env| Twin::new(MessageConcurrency::Merge, model(env)));
wakeful::durable_agent!(pub struct DropChat for Twin = |env| Twin::new(MessageConcurrency::Drop, model(env)));
wakeful::durable_agent!(
    pub struct DebounceChat for Twin = |env| Twin::new(MessageConcurrency::Debounce { ms: 300 }, model(env))
);

fn var(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|v| v.to_string())
}

pub fn model(env: &Env) -> ModelRef {
    let mut model = ModelRef::from(var(env, "MODEL").unwrap_or_else(|| "demo".into()));
    model.base_url = var(env, "MODEL_BASE_URL");
    model
}

/// The endpoint where effects are counted: the var `EFFECTS`.
fn post(env: &Env) -> Post {
    let base = var(env, "EFFECTS").unwrap_or_default();
    Rc::new(move |path, body| {
        let url = format!("{base}/{path}");
        Box::pin(async move {
            let send = async {
                let mut init = RequestInit::new();
                init.with_method(Method::Post).with_body(Some(body.to_string().into()));
                Fetch::Request(Request::new_with_init(&url, &init)?).send().await?.json::<Value>().await
            };
            send.await.map_err(|e| e.to_string())
        })
    })
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, _: Context) -> Result<Response> {
    let path = request.path();
    if let Some(name) = path.strip_prefix("/id/") {
        // The name of an object's file, for who looks into it.
        let class = query_param(&request.inner().url(), "class").unwrap_or_else(|| "Mortal".into());
        return Response::ok(env.durable_object(&class)?.id_from_name(name)?.to_string());
    }
    if path == "/chat" || path.starts_with("/chat/") {
        let target = Target { class_name: "OpenState".into(), name: "mapped".into() };
        return route_to(&request, &env, &target, &RouteOptions::new()).await;
    }
    let gate = async |request: &Request, _: &Target| -> Result<Gate> {
        Ok(match query_param(&request.inner().url(), "pass").as_deref() {
            Some("yes") => Gate::Pass,
            Some("instead") => {
                let mut other = request.clone_mut()?;
                other.headers_mut()?.set("x-replaced", "1")?;
                Gate::Replace(other)
            }
            _ => Gate::Answer(Response::error("no", 401)?),
        })
    };
    let all = [
        RouteOptions::new(),
        RouteOptions::new().prefix("api/agents"),
        RouteOptions::new().prefix("cors").cors(Cors::Any),
        RouteOptions::new().prefix("map").cors(Cors::Headers(vec![("Access-Control-Allow-Origin".into(), "https://a".into())])),
        RouteOptions::new().prefix("listed").cors(Cors::Origins(vec!["https://a".into()])),
        RouteOptions::new().prefix("gated").cors(Cors::Any).on_before_connect(gate).on_before_request(gate),
    ];
    for options in &all {
        if let Some(answer) = route(&request, &env, options).await? {
            return Ok(answer);
        }
    }
    Response::error("not an agent", 404)
}
