//! What hooks learn about a turn, and what they may change of it.

use std::rc::Rc;

use serde_json::Value;

use crate::{
    engine::outcome::StepResult,
    model::{ModelRef, Msg, Reasoning, ToolChoice},
};

use super::tool::Tools;

pub use crate::engine::outcome::TurnInfo as Turn;

/// Changes for one turn; what is `None` stays as the agent's methods said.
#[derive(Clone, Default)]
pub struct TurnPlan {
    /// Another model.
    pub model: Option<ModelRef>,
    /// Another system prompt.
    pub instructions: Option<String>,
    /// More tools; one of an equal name replaces the agent's.
    pub tools: Tools,
    /// The only tools the model is shown.
    pub active_tools: Option<Vec<String>>,
    /// Whether and what the model must call.
    pub tool_choice: Option<ToolChoice>,
    /// Model calls at most. Zero is an error.
    pub max_steps: Option<u32>,
    /// Tokens of one answer at most.
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// How much to think.
    pub reasoning: Option<Reasoning>,
    /// Metadata of the reply; clients see it at once.
    pub message_metadata: Option<Value>,
    /// The turn ends with the step that calls one of these tools.
    pub stop_after: Vec<String>,
}

/// A model call that is about to be made.
#[derive(Clone, Debug)]
pub struct Step {
    /// The turn.
    pub turn: Rc<Turn>,
    /// The step, from 1.
    pub step: u32,
    /// Who is asked.
    pub model: ModelRef,
    /// What is asked, oldest first.
    pub messages: Vec<Rc<Msg>>,
    /// The steps of this turn before it.
    pub previous: Vec<Rc<StepResult>>,
}

/// Changes for one model call; what is `None` stays as it is for the turn.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// Another model.
    pub model: Option<ModelRef>,
    /// Another system prompt.
    pub instructions: Option<String>,
    /// Other messages; only this request has them.
    pub messages: Option<Vec<Msg>>,
    /// The only tools the model is shown.
    pub active_tools: Option<Vec<String>>,
    /// Whether and what the model must call.
    pub tool_choice: Option<ToolChoice>,
}

/// What becomes of a call before its tool runs.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolDecision {
    /// It runs, with another input if there is one. That is not checked again.
    Allow {
        /// The other input.
        input: Option<Value>,
    },
    /// It does not run; the model is told why.
    Block {
        /// Why; a sentence of ours if `None`.
        reason: Option<String>,
    },
    /// It does not run; this is its result.
    Substitute {
        /// The result.
        output: Value,
    },
}
