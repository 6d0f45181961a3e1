//! The tools a page brings: read from a request, checked, kept. Nothing here trusts them (`turns-and-tools.md` §8).

use serde_json::{Map, Value};

use super::schema;
use crate::{limits, model::ToolSpec};

/// A tool that runs in a page.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTool {
    /// What the model is told of it.
    pub spec: ToolSpec,
    /// How long its page may take; `None` if it does not say.
    pub wait: Option<ClientToolWait>,
}

/// How long a page's tool is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientToolWait {
    /// As long as it takes. Costs nothing meanwhile: no timer, no alarm.
    #[default]
    Park,
    /// So many milliseconds; then the call is settled as an error and the model goes on.
    Timeout(u32),
}

impl ClientToolWait {
    pub(crate) fn ms(self) -> Option<u32> {
        match self {
            ClientToolWait::Park => None,
            ClientToolWait::Timeout(ms) => Some(ms),
        }
    }
}

/// The tools of a page, and those of its entries that were not taken: the name, if there is one, and why.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) tools: Vec<ClientTool>,
    pub(super) refused: Vec<(String, String)>,
}

/// Reads a list of tools. An entry that cannot be used is left out; the others stay usable.
pub(super) fn read(list: &Value) -> Read {
    let mut read = Read::default();
    let Value::Array(entries) = list else {
        read.refused.push((String::new(), "`clientTools` is not an array".into()));
        return read;
    };
    let mut bytes = 0;
    for entry in entries {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default();
        match tool(name, entry) {
            Err(reason) => read.refused.push((shown(name), reason)),
            Ok((tool, size)) => {
                if let Some(same) = read.tools.iter_mut().find(|t| t.spec.name == name) {
                    read.refused.push((shown(name), "given twice, the later one counts".into()));
                    *same = tool;
                } else if read.tools.len() >= limits::CLIENT_TOOLS {
                    read.refused.push((shown(name), format!("more than {} (limits::CLIENT_TOOLS)", limits::CLIENT_TOOLS)));
                    continue;
                } else if bytes + size > limits::CLIENT_TOOLS_BYTES {
                    let most = limits::CLIENT_TOOLS_BYTES;
                    read.refused.push((shown(name), format!("more than {most} bytes in all (limits::CLIENT_TOOLS_BYTES)")));
                    continue;
                } else {
                    read.tools.push(tool);
                }
                bytes += size;
            }
        }
    }
    read
}

fn shown(name: &str) -> String {
    name.chars().take(limits::TOOL_NAME).collect()
}

fn tool(name: &str, entry: &Value) -> Result<(ClientTool, usize), String> {
    if !is_tool_name(name) {
        return Err(format!("a name has 1 to {} of a-z A-Z 0-9 _ -", limits::TOOL_NAME));
    }
    let input_schema = match entry.get("parameters") {
        None | Some(Value::Null) => Value::Object(Map::from_iter([("type".to_owned(), "object".into())])),
        Some(given) => {
            schema::check_schema(given)?;
            schema::clean(given.clone())
        }
    };
    let mut description = entry.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    super::calls::cut(&mut description, limits::TOOL_DESCRIPTION);
    let wait = match entry.get("timeoutMs") {
        Some(Value::Null) => Some(ClientToolWait::Park),
        // Saturates: a page may ask for any number.
        Some(Value::Number(ms)) => {
            let (least, most) = (*limits::CLIENT_WAIT_MS.start(), *limits::CLIENT_WAIT_MS.end());
            ms.as_f64().map(|ms| ClientToolWait::Timeout((ms as u32).clamp(least, most)))
        }
        _ => None,
    };
    let size = name.len() + description.len() + input_schema.to_string().len();
    Ok((ClientTool { spec: ToolSpec { name: name.to_owned(), description, input_schema }, wait }, size))
}

/// The tools that were kept with [`write`].
pub(super) fn stored(text: &str) -> Vec<ClientTool> {
    serde_json::from_str(text).map(|list| read(&list).tools).unwrap_or_default()
}

/// Whether every provider accepts this as the name of a tool.
pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=limits::TOOL_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The list as it is kept, to be read by [`read`] again.
pub(super) fn write(tools: &[ClientTool]) -> Option<String> {
    let entries: Vec<Value> = tools
        .iter()
        .map(|tool| {
            let mut entry = Map::new();
            entry.insert("name".into(), tool.spec.name.as_str().into());
            entry.insert("description".into(), tool.spec.description.as_str().into());
            entry.insert("parameters".into(), tool.spec.input_schema.clone());
            match tool.wait {
                None => {}
                Some(ClientToolWait::Park) => {
                    entry.insert("timeoutMs".into(), Value::Null);
                }
                Some(ClientToolWait::Timeout(ms)) => {
                    entry.insert("timeoutMs".into(), ms.into());
                }
            }
            Value::Object(entry)
        })
        .collect();
    (!entries.is_empty()).then(|| Value::Array(entries).to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_page_brings_is_checked_entry_by_entry() {
        // T59, turns-and-tools.md §8.2
        let deep = (0..200).fold(json!({}), |inner, _| json!({ "items": inner }));
        let loops = json!({"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/a"}}});
        let tree = json!({"type":"object","properties":{"sub":{"type":"array","items":{"$ref":"#"}}}});
        let table = [
            (json!({"name":"ok"}), Ok(json!({"type":"object"}))),
            (json!({"name":"A-z_09","parameters":{"type":"OBJECT","title":"T"}}), Ok(json!({"type":"object"}))),
            (json!({"name":"a b"}), Err("a name has")),
            (json!({"name":"x".repeat(65)}), Err("a name has")),
            (json!({"name":"é"}), Err("a name has")),
            (json!({"name":""}), Err("a name has")),
            (json!({"name":7}), Err("a name has")),
            (json!("text"), Err("a name has")),
            (json!({"name":"n","parameters":[]}), Err("a schema must be an object")),
            (json!({"name":"n","parameters":{"type":"string"}}), Err("must be \"object\"")),
            (json!({"name":"n","parameters":{"type":"object","properties":{"p":deep}}}), Err("nested deeper")),
            (json!({"name":"n","parameters":loops}), Err("leads through more than")),
            (json!({"name":"n","parameters":tree.clone()}), Ok(tree)),
        ];
        for (entry, expected) in table {
            let read = read(&json!([entry.clone(), {"name":"other"}]));
            let refused: Vec<&str> = read.refused.iter().map(|(_, reason)| reason.as_str()).collect();
            match expected {
                Ok(schema) => assert_eq!(read.tools[0].spec.input_schema, schema, "{entry} {refused:?}"),
                Err(reason) => assert!(refused[0].contains(reason), "{entry} {refused:?}"),
            }
            assert_eq!(read.tools.last().unwrap().spec.name, "other", "the others are still offered");
        }
    }

    #[test]
    fn floods_and_oddities_are_cut_down() {
        let many: Vec<Value> = (0..10_000).map(|n| json!({ "name": format!("t{n}") })).collect();
        let read_many = read(&Value::Array(many));
        assert_eq!((read_many.tools.len(), read_many.refused.len()), (limits::CLIENT_TOOLS, 10_000 - limits::CLIENT_TOOLS));
        let long = json!({"name":"d","description":"é".repeat(9_000)});
        assert_eq!(read(&json!([long])).tools[0].spec.description.len(), limits::TOOL_DESCRIPTION);
        let large: Vec<Value> =
            (0..20).map(|n| json!({"name":format!("t{n}"),"parameters":{"type":"object","description":"x".repeat(30_000)}})).collect();
        assert_eq!(read(&Value::Array(large)).tools.len(), 8);
        let twice = read(&json!([{"name":"a","description":"1"},{"name":"b"},{"name":"a","description":"2"}]));
        let named: Vec<(&str, &str)> = twice.tools.iter().map(|t| (t.spec.name.as_str(), t.spec.description.as_str())).collect();
        assert_eq!(named, [("a", "2"), ("b", "")]);
        assert_eq!(read(&json!({})).refused.len(), 1);
    }

    #[test]
    fn how_long_a_page_may_take_is_clamped() {
        // turns-and-tools.md §11
        use ClientToolWait::{Park, Timeout};
        for (said, expected) in [
            (json!(null), Some(Park)),
            (json!(2_000), Some(Timeout(2_000))),
            (json!(1), Some(Timeout(1_000))),
            (json!(-5), Some(Timeout(1_000))),
            (json!(1e12), Some(Timeout(86_400_000))),
            (json!("soon"), None),
        ] {
            let once = read(&json!([{"name":"a","timeoutMs":said}]));
            assert_eq!(once.tools[0].wait, expected, "{said}");
            let kept: Value = serde_json::from_str(&write(&once.tools).unwrap()).unwrap();
            assert_eq!(read(&kept).tools, once.tools, "it is kept as it was");
        }
        assert_eq!(write(&[]), None);
    }
}
