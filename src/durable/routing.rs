//! From a request to its object (wire §1.3): the router of the Agents SDK with CORS and the two hooks before an object is touched.

use std::{pin::Pin, rc::Rc};

use worker::{
    Env, Headers, Method, Request, Response, Result,
    js_sys::{Math, Object},
    wasm_bindgen::{JsCast, JsValue},
    web_sys,
};

use super::bindings::{Sleep, field, has_method};
use crate::runtime::router::{Routed, is_name, route_path};

/// Headers that the SDK trusts between its own workers. From outside they are lies: one injects constructor properties, one skips
/// the gate of a parent (wire §1.3).
const INTERNAL_HEADERS: [&str; 2] = ["x-agents-lifecycle-props", "x-cf-agents-subagent-url"];

/// The object a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The binding of its class.
    pub class_name: String,
    /// Its name: the raw segment of the path.
    pub name: String,
}

/// What a hook says about a request.
pub enum Gate {
    /// Let it through.
    Pass,
    /// Let this one through instead.
    Replace(Request),
    /// Answer with this; no object is touched.
    Answer(Response),
}

/// Which pages of other origins may read answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cors {
    /// None; every origin may still connect, as with the original.
    #[default]
    Off,
    /// All of them.
    Any,
    /// Exactly these headers on every answer.
    Headers(Vec<(String, String)>),
    /// These origins, compared whole. Requests of others are answered 403, upgrades too.
    Origins(Vec<String>),
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Gate>> + 'a>>;
type Hook = Rc<dyn for<'a> Fn(&'a Request, &'a Target) -> Answering<'a>>;

/// How requests are routed. The default is that of the clients: prefix `agents`, no CORS, no hooks.
#[derive(Clone)]
pub struct RouteOptions {
    prefix: String,
    cors: Cors,
    on_before_connect: Option<Hook>,
    on_before_request: Option<Hook>,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self { prefix: "agents".into(), cors: Cors::Off, on_before_connect: None, on_before_request: None }
    }
}

impl RouteOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// The leading segments of the path: `agents`, or several as in `api/agents`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Which pages of other origins may read answers.
    pub fn cors(mut self, cors: Cors) -> Self {
        self.cors = cors;
        self
    }

    /// Asked before an upgrade reaches its object: the place for authentication.
    pub fn on_before_connect<F>(mut self, hook: F) -> Self
    where
        F: AsyncFn(&Request, &Target) -> Result<Gate> + 'static,
    {
        self.on_before_connect = Some(boxed(hook));
        self
    }

    /// Asked before any other request reaches its object.
    pub fn on_before_request<F>(mut self, hook: F) -> Self
    where
        F: AsyncFn(&Request, &Target) -> Result<Gate> + 'static,
    {
        self.on_before_request = Some(boxed(hook));
        self
    }
}

fn boxed<F>(hook: F) -> Hook
where
    F: AsyncFn(&Request, &Target) -> Result<Gate> + 'static,
{
    let hook = Rc::new(hook);
    Rc::new(move |request, target| {
        let hook = hook.clone();
        Box::pin(async move { hook(request, target).await })
    })
}

/// Answers a request whose path names an object, and `None` for every other path: those are the application's.
///
/// # Errors
/// A hook failed, or the object did and three attempts did not help.
pub async fn route(request: &Request, env: &Env, options: &RouteOptions) -> Result<Option<Response>> {
    let path = request.path();
    let bindings = namespaces(env);
    match route_path(&path, &options.prefix, &bindings) {
        Routed::NotOurs => Ok(None),
        Routed::Invalid => Response::error("Invalid request", 400).map(Some),
        Routed::Object { binding, name } => {
            let target = Target { class_name: binding.to_owned(), name: name.to_owned() };
            route_to(request, env, &target, options).await.map(Some)
        }
    }
}

/// Sends a request to an object that the application has chosen, with the CORS rules and hooks of `options`: for paths of its
/// own (`basePath` of the clients, wire §1.4).
///
/// # Errors
/// As [`route`].
pub async fn route_to(request: &Request, env: &Env, target: &Target, options: &RouteOptions) -> Result<Response> {
    if !is_name(&target.name) {
        return Response::error("Invalid request", 400);
    }
    let upgrade = super::host::is_upgrade(request);
    let cors = match cors_headers(&options.cors, request) {
        Access::Refused => return Response::error("Origin not allowed", 403),
        Access::Granted(headers) => headers,
    };
    if options.cors != Cors::Off && request.method() == Method::Options {
        return with_headers(Response::empty()?, &cors);
    }
    let hook = if upgrade { &options.on_before_connect } else { &options.on_before_request };
    let gate = match hook {
        Some(hook) => hook(request, target).await?,
        None => Gate::Pass,
    };
    let answer = match gate {
        Gate::Answer(answer) => answer,
        Gate::Pass => forward(request, env, target).await?,
        Gate::Replace(request) => forward(&request, env, target).await?,
    };
    // A 101 carries no CORS headers, and neither does what a hook says instead of one.
    if upgrade { Ok(answer) } else { with_headers(answer, &cors) }
}

async fn forward(request: &Request, env: &Env, target: &Target) -> Result<Response> {
    // A stub that failed may stay broken: each attempt makes its own.
    let stub = || env.durable_object(&target.class_name)?.id_from_name(&target.name)?.get_stub();
    let request = cleaned(request)?;
    for attempt in 1..crate::limits::ROUTE_ATTEMPTS {
        match stub()?.fetch_with_request(request.clone()?).await {
            Err(e) if may_retry(&e) => {
                let most = f64::from((crate::limits::ROUTE_DELAY_MS * 2_u32.pow(attempt - 1)).min(crate::limits::ROUTE_DELAY_MOST_MS));
                Sleep::new((Math::random() * most) as u32).await;
            }
            settled => return settled,
        }
    }
    stub()?.fetch_with_request(request).await
}

/// The request without internal headers; the same object where there are none.
fn cleaned(request: &Request) -> Result<Request> {
    let lies = INTERNAL_HEADERS.iter().any(|name| request.headers().has(name).unwrap_or(false));
    if !lies {
        // The handle, not a copy: a copy would read the body twice.
        return Ok(Request::from(<web_sys::Request as Clone>::clone(request.inner())));
    }
    let mut request = request.clone_mut()?;
    for name in INTERNAL_HEADERS {
        request.headers_mut()?.delete(name)?;
    }
    Ok(request)
}

fn may_retry(error: &worker::Error) -> bool {
    let thrown = error.to_js_value();
    let says = |name: &str| field(&thrown, name).is_some_and(|v| v.is_truthy());
    says("retryable") && !says("overloaded")
}

/// The bindings that are Durable Object namespaces, in the order of the configuration.
fn namespaces(env: &Env) -> Vec<String> {
    let env: &JsValue = env.as_ref();
    Object::keys(env.unchecked_ref::<Object>())
        .iter()
        .filter_map(|key| key.as_string())
        .filter(|key| field(env, key).is_some_and(|binding| has_method(&binding, "idFromName")))
        .collect()
}

enum Access {
    Granted(Vec<(String, String)>),
    Refused,
}

fn cors_headers(cors: &Cors, request: &Request) -> Access {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let common = |origin: &str, headers: &str| {
        vec![
            header("Access-Control-Allow-Origin", origin),
            header("Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS"),
            header("Access-Control-Allow-Headers", headers),
            header("Access-Control-Max-Age", "86400"),
        ]
    };
    match cors {
        Cors::Off => Access::Granted(Vec::new()),
        Cors::Any => Access::Granted(common("*", "*")),
        Cors::Headers(headers) => Access::Granted(headers.clone()),
        Cors::Origins(allowed) => match request.headers().get("origin").ok().flatten() {
            // Not a page, or a page reading from its own origin.
            None => Access::Granted(vec![header("Vary", "Origin")]),
            Some(origin) if allowed.contains(&origin) => {
                // The wildcard does not cover `Authorization`; named, it does.
                let mut headers = common(&origin, "Authorization, *");
                headers.push(header("Vary", "Origin"));
                Access::Granted(headers)
            }
            Some(_) => Access::Refused,
        },
    }
}

fn with_headers(answer: Response, add: &[(String, String)]) -> Result<Response> {
    if add.is_empty() {
        return Ok(answer);
    }
    // A copy: the headers of an answer that came from elsewhere cannot be changed.
    let headers: Headers = answer.headers().clone();
    for (name, value) in add {
        // An answer may vary by more than its origin.
        if name == "Vary" { headers.append(name, value)? } else { headers.set(name, value)? }
    }
    Ok(answer.with_headers(headers))
}
