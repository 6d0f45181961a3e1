//! Tools: a name, a description, an input type, and an async function unless a page runs it.

use std::{future::Future, rc::Rc};

use futures_util::{FutureExt, future::LocalBoxFuture};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::handle::TurnScope;
use crate::{
    engine::{
        client_tools::{ClientTool, is_tool_name},
        config::ClientToolOverride,
        input::{Ambiguous, EffectClass, Gate, Site, ToolDef},
        schema,
    },
    error::{Error, Result},
    limits,
    model::ToolSpec,
};

pub use crate::engine::{client_tools::ClientToolWait, input::Approval};

/// Why a tool gives no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolError {
    /// The model is told and may try something else. What a `?` in a tool becomes.
    ToModel(String),
    /// The turn ends with this text.
    Fatal(String),
}

impl From<String> for ToolError {
    fn from(text: String) -> Self {
        ToolError::ToModel(text)
    }
}

impl From<&str> for ToolError {
    fn from(text: &str) -> Self {
        ToolError::ToModel(text.into())
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        ToolError::ToModel(error.to_string())
    }
}

impl From<serde_json::Error> for ToolError {
    fn from(error: serde_json::Error) -> Self {
        ToolError::ToModel(error.to_string())
    }
}

type Run = Rc<dyn Fn(Value, TurnScope) -> LocalBoxFuture<'static, Result<Value, ToolError>>>;
type Predicate = Rc<dyn Fn(Value, TurnScope) -> LocalBoxFuture<'static, Result<Approval>>>;

/// A tool that runs in this object, or in the page.
///
/// ```
/// use wakeful::prelude::*;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Place {
///     /// City name
///     city: String,
/// }
///
/// let tool = Tool::server("weather", "Current weather in a city", |place: Place, _scope| async move {
///     Ok::<_, ToolError>(format!("Sunny in {}", place.city))
/// });
/// assert_eq!(tool.name(), "weather");
/// ```
#[derive(Clone)]
pub struct Tool {
    spec: ToolSpec,
    effect: EffectClass,
    ambiguous: Ambiguous,
    timeout_ms: u32,
    gate: Gate,
    predicate: Option<Predicate>,
    wait: ClientToolWait,
    /// Nothing: a page runs it.
    run: Option<Run>,
}

impl Tool {
    /// A tool with a typed input. The schema the model sees is made from the type; its doc comments describe the fields.
    pub fn server<I, O, E, F, Fut>(name: impl Into<String>, description: impl Into<String>, run: F) -> Self
    where
        I: DeserializeOwned + JsonSchema + 'static,
        O: Serialize + 'static,
        E: Into<ToolError> + 'static,
        F: Fn(I, TurnScope) -> Fut + 'static,
        Fut: Future<Output = Result<O, E>> + 'static,
    {
        let schema = schema::clean(schemars::schema_for!(I).to_value());
        // `()` has an empty object as its schema and null as its value.
        let unit = std::any::TypeId::of::<I>() == std::any::TypeId::of::<()>();
        let run = Rc::new(run);
        Self::dynamic(name, description, schema, move |input, scope| {
            let run = run.clone();
            async move {
                let input = if unit { Value::Null } else { input };
                let input: I = serde_json::from_value(input).map_err(|e| ToolError::ToModel(format!("invalid input: {e}")))?;
                let output = run(input, scope).await.map_err(Into::into)?;
                Ok(serde_json::to_value(output)?)
            }
        })
    }

    /// A tool whose schema is known only at run time.
    pub fn dynamic<F, Fut>(name: impl Into<String>, description: impl Into<String>, input_schema: Value, run: F) -> Self
    where
        F: Fn(Value, TurnScope) -> Fut + 'static,
        Fut: Future<Output = Result<Value, ToolError>> + 'static,
    {
        let spec = ToolSpec { name: name.into(), description: description.into(), input_schema };
        Self::new(spec, Some(Rc::new(move |input, scope| run(input, scope).boxed_local())))
    }

    /// A tool that a connected page runs, with `onToolCall` or a component. The turn parks until it answers.
    ///
    /// ```
    /// use wakeful::prelude::*;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Question {
    ///     /// What to ask
    ///     text: String,
    /// }
    ///
    /// let tool = Tool::client::<Question>("ask", "Asks the person in front of the page")
    ///     .wait(ClientToolWait::Timeout(60_000));
    /// assert_eq!(tool.spec().input_schema["required"][0], "text");
    /// ```
    pub fn client<I: JsonSchema>(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self::client_dynamic(name, description, schema::clean(schemars::schema_for!(I).to_value()))
    }

    /// A tool that a connected page runs, whose schema is known only at run time.
    pub fn client_dynamic(name: impl Into<String>, description: impl Into<String>, input_schema: Value) -> Self {
        Self::new(ToolSpec { name: name.into(), description: description.into(), input_schema }, None)
    }

    fn new(spec: ToolSpec, run: Option<Run>) -> Self {
        Self {
            spec,
            effect: EffectClass::default(),
            ambiguous: Ambiguous::default(),
            timeout_ms: limits::TOOL_TIMEOUT_MS,
            gate: Gate::Never,
            predicate: None,
            wait: ClientToolWait::Park,
            run,
        }
    }

    /// A person has to allow each call. Nothing runs before; no timer and no alarm waits for it, unless
    /// [`Config::approval_wait_ms`](crate::Config::approval_wait_ms) is set.
    pub fn needs_approval(mut self) -> Self {
        self.gate = Gate::Always;
        self
    }

    /// A person has to allow the calls this says. An error, or no answer in time, asks. Consulted once more before a call that was
    /// allowed runs; then only a denial counts.
    ///
    /// ```
    /// use wakeful::prelude::*;
    /// # #[derive(Deserialize, JsonSchema)]
    /// # struct Payment { eur: f64 }
    /// let tool = Tool::server("pay", "Pays", |payment: Payment, _| async move { Ok::<_, ToolError>(payment.eur) })
    ///     .needs_approval_when(|input, _| async move {
    ///         Ok(if input["eur"].as_f64() > Some(100.0) { Approval::Ask } else { Approval::Allow })
    ///     });
    /// ```
    pub fn needs_approval_when<F, Fut>(mut self, predicate: F) -> Self
    where
        F: Fn(Value, TurnScope) -> Fut + 'static,
        Fut: Future<Output = Result<Approval>> + 'static,
    {
        self.gate = Gate::When;
        self.predicate = Some(Rc::new(move |input, scope| predicate(input, scope).boxed_local()));
        self
    }

    /// How long the page may take. [`Agent::client_tool_wait`](crate::Agent::client_tool_wait) and the page's own word win over it.
    pub fn wait(mut self, wait: ClientToolWait) -> Self {
        self.wait = wait;
        self
    }

    /// It may run this long, in milliseconds ([`limits::TOOL_TIMEOUT_MS`] if not said).
    pub fn timeout_ms(mut self, ms: u32) -> Self {
        self.timeout_ms = ms;
        self
    }

    /// A second start does nothing: it may be run again after a death.
    pub fn pure(mut self) -> Self {
        self.effect = EffectClass::Pure;
        self
    }

    /// A second start does nothing if [`TurnScope::idempotency_key`] is honoured.
    pub fn keyed(mut self) -> Self {
        self.effect = EffectClass::Keyed;
        self
    }

    /// What it does cannot be taken back: where it was interrupted and the model calls it again with the same input, a person has to
    /// allow that. The same as `on_ambiguous(Ambiguous::Ask)`.
    pub fn irreversible(self) -> Self {
        self.on_ambiguous(Ambiguous::Ask)
    }

    /// What follows where the object died while it ran and nobody knows how it ended. Says nothing of tools that may run again.
    pub fn on_ambiguous(mut self, what: Ambiguous) -> Self {
        self.ambiguous = what;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// What the model is told of it.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// What the engine has to know of it.
    pub(crate) fn def(&self) -> ToolDef {
        ToolDef {
            spec: self.spec.clone(),
            effect: self.effect,
            ambiguous: self.ambiguous,
            timeout_ms: self.timeout_ms,
            site: if self.run.is_some() { Site::Server } else { Site::Client },
            gate: self.gate,
            wait_ms: self.wait.ms(),
        }
    }

    pub(crate) fn start(&self, input: Value, scope: TurnScope) -> Option<LocalBoxFuture<'static, Result<Value, ToolError>>> {
        self.run.as_ref().map(|run| run(input, scope))
    }

    pub(crate) fn check_approval(&self, input: Value, scope: TurnScope) -> Option<LocalBoxFuture<'static, Result<Approval>>> {
        self.predicate.as_ref().map(|predicate| predicate(input, scope))
    }
}

/// The tools of a turn, in the order the model sees them.
#[derive(Clone, Default)]
pub struct Tools {
    list: Vec<Tool>,
    /// The first name that was declared twice.
    twice: Option<String>,
}

impl Tools {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. A turn whose tools have one of the same name already ends before any model call, with an error that names it.
    pub fn with(mut self, tool: Tool) -> Self {
        if self.get(tool.name()).is_some() {
            self.twice.get_or_insert_with(|| tool.name().to_owned());
        }
        self.put(tool);
        self
    }

    /// Adds all of `others`; one of the same name is replaced in its place.
    pub fn merge(mut self, others: Tools) -> Self {
        self.twice = self.twice.or(others.twice);
        others.list.into_iter().for_each(|tool| self.put(tool));
        self
    }

    fn put(&mut self, tool: Tool) {
        match self.list.iter_mut().find(|t| t.name() == tool.name()) {
            Some(same) => *same = tool,
            None => self.list.push(tool),
        }
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.list.iter().find(|t| t.name() == name)
    }

    /// Every tool.
    pub fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.list.iter()
    }

    /// Adds the tools of a page. The names of those that may not replace a server tool come back.
    pub(crate) fn merge_client(&mut self, page: &[ClientTool], may_override: &ClientToolOverride) -> Vec<String> {
        let mut refused = Vec::new();
        for tool in page {
            let name = &tool.spec.name;
            let new = Tool::new(tool.spec.clone(), None);
            let Some(same) = self.list.iter_mut().find(|t| t.name() == name) else {
                self.list.push(new.wait(tool.wait.unwrap_or_default()));
                continue;
            };
            let allowed = match may_override {
                ClientToolOverride::Allow => true,
                ClientToolOverride::Deny => false,
                ClientToolOverride::Protect(names) => !names.contains(name),
            };
            // A page must never be able to take the person out of the loop.
            if same.gate != Gate::Never || !allowed {
                refused.push(name.clone());
            } else {
                *same = new.wait(tool.wait.unwrap_or(same.wait));
            }
        }
        refused
    }

    /// Keeps those of these names.
    pub(crate) fn keep(&mut self, names: &[String]) {
        self.list.retain(|t| names.iter().any(|n| n == t.name()));
    }

    /// Refuses what a provider would refuse, with a text that names the tool.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(name) = &self.twice {
            return Err(Error::input(format!("tool `{name}` is declared twice")));
        }
        for tool in &self.list {
            let name = tool.name();
            if !is_tool_name(name) {
                return Err(Error::input(format!("tool `{name}`: a name has 1 to {} of a-z A-Z 0-9 _ -", limits::TOOL_NAME)));
            }
            schema::check_schema(&tool.spec.input_schema).map_err(|e| Error::input(format!("tool `{name}`: {e}")))?;
        }
        Ok(())
    }
}
