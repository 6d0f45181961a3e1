//! The agent that is compared with the original: model, tools and classes are those of `../peer/worker.mjs`.

use std::borrow::Cow;

use serde_json::{Value, json};
use wakeful::prelude::*;

pub struct Twin {
    concurrency: MessageConcurrency,
    model: ModelRef,
}

impl Twin {
    pub fn new(concurrency: MessageConcurrency, model: ModelRef) -> Self {
        Self { concurrency, model }
    }
}

/// Two integers and what is between them.
fn calculate(expression: &str) -> Option<i64> {
    let mut words = expression.split_whitespace();
    let (Some(a), Some(operation), Some(b), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return None;
    };
    let (a, b) = (a.parse::<i64>().ok()?, b.parse::<i64>().ok()?);
    match operation {
        "+" => Some(a + b),
        "-" => Some(a - b),
        "*" => Some(a * b),
        _ => None,
    }
}

fn object(field: &str, kind: &str) -> Value {
    json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field], "additionalProperties": false })
}

fn nothing() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

impl Agent for Twin {
    fn model(&self, _: &Turn) -> ModelRef {
        self.model.clone()
    }

    fn instructions(&self, _: &Turn) -> Cow<'static, str> {
        "Be brief.".into()
    }

    fn config(&self) -> Config {
        Config { message_concurrency: self.concurrency, ..Config::default() }
    }

    fn tools(&self, _: &Turn) -> Tools {
        Tools::new()
            .with(Tool::dynamic(
                "calculate",
                "Evaluates an expression of two integers",
                object("expression", "string"),
                |input, _| async move {
                    let result = input["expression"].as_str().and_then(calculate).ok_or("not an expression")?;
                    Ok(json!({ "result": result }))
                },
            ))
            .with(Tool::dynamic("current_time", "The time of day", nothing(), |_, _| async move { Ok(json!({ "time": "noon" })) }))
            .with(Tool::client_dynamic("locate", "Where the user is", nothing()))
            .with(
                Tool::dynamic("transfer", "Moves money", object("amount", "number"), |input, _| async move {
                    Ok(json!({ "moved": input["amount"] }))
                })
                .needs_approval(),
            )
            .with(
                Tool::dynamic(
                    "spend",
                    "Spends money; small amounts without asking",
                    object("amount", "number"),
                    |input, _| async move { Ok(json!({ "spent": input["amount"] })) },
                )
                .needs_approval_when(|input, _| async move {
                    Ok(if input["amount"].as_f64() > Some(100.0) { Approval::Ask } else { Approval::Allow })
                }),
            )
    }

    fn callables(&self) -> Callables {
        Callables::new().with("ask", |call| async move {
            let (id, text): (String, String) = (call.arg(0)?, call.arg(1)?);
            let message: Value = json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] });
            let result = call.handle.save_messages(vec![serde_json::from_value(message)?]).await?;
            Ok(Some(json!(result.status.as_str())))
        })
    }
}
