//! What hooks learn about a turn, and what they may change of it.

use serde_json::Value;

use crate::model::{ModelRef, Reasoning, ToolChoice};

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
}
