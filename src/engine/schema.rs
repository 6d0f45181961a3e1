//! Decides whether a tool's input fits its JSON Schema, in words a model can correct itself by (`turns-and-tools.md` §6.4).
//!
//! A subset, without a schema crate: what models get wrong is checked, `pattern`, `format` and unknown keywords are not. Schemas
//! come from pages too, so nothing here trusts one: recursion and work are bounded, references stay inside the schema. An input
//! is never changed to make it fit.

use std::io;

use serde_json::{Map, Number, Value};

use crate::limits::{SCHEMA_DEPTH, SCHEMA_FAULTS, SCHEMA_FRAMES, SCHEMA_HOPS, SCHEMA_LISTED, SCHEMA_SHOWN, SCHEMA_WORK, TOOL_SCHEMA};

/// Checks `input`.
///
/// # Errors
/// What does not fit, each with the place as a JSON pointer: `/city: missing; /n: expected integer, got string "x"`.
pub fn validate(schema: &Value, input: &Value) -> Result<(), String> {
    let mut check = Check { root: schema, work: SCHEMA_WORK, exhausted: false };
    let mut faults = Faults { list: Vec::new(), most: SCHEMA_FAULTS };
    check.value(schema, input, &mut String::new(), Depth::default(), &mut faults);
    if check.exhausted {
        return Err("the input is too large or too deep for its schema; send less at once".into());
    }
    if faults.list.is_empty() { Ok(()) } else { Err(faults.list.join("; ")) }
}

/// Checks a schema for the input of a tool: an object that describes an object, not too large or deep, complete in itself.
///
/// # Errors
/// What is wrong with it, and where.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let Value::Object(root) = schema else { return Err(format!("a schema must be an object, got {}", show(schema))) };
    if let Some(kind) = root.get("type")
        && !names(kind).any(|name| name.eq_ignore_ascii_case("object"))
    {
        return Err(format!("`type` must be \"object\": the input of a tool is an object, got {}", show(kind)));
    }
    let mut places = vec![(schema, 1)];
    while let Some((value, depth)) = places.pop() {
        if depth > SCHEMA_DEPTH {
            return Err(format!("the schema is nested deeper than {SCHEMA_DEPTH} levels"));
        }
        match value {
            Value::Object(fields) => places.extend(fields.values().map(|field| (field, depth + 1))),
            Value::Array(items) => places.extend(items.iter().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    // Only now: writing JSON recurses.
    let size = schema.to_string().len();
    if size > TOOL_SCHEMA {
        return Err(format!("the schema has {size} bytes, limit {TOOL_SCHEMA}"));
    }
    let mut schemas = vec![schema];
    while let Some(at) = schemas.pop() {
        if let Some(reference) = at.get("$ref") {
            check_reference(schema, reference)?;
        }
        schemas.extend(at.as_object().into_iter().flatten().flat_map(|(key, value)| children(key, value)));
    }
    Ok(())
}

/// A schema as providers like it: without `$schema` and `title`, type names in lower case, an object at the top (the schema of
/// `()` becomes that of no input). Everything else stays, in its order.
pub fn clean(schema: Value) -> Value {
    let mut schema = schema;
    clean_at(&mut schema, SCHEMA_DEPTH);
    match schema {
        Value::Object(mut root) if root.get("type").is_none_or(|kind| names(kind).any(|name| name == "object")) => {
            if !root.contains_key("type") && !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| root.contains_key(*key)) {
                root.insert("type".into(), "object".into());
            }
            Value::Object(root)
        }
        Value::Object(root) if root.get("type") == Some(&Value::from("null")) => no_input(),
        Value::Null | Value::Bool(true) => no_input(),
        other => other,
    }
}

fn no_input() -> Value {
    Value::Object(Map::from_iter([("type".to_owned(), "object".into()), ("properties".to_owned(), Value::Object(Map::new()))]))
}

fn clean_at(schema: &mut Value, levels: usize) {
    let (Value::Object(fields), Some(levels)) = (schema, levels.checked_sub(1)) else { return };
    fields.shift_remove("$schema");
    fields.shift_remove("title");
    match fields.get_mut("type") {
        Some(Value::String(name)) => name.make_ascii_lowercase(),
        Some(Value::Array(kinds)) => kinds.iter_mut().for_each(|kind| {
            if let Value::String(name) = kind {
                name.make_ascii_lowercase();
            }
        }),
        _ => {}
    }
    for (key, value) in fields {
        match (place(key), value) {
            (Place::One, Value::Array(list)) | (Place::List, Value::Array(list)) => {
                list.iter_mut().for_each(|schema| clean_at(schema, levels));
            }
            (Place::One, schema) => clean_at(schema, levels),
            (Place::Named, Value::Object(named)) => named.values_mut().for_each(|schema| clean_at(schema, levels)),
            _ => {}
        }
    }
}

/// Where schemas are inside a schema. Elsewhere an object is data: a property may be called `title`.
enum Place {
    /// The value is a schema (or, for `items` of older drafts, a list).
    One,
    /// The value is a list of schemas.
    List,
    /// The value is an object of schemas.
    Named,
    /// No schema.
    None,
}

fn place(keyword: &str) -> Place {
    match keyword {
        "items"
        | "additionalItems"
        | "additionalProperties"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else" => Place::One,
        "prefixItems" | "anyOf" | "oneOf" | "allOf" => Place::List,
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => Place::Named,
        _ => Place::None,
    }
}

fn children<'a>(keyword: &str, value: &'a Value) -> Vec<&'a Value> {
    match (place(keyword), value) {
        (Place::One | Place::List, Value::Array(list)) => list.iter().collect(),
        (Place::One, schema) => vec![schema],
        (Place::Named, Value::Object(named)) => named.values().collect(),
        _ => Vec::new(),
    }
}

fn check_reference(root: &Value, reference: &Value) -> Result<(), String> {
    let mut reference = reference;
    for _ in 0..SCHEMA_HOPS {
        let Some(text) = reference.as_str() else { return Err(format!("`$ref` must be a string, got {}", show(reference))) };
        let Some(target) = resolve(root, text) else {
            return Err(format!(
                "`$ref` {} is not found: only references into `$defs` or `definitions` of the same schema work",
                quoted(text)
            ));
        };
        match target.get("$ref") {
            Some(next) => reference = next,
            None => return Ok(()),
        }
    }
    Err(format!("`$ref` {} leads through more than {SCHEMA_HOPS} references", show(reference)))
}

fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    let inside = pointer.is_empty() || pointer.starts_with("/$defs/") || pointer.starts_with("/definitions/");
    if inside { root.pointer(pointer) } else { None }
}

/// The names in a `type`: one, or a list.
fn names(kind: &Value) -> impl Iterator<Item = &str> {
    let list = kind.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(kind));
    list.iter().filter_map(Value::as_str)
}

struct Faults {
    list: Vec<String>,
    most: usize,
}

impl Faults {
    fn add(&mut self, path: &str, fault: impl FnOnce() -> String) {
        if !self.full() {
            let place = if path.is_empty() { "input".to_owned() } else { cut(path, 4 * SCHEMA_SHOWN) };
            self.list.push(format!("{place}: {}", fault()));
        }
    }

    fn full(&self) -> bool {
        self.list.len() >= self.most
    }
}

#[derive(Clone, Copy, Default)]
struct Depth {
    frames: usize,
    /// Schemas applied to the same value.
    hops: usize,
}

impl Depth {
    fn inside(self) -> Self {
        Self { frames: self.frames + 1, hops: 0 }
    }

    fn beside(self) -> Self {
        Self { frames: self.frames + 1, hops: self.hops + 1 }
    }
}

struct Check<'a> {
    root: &'a Value,
    work: usize,
    exhausted: bool,
}

impl<'a> Check<'a> {
    fn value(&mut self, schema: &'a Value, input: &Value, path: &mut String, depth: Depth, faults: &mut Faults) {
        self.work = self.work.saturating_sub(1);
        if self.work == 0 || depth.frames > SCHEMA_FRAMES || depth.hops > SCHEMA_HOPS {
            self.exhausted = true;
        }
        if self.exhausted || faults.full() {
            return;
        }
        let rules = match schema {
            Value::Object(rules) => rules,
            Value::Bool(false) => return faults.add(path, || "not allowed".into()),
            _ => return,
        };
        if input.is_null() && rules.get("nullable") == Some(&Value::Bool(true)) {
            return;
        }
        if let Some(target) = rules.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(self.root, reference)) {
            self.value(target, input, path, depth.beside(), faults);
        }
        if let Some(kind) = rules.get("type")
            && !has_type(kind, input)
        {
            // What follows would only repeat it.
            return faults.add(path, || {
                let expected: Vec<String> =
                    names(kind).map(|name| cut(&name.to_ascii_lowercase(), SCHEMA_SHOWN)).take(SCHEMA_LISTED).collect();
                format!("expected {}, got {}", expected.join(" or "), describe(input))
            });
        }
        if let Some(Value::Array(allowed)) = rules.get("enum")
            && !allowed.iter().any(|value| same(value, input))
        {
            faults.add(path, || format!("expected {}, got {}", one_of(allowed.iter().map(show)), show(input)));
        }
        if let Some(value) = rules.get("const").filter(|value| !same(value, input)) {
            faults.add(path, || format!("expected {}, got {}", show(value), show(input)));
        }
        match input {
            Value::Object(fields) => self.object(rules, fields, path, depth, faults),
            Value::Array(items) => self.array(rules, items, path, depth, faults),
            Value::String(text) => length(rules, text, path, faults),
            Value::Number(number) => range(rules, number, path, faults),
            Value::Null | Value::Bool(_) => {}
        }
        self.combinations(rules, input, path, depth, faults);
    }

    fn object(
        &mut self,
        rules: &'a Map<String, Value>,
        fields: &Map<String, Value>,
        path: &mut String,
        depth: Depth,
        faults: &mut Faults,
    ) {
        let properties = rules.get("properties").and_then(Value::as_object);
        for name in rules.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                within(path, name, |path| faults.add(path, || "missing".into()));
            }
        }
        // Patterns are not evaluated, so nobody can say which properties are left over for `additionalProperties`.
        let additional = rules.get("additionalProperties").filter(|_| !rules.contains_key("patternProperties"));
        for (name, value) in fields {
            match (properties.and_then(|known| known.get(name)), additional) {
                (Some(schema), _) => within(path, name, |path| self.value(schema, value, path, depth.inside(), faults)),
                (None, Some(Value::Bool(false))) => within(path, name, |path| {
                    faults.add(path, || match properties.filter(|known| !known.is_empty()) {
                        Some(known) => {
                            format!("unknown property; known: {}", listed(known.keys().map(|name| cut(name, SCHEMA_SHOWN))))
                        }
                        None => "unknown property; none is expected".into(),
                    });
                }),
                (None, Some(schema)) => within(path, name, |path| self.value(schema, value, path, depth.inside(), faults)),
                (None, None) => {}
            }
        }
    }

    fn array(&mut self, rules: &'a Map<String, Value>, items: &[Value], path: &mut String, depth: Depth, faults: &mut Faults) {
        let count = items.len();
        at_least(rules, "minItems", count, "items", path, faults);
        at_most(rules, "maxItems", count, "items", path, faults);
        // Before draft 2020-12 a list of schemas stood in `items`.
        let (first, rest) = match (rules.get("prefixItems"), rules.get("items")) {
            (Some(Value::Array(first)), rest) => (first.as_slice(), rest),
            (_, Some(Value::Array(first))) => (first.as_slice(), rules.get("additionalItems")),
            (_, rest) => (&[][..], rest),
        };
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or(rest) {
                within(path, &index.to_string(), |path| self.value(schema, item, path, depth.inside(), faults));
            }
        }
    }

    fn combinations(&mut self, rules: &'a Map<String, Value>, input: &Value, path: &mut String, depth: Depth, faults: &mut Faults) {
        let list = |key| rules.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for schema in list("allOf") {
            self.value(schema, input, path, depth.beside(), faults);
        }
        for (key, exclusive) in [("anyOf", false), ("oneOf", true)] {
            let alternatives = list(key);
            let mut fitting = Vec::new();
            let mut reasons = Vec::new();
            for (index, schema) in alternatives.iter().enumerate() {
                let mut own = Faults { list: Vec::new(), most: 1 };
                self.value(schema, input, path, depth.beside(), &mut own);
                match own.list.pop() {
                    Some(reason) => reasons.push(format!("{}: {}", index + 1, cut(&reason, 4 * SCHEMA_SHOWN))),
                    None => fitting.push(index + 1),
                }
                if self.exhausted || (!exclusive && !fitting.is_empty()) {
                    break;
                }
            }
            match fitting.as_slice() {
                [] if !alternatives.is_empty() => {
                    reasons.truncate(SCHEMA_FAULTS);
                    faults.add(path, || format!("none of {} alternatives fits ({})", alternatives.len(), reasons.join(" | ")));
                }
                [first, second, ..] => {
                    faults.add(path, || format!("fits alternatives {first} and {second}, but must fit exactly one"));
                }
                _ => {}
            }
        }
    }
}

/// Runs `check` with `name` at the end of the path.
fn within(path: &mut String, name: &str, check: impl FnOnce(&mut String)) {
    let parent = path.len();
    path.push('/');
    path.push_str(&cut(name, SCHEMA_SHOWN).replace('~', "~0").replace('/', "~1"));
    check(path);
    path.truncate(parent);
}

fn length(rules: &Map<String, Value>, text: &str, path: &str, faults: &mut Faults) {
    if rules.contains_key("minLength") || rules.contains_key("maxLength") {
        let count = text.chars().count();
        at_least(rules, "minLength", count, "characters", path, faults);
        at_most(rules, "maxLength", count, "characters", path, faults);
    }
}

fn at_least(rules: &Map<String, Value>, key: &str, count: usize, unit: &str, path: &str, faults: &mut Faults) {
    if let Some(limit) = rules.get(key).filter(|limit| limit.as_f64().is_some_and(|limit| (count as f64) < limit)) {
        faults.add(path, || format!("expected at least {limit} {unit}, got {count}"));
    }
}

fn at_most(rules: &Map<String, Value>, key: &str, count: usize, unit: &str, path: &str, faults: &mut Faults) {
    if let Some(limit) = rules.get(key).filter(|limit| limit.as_f64().is_some_and(|limit| (count as f64) > limit)) {
        faults.add(path, || format!("expected at most {limit} {unit}, got {count}"));
    }
}

fn range(rules: &Map<String, Value>, number: &Number, path: &str, faults: &mut Faults) {
    let Some(got) = number.as_f64() else { return };
    let bounds =
        [("minimum", "exclusiveMinimum", "at least", "more than", 1.0), ("maximum", "exclusiveMaximum", "at most", "less than", -1.0)];
    for (inclusive, exclusive, at, beyond, side) in bounds {
        // Before draft 6 `exclusiveMinimum: true` changed the meaning of `minimum`.
        let strict = rules.get(exclusive) == Some(&Value::Bool(true));
        for (key, strict) in [(inclusive, strict), (exclusive, true)] {
            let outside = |limit: f64| {
                let room = (got - limit) * side;
                room < 0.0 || (strict && room == 0.0)
            };
            if let Some(limit) = rules.get(key).filter(|limit| limit.as_f64().is_some_and(outside)) {
                faults.add(path, || format!("expected {} {limit}, got {number}", if strict { beyond } else { at }));
            }
        }
    }
}

fn has_type(kind: &Value, input: &Value) -> bool {
    let mut names = names(kind).peekable();
    let fits = |name: &str| match name.to_ascii_lowercase().as_str() {
        "object" => input.is_object(),
        "array" => input.is_array(),
        "string" => input.is_string(),
        "boolean" => input.is_boolean(),
        "null" => input.is_null(),
        "number" => input.is_number(),
        "integer" => input.as_i64().is_some() || input.as_u64().is_some() || input.as_f64().is_some_and(|n| n.fract() == 0.0),
        _ => true,
    };
    names.peek().is_none() || names.any(fits)
}

/// Equality of JSON: `1` and `1.0` are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn one_of(values: impl ExactSizeIterator<Item = String>) -> String {
    if values.len() == 1 { values.collect() } else { format!("one of {}", listed(values)) }
}

fn listed(values: impl ExactSizeIterator<Item = String>) -> String {
    let more = values.len() > SCHEMA_LISTED;
    let mut text = values.take(SCHEMA_LISTED).collect::<Vec<_>>().join(", ");
    if more {
        text.push_str(", …");
    }
    text
}

fn describe(input: &Value) -> String {
    match input {
        Value::Null => "null".into(),
        Value::Bool(_) => format!("boolean {}", show(input)),
        Value::Number(_) => format!("number {}", show(input)),
        Value::String(_) => format!("string {}", show(input)),
        Value::Array(_) => "array".into(),
        Value::Object(_) => "object".into(),
    }
}

fn quoted(text: &str) -> String {
    show(&Value::from(cut(text, SCHEMA_SHOWN)))
}

/// The beginning of a value as JSON. However large it is, only that much is written.
fn show(value: &Value) -> String {
    struct Beginning(Vec<u8>);
    impl io::Write for Beginning {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Enough for one character more than is shown, of four bytes each.
            let room = (4 * SCHEMA_SHOWN + 4).saturating_sub(self.0.len());
            self.0.extend(bytes.iter().take(room));
            Ok(room.min(bytes.len()))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut beginning = Beginning(Vec::new());
    // Fails when the room is used up, which is the point.
    let _ = serde_json::to_writer(&mut beginning, value);
    cut(&String::from_utf8_lossy(&beginning.0), SCHEMA_SHOWN)
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => [text.get(..end).unwrap_or_default(), "…"].concat(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fault(schema: &Value, input: &Value) -> String {
        validate(schema, input).err().unwrap_or_default()
    }

    #[test]
    fn a_fault_says_where_what_and_instead_of_what() {
        // T44
        let schema = json!({
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 2, "maxLength": 5},
                "n": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
                "unit": {"enum": ["c", "f"]},
                "kind": {"const": "fixed"},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
                "pair": {"prefixItems": [{"type": "integer"}], "items": false},
                "maybe": {"type": ["string", "null"]},
                "open": {"type": "STRING", "nullable": true},
                "who": {"$ref": "#/$defs/person"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["x"]}]},
                "one": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
                "all": {"allOf": [{"minimum": 1}, {"maximum": 3}]},
                "old": {"minimum": 1, "exclusiveMinimum": true},
                "a/b~c": {"type": "null"},
            },
            "required": ["city"],
            "additionalProperties": false,
            "$defs": {"person": {"type": "object",
                 "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/person"}}, "required": ["name"]}}
        });
        let ok = json!({
            "city": "Köln", "n": 9.0, "unit": "f", "kind": "fixed", "tags": ["a"], "pair": [1], "maybe": null, "open": null,
            "who": {"name": "A", "boss": {"name": "B"}}, "either": {"x": 1}, "one": 1.5, "all": 2, "old": 1.1, "a/b~c": null,
        });
        assert_eq!(validate(&schema, &ok), Ok(()));
        let table = [
            ("city", json!(null), "/city: expected string, got null"),
            ("city", json!("x"), "/city: expected at least 2 characters, got 1"),
            ("city", json!("ÄÖÜäöü"), "/city: expected at most 5 characters, got 6"),
            ("n", json!("x"), r#"/n: expected integer, got string "x""#),
            ("n", json!(1.5), "/n: expected integer, got number 1.5"),
            ("n", json!(0), "/n: expected at least 1, got 0"),
            ("n", json!(10), "/n: expected less than 10, got 10"),
            ("unit", json!("k"), r#"/unit: expected one of "c", "f", got "k""#),
            ("kind", json!(1), r#"/kind: expected "fixed", got 1"#),
            ("tags", json!([]), "/tags: expected at least 1 items, got 0"),
            ("tags", json!(["a", 2, "c"]), "/tags: expected at most 2 items, got 3; /tags/1: expected string, got number 2"),
            ("pair", json!([1, 2]), "/pair/1: not allowed"),
            ("maybe", json!(true), "/maybe: expected string or null, got boolean true"),
            ("open", json!([]), "/open: expected string, got array"),
            ("who", json!({"name":"A","boss":{}}), "/who/boss/name: missing"),
            (
                "either",
                json!({}),
                "/either: none of 2 alternatives fits (1: /either: expected integer, got object | 2: /either/x: missing)",
            ),
            ("one", json!(1), "/one: fits alternatives 1 and 2, but must fit exactly one"),
            ("all", json!(4), "/all: expected at most 3, got 4"),
            ("old", json!(1), "/old: expected more than 1, got 1"),
            ("a/b~c", json!(1), "/a~1b~0c: expected null, got number 1"),
        ];
        for (name, value, expected) in table {
            let mut input = ok.clone();
            input.as_object_mut().unwrap().insert(name.into(), value);
            assert_eq!(fault(&schema, &input), expected);
        }
        assert_eq!(fault(&schema, &json!({})), "/city: missing");
        assert_eq!(fault(&schema, &json!([])), "input: expected object, got array");
        let unknown = fault(&schema, &json!({"city":"Bonn","zip":1}));
        assert!(unknown.starts_with("/zip: unknown property; known: city, n, unit"), "{unknown}");
        assert_eq!(
            fault(&json!({"type":"object","additionalProperties":false}), &json!({"x":1})),
            "/x: unknown property; none is expected"
        );
        assert_eq!(
            fault(&json!({"additionalProperties":{"type":"integer"}}), &json!({"x":"1"})),
            r#"/x: expected integer, got string "1""#
        );
    }

    #[test]
    fn what_is_not_enforced_is_accepted() {
        for schema in [
            json!({}),
            json!(true),
            json!({"pattern":"^x$","format":"email","if":{"const":1},"then":false,"zzz":{}}),
            json!({"type":"any"}),
            json!({"type":[]}),
            json!({"type":7,"required":"x","properties":[],"enum":"x","anyOf":{},"minLength":"2","items":3}),
            json!({"$ref":"https://e.org/s"}),
            json!({"patternProperties":{"^x":{}},"additionalProperties":false}),
        ] {
            assert_eq!(validate(&schema, &json!("abc")), Ok(()), "{schema}");
            assert_eq!(validate(&schema, &json!({"x1":1})), Ok(()), "{schema}");
        }
    }

    #[test]
    fn hostile_schemas_end() {
        let turns = json!({"$ref":"#"});
        assert!(validate(&turns, &json!({})).is_err());
        assert!(check_schema(&turns).is_err());
        let bomb =
            json!({"$defs":{"a":{"anyOf":[{"allOf":[{"$ref":"#/$defs/a"}]},{"allOf":[{"$ref":"#/$defs/a"}]}]}},"$ref":"#/$defs/a"});
        assert!(validate(&bomb, &json!(1)).is_err());
        let branching: Vec<Value> =
            (0..50).map(|_| json!({"type":"object","properties":{"x":{"$ref":"#"}},"required":["y"]})).collect();
        let mut input = json!(1);
        for _ in 0..60 {
            input = json!({"x":input});
        }
        assert!(validate(&json!({"anyOf":branching}), &input).is_err());
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(validate(&json!({"items":{"$ref":"#"}}), &deep), Ok(()));
    }

    #[test]
    fn messages_stay_short() {
        let long = "ß".repeat(100_000);
        let schema = json!({"properties":{"e":{"enum":(0..500).map(|i| format!("value {i}")).collect::<Vec<_>>()}},
            "additionalProperties":false});
        let mut input = Map::from_iter([("e".to_owned(), json!({"k":long}))]);
        for i in 0..50 {
            input.insert(format!("{long}{i}"), json!(long));
        }
        let text = fault(&schema, &Value::Object(input));
        assert!(text.len() < crate::limits::TOOL_ERROR, "{}", text.len());
        assert_eq!(text.matches("; /").count(), SCHEMA_FAULTS - 1, "{text}");
    }

    #[test]
    fn a_schema_is_refused_with_a_reason() {
        // T60
        let good = json!({"type":"OBJECT","properties":{"$ref":{"type":"string"},"x":{"$ref":"#/definitions/x"}},
            "definitions":{"x":{"$ref":"#/$defs/y"}},"$defs":{"y":{}}});
        assert_eq!(check_schema(&good), Ok(()));
        assert_eq!(check_schema(&json!({})), Ok(()));
        let table = [
            (json!([]), "must be an object"),
            (json!({"type":"string"}), r#"`type` must be "object""#),
            (json!({"properties":{"x":{"$ref":"#/$defs/x"}}}), r##""#/$defs/x" is not found"##),
            (json!({"items":{"$ref":"https://e.org/x"}}), "is not found"),
            (json!({"items":{"$ref":1}}), "must be a string"),
            (json!({"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#/$defs/x"}}}), "more than 32 references"),
            (json!({"description":"x".repeat(70_000)}), "limit 65536"),
            ((0..100).fold(json!({}), |inner, _| json!({"items":inner})), "deeper than 64"),
        ];
        for (schema, reason) in table {
            let error = check_schema(&schema).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_cleaned_schema_is_one_providers_like() {
        let table = [
            (
                json!({"$schema":"s","title":"Args","type":"OBJECT",
                    "properties":{"title":{"title":"T","type":"STRING"},"n":{"type":["INTEGER","NULL"]}},"required":["title"]}),
                json!({"type":"object","properties":{"title":{"type":"string"},"n":{"type":["integer","null"]}},"required":["title"]}),
            ),
            (json!({"$schema":"s","title":"null","type":"null"}), json!({"type":"object","properties":{}})),
            (json!(true), json!({"type":"object","properties":{}})),
            (json!({"properties":{}}), json!({"properties":{},"type":"object"})),
            (json!({"anyOf":[{"title":"A","type":"OBJECT"}]}), json!({"anyOf":[{"type":"object"}]})),
            (
                json!({"type":"object","$defs":{"title":{"title":"x","enum":["A"],"default":{"title":"kept","type":"KEPT"}}}}),
                json!({"type":"object","$defs":{"title":{"enum":["A"],"default":{"title":"kept","type":"KEPT"}}}}),
            ),
            (json!({"type":"string"}), json!({"type":"string"})),
            (json!([1]), json!([1])),
        ];
        for (schema, expected) in table {
            let cleaned = clean(schema);
            assert_eq!(cleaned.to_string(), expected.to_string());
            assert_eq!(clean(cleaned.clone()), cleaned);
        }
    }

    #[derive(schemars::JsonSchema)]
    #[allow(dead_code)]
    struct Forecast {
        /// Where.
        city: String,
        days: Option<u8>,
    }

    #[test]
    fn schemas_of_types_are_cleaned_and_checked() {
        let schema = clean(schemars::schema_for!(Forecast).to_value());
        assert_eq!(check_schema(&schema), Ok(()));
        assert!(schema.get("title").is_none() && schema.get("$schema").is_none());
        assert_eq!(validate(&schema, &json!({"city":"Bonn"})), Ok(()));
        assert_eq!(fault(&schema, &json!({"days":3})), "/city: missing");
        assert_eq!(fault(&schema, &json!({"city":"Bonn","days":300})), "/days: expected at most 255, got 300");
        assert_eq!(clean(schemars::schema_for!(()).to_value()), json!({"type":"object","properties":{}}));
    }
}
