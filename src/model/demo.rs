//! The built-in demo model (decision 23): a rule for each thing worth trying, no model, no network, no chance.
//!
//! The rules look at the last message only: a person's words, or the results of the calls that were made for them. The same request
//! always gives the same answer, so an answer that was interrupted goes on where it stopped: it is made again, and what was said of it
//! is left out.

use std::rc::Rc;

use serde_json::{Map, Value, json};

use super::{
    AssistantPart, Finish, FinishReason, ModelEvent, ModelRequest, Msg, ToolChoice, ToolOutput, ToolResult, ToolSpec, UserPart,
};
use crate::transcript::{prompt::CHECKPOINT, repair::INTERRUPTED};

/// Milliseconds from word to word: about as fast as one reads.
const WORD_MS: u32 = 25;
/// Seconds the slow talk lasts at most.
const SLOW_MOST: u32 = 600;
/// Seconds it lasts if nobody says how long.
const SLOW_DEFAULT: u32 = 30;
/// Words in one second of the slow talk.
const SLOW_WORDS: u32 = 5;
/// Characters of a result that are repeated in the answer.
const RESULT_SHOWN: usize = 600;
/// Times that tools are called for one message. One whose calls are cut off again and again is not called for ever.
const CALLS_MOST: usize = 5;

/// What the demo says, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Each event with the milliseconds to wait before it.
    pub events: Vec<(u32, ModelEvent)>,
    /// How it ends.
    pub finish: Finish,
}

/// The answer to a request.
pub fn script(request: &ModelRequest) -> Script {
    let (asked, said) = interrupted(&request.messages);
    if said.is_empty() {
        return whole(request);
    }
    let answer = whole(&ModelRequest { messages: asked.to_vec(), ..request.clone() });
    answer.rest(&said).unwrap_or_else(|| {
        // Somebody else's words, or a conversation that has changed since.
        let mut answer = Answer::new();
        answer.say("And that is all I had to say.");
        answer.script()
    })
}

/// The answer to a request, from its first word.
fn whole(request: &ModelRequest) -> Script {
    let mut answer = Answer::new();
    match request.messages.last().map(|message| &**message) {
        Some(Msg::Tool(results)) => to_results(results, request, &mut answer),
        Some(Msg::User(parts)) => to_person(parts, request, &mut answer),
        Some(Msg::Assistant(_)) | None => answer.say(&introduction(request)),
    }
    answer.script()
}

/// What is to be answered, and the words of the answer that were said before it was interrupted: once, or several times.
fn interrupted(messages: &[Rc<Msg>]) -> (&[Rc<Msg>], String) {
    let is_own = |message: &&Rc<Msg>| matches!(&***message, Msg::Assistant(_));
    let messages = match messages.split_last() {
        Some((last, before)) if before.last().is_some_and(|own| is_own(&own)) && is_checkpoint(last) => before,
        _ => messages,
    };
    let own = messages.iter().rev().take_while(is_own).count();
    let (asked, own) = messages.split_at(messages.len() - own);
    let said = own.iter().flat_map(|message| match &**message {
        Msg::Assistant(parts) => parts.as_slice(),
        Msg::User(_) | Msg::Tool(_) => &[],
    });
    let said = said.filter_map(|part| match part {
        AssistantPart::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    (asked, said.collect())
}

fn is_checkpoint(message: &Msg) -> bool {
    matches!(message, Msg::User(parts) if matches!(parts.as_slice(), [UserPart::Text(text)] if text == CHECKPOINT))
}

impl Script {
    /// The script without the words that were said. `None`: it does not begin with them.
    fn rest(self, said: &str) -> Option<Self> {
        let mut said = said;
        let mut events: Vec<(u32, ModelEvent)> = Vec::new();
        for (ms, event) in self.events {
            match event {
                ModelEvent::Meta { .. } => events.push((ms, event)),
                ModelEvent::TextDelta(word) if !said.is_empty() => match (said.strip_prefix(&*word), word.strip_prefix(said)) {
                    (Some(left), _) => said = left,
                    // Interrupted within a word.
                    (None, Some(left)) => {
                        said = "";
                        events.extend([(0, ModelEvent::TextStart), (ms, ModelEvent::TextDelta(left.to_owned()))]);
                    }
                    (None, None) => return None,
                },
                _ if !said.is_empty() => {}
                ModelEvent::TextDelta(_) if events.len() == 1 => events.extend([(0, ModelEvent::TextStart), (ms, event)]),
                ModelEvent::TextEnd { .. } if events.len() == 1 => {}
                _ => events.push((ms, event)),
            }
        }
        said.is_empty().then_some(Self { events, ..self })
    }
}

fn to_person(parts: &[UserPart], request: &ModelRequest, answer: &mut Answer) {
    let text = parts.iter().filter_map(|part| match part {
        UserPart::Text(text) => Some(text.as_str()),
        UserPart::File { .. } => None,
    });
    let text = text.collect::<Vec<_>>().join(" ");
    let lower = text.to_ascii_lowercase();
    let has = |phrase: &str| lower.contains(phrase);
    if let Some(tool) = forced(request) {
        return answer.call(tool, input_for(tool, &text), request);
    }
    if has("slowly") {
        return talk_slowly(seconds_in(&lower).unwrap_or(SLOW_DEFAULT).clamp(1, SLOW_MOST), answer);
    }
    if has("markdown") {
        return answer.say(MARKDOWN);
    }
    if let Some(topic) = after(&text, &lower, "think about ") {
        return think_about(topic, answer);
    }
    if request.tool_choice != ToolChoice::None {
        if has("time is it") || has("what time") || has("the time") {
            return match tool(request, "current_time") {
                Some(tool) => {
                    answer.say("Let me look at the clock.");
                    answer.call(tool, input_for(tool, ""), request);
                }
                None => answer.say("I have no clock here: this agent has no tool called `current_time`."),
            };
        }
        if let Some(expression) = expression_in(&text, &lower) {
            return match tool(request, "calculate") {
                Some(tool) => {
                    answer.say("Let me work that out.");
                    answer.call(tool, json!({ "expression": expression }), request);
                }
                None => answer.say("I would need a tool called `calculate` for that, and this agent has none."),
            };
        }
        let wanted = errands(&text, &lower);
        if !wanted.is_empty() {
            return run_errands(wanted, request, answer);
        }
        if let Some((tool, rest)) = named_tool(request, &text) {
            answer.say(&format!("Let me use `{}` for that.", tool.name));
            return answer.call(tool, input_for(tool, rest), request);
        }
    }
    let files = about_files(parts);
    if !files.is_empty() {
        return answer.say(&files);
    }
    let greeting = ["hello", "hi", "hey", "help", "who are you", "what are you", "what can you do"];
    let short = lower.trim_matches(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric());
    if short.is_empty() || greeting.iter().any(|word| short == *word || short.starts_with(&format!("{word} "))) {
        return answer.say(&introduction(request));
    }
    let quoted: String = text.trim().chars().take(200).collect();
    answer.say(&format!(
        "You said: \"{quoted}\". A real model would have an answer to that; I am only the demo, because no model is configured. \
         Set `MODEL` to change that.\n\n{}",
        suggestions(request)
    ));
}

fn introduction(request: &ModelRequest) -> String {
    format!(
        "Hello! I am the demo: a small script inside this worker, not a language model. Everything around me is real, though: the \
         stream, the tools, the history, and what happens when the process dies in the middle of a sentence.\n\n\
         No model is configured yet. Set `MODEL` to `provider/model`, such as `workers-ai/@cf/openai/gpt-oss-120b`, or \
         `openai-compatible/…` together with `MODEL_BASE_URL`, and it will answer in my place.\n\n{}",
        suggestions(request)
    )
}

fn suggestions(request: &ModelRequest) -> String {
    let mut text = String::from("Things to try:\n");
    let mut add = |line: &str| {
        text.push_str("\n- ");
        text.push_str(line);
    };
    if tool(request, "current_time").is_some() {
        add("**what time is it**, and a tool tells");
    }
    if tool(request, "calculate").is_some() {
        add("**calculate 6 * 7**");
    }
    if tool(request, "save_note").is_some() {
        add("**save a note: buy milk**, once you have allowed it");
    }
    if tool(request, "read_page").is_some() {
        add("**read the page**, by a tool in your browser");
    }
    if tool(request, "ask_person").is_some() {
        add("**ask me two questions**, and I wait for you, however long it takes");
    }
    let known = ["current_time", "calculate", "save_note", "read_page", "ask_person", "wait"];
    for other in request.tools.iter().filter(|t| !known.contains(&t.name.as_str())).take(3) {
        add(&format!("**use the tool {}**", other.name));
    }
    add("**think about rain**, to see reasoning");
    add("**show me markdown**");
    add("**talk slowly for 60 seconds**, then reload the page, or stop the process and start it again: the answer goes on");
    if tool(request, "wait").is_some() {
        add("**wait for 20 seconds**, by a tool; pull the plug meanwhile, or in mid-sentence, as often as you like");
    }
    text
}

/// What is to be done with the tools that wait for a person or a page, in the order it is said. Two in one sentence run side by side.
fn errands(text: &str, lower: &str) -> Vec<(&'static str, Value)> {
    let has = |phrase: &str| lower.contains(phrase);
    let mut wanted = Vec::new();
    if has("read") && has("page") {
        wanted.push(("read_page", json!({})));
    }
    if let Some(rest) = after(text, lower, "note").filter(|_| has("save")) {
        let several = rest.strip_prefix('s');
        let words = trimmed(several.unwrap_or(rest));
        let notes: Vec<&str> = if several.is_some() { words.split(" and ").map(str::trim).collect() } else { vec![words] };
        for note in notes {
            wanted.push(("save_note", json!({ "text": if note.is_empty() { "I was here" } else { note } })));
        }
    }
    if has("ask me") {
        let questions = ["What shall I call you?", "What is your favourite colour?"];
        for question in questions.iter().take(if has("two") { 2 } else { 1 }) {
            wanted.push(("ask_person", json!({ "question": question })));
        }
    }
    wanted
}

fn run_errands(wanted: Vec<(&str, Value)>, request: &ModelRequest, answer: &mut Answer) {
    if let Some((name, _)) = wanted.iter().find(|(name, _)| tool(request, name).is_none()) {
        return answer.say(&format!("I would need a tool called `{name}` for that, and neither this agent nor your page has one."));
    }
    answer.say(if wanted.len() > 1 { "I will do these side by side." } else { "I will do that." });
    for (name, input) in wanted {
        if let Some(tool) = tool(request, name) {
            answer.call(tool, input, request);
        }
    }
}

const MARKDOWN: &str = "Here is a table:\n\n\
    | Promise | Kept by |\n\
    | --- | --- |\n\
    | nothing is lost | rows written before you see them |\n\
    | every tab shows the same | one object per conversation |\n\
    | a tool runs once | a claim for each call |\n\n\
    And some code:\n\n\
    ```rust\n\
    fn answer() -> u32 {\n    6 * 7\n}\n\
    ```\n\n\
    With *emphasis*, **weight**, `names`, and [a link](https://developers.cloudflare.com/durable-objects/).";

fn think_about(topic: &str, answer: &mut Answer) {
    let topic = topic.trim().trim_end_matches(['.', '!', '?']);
    answer.reason(&format!(
        "The person wants me to think about {topic}. What do I know about {topic}? Strictly speaking, nothing: I am a script. \
         But I can show what thinking looks like, and be honest about it."
    ));
    answer.say(&format!(
        "I thought about {topic}, as far as a script can. My thoughts are above the answer; with a reasoning model you would find \
         its own there."
    ));
}

/// One numbered sentence a second, so that a gap would be seen.
fn talk_slowly(seconds: u32, answer: &mut Answer) {
    let pause = 1_000 / SLOW_WORDS;
    for n in 1..=seconds {
        answer.say_at(&format!("Sentence {n} of {seconds}. "), pause);
        // The words of a sentence do not fill its second; the next one waits for the rest.
        answer.wait(1_000 - 4 * pause);
    }
    answer.say_at("Done, and nothing is missing.", pause);
}

fn about_files(parts: &[UserPart]) -> String {
    let mut text = String::new();
    for part in parts {
        let UserPart::File { media_type, url, filename } = part else { continue };
        let kind = match media_type.split('/').next() {
            Some("image") => "picture",
            Some("audio") => "recording",
            Some("video") => "film",
            Some("text") => "text",
            _ => "file",
        };
        let name = filename.as_deref().map(|name| format!(" called \"{name}\"")).unwrap_or_default();
        let size = match url.strip_prefix("data:") {
            Some(data) => format!(", about {} kB", data.len() * 3 / 4 / 1_000 + 1),
            None => String::new(),
        };
        text.push_str(&format!("I received a {kind}{name} ({media_type}{size}). "));
    }
    if !text.is_empty() {
        text.push_str("It arrived whole and is kept with the conversation; to look inside, a real model is needed: set `MODEL`.");
    }
    text
}

fn to_results(results: &[ToolResult], request: &ModelRequest, answer: &mut Answer) {
    let rounds = request.messages.iter().rev().take_while(|message| !matches!(&***message, Msg::User(_)));
    let rounds: Vec<&[ToolResult]> = rounds
        .filter_map(|message| match &**message {
            Msg::Tool(results) => Some(results.as_slice()),
            Msg::User(_) | Msg::Assistant(_) => None,
        })
        .collect();
    let cut_off = results.iter().filter(|result| is_cut_off(result) && rounds.len() < CALLS_MOST);
    let again: Vec<_> = cut_off.filter_map(|result| Some((tool(request, &result.name)?, input_again(result, request)?))).collect();
    if !again.is_empty() {
        return again.into_iter().for_each(|(tool, input)| answer.call(tool, input, request));
    }
    // The oldest round first; what was cut off in it has its result in a later one.
    let told = rounds.iter().rev().flat_map(|round| round.iter()).filter(|result| !is_cut_off(result) || results.contains(result));
    answer.say(&about_results(told, request));
}

/// Whether the object died with this call: nobody knows what came of it.
fn is_cut_off(result: &ToolResult) -> bool {
    matches!(&result.output, ToolOutput::Error(text) if text == INTERRUPTED)
}

fn about_results<'a>(results: impl Iterator<Item = &'a ToolResult>, request: &ModelRequest) -> String {
    let mut text = String::new();
    for result in results {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&about_result(result, request));
    }
    if text.is_empty() { "The tool answered nothing.".to_owned() } else { text }
}

fn about_result(result: &ToolResult, request: &ModelRequest) -> String {
    let name = &result.name;
    let shown = match &result.output {
        ToolOutput::Text(text) => text.clone(),
        ToolOutput::Json(value) => match plain(value).or_else(|| page(value).filter(|_| name == "read_page")) {
            Some(text) => text,
            None => {
                let pretty = serde_json::to_string_pretty(value).unwrap_or_default();
                return format!("`{name}` answered:\n\n```json\n{}\n```", cut(&pretty));
            }
        },
        ToolOutput::Error(text) if name == "ask_person" => return format!("I have no answer: {}.", cut(text)),
        ToolOutput::Error(text) => return format!("`{name}` did not work: {}", cut(text)),
        ToolOutput::Denied(None) => return format!("All right, I did not use `{name}`."),
        ToolOutput::Denied(Some(reason)) => return format!("All right, I did not use `{name}`: {}", cut(reason)),
    };
    match name.as_str() {
        "current_time" => format!("It is {}.", cut(&shown)),
        "save_note" => format!("The note is saved: **{}**", cut(&shown)),
        "read_page" => cut(&shown),
        "ask_person" => match input_of(&result.call_id, "question", request) {
            Some(question) => format!("I asked: {question} You said: **{}**", cut(&shown)),
            None => format!("You said: **{}**", cut(&shown)),
        },
        "calculate" => match input_of(&result.call_id, "expression", request) {
            Some(expression) => format!("{expression} = **{}**", cut(&shown)),
            None => format!("The result is **{}**.", cut(&shown)),
        },
        _ => format!("`{name}` answered: {}", cut(&shown)),
    }
}

/// A result that is one value, alone or as the only member of an object.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Object(fields) if fields.len() == 1 => fields.values().next().filter(|v| !v.is_object()).and_then(plain),
        _ => None,
    }
}

/// What a page says of itself.
fn page(value: &Value) -> Option<String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let side = |key: &str| value.get("viewport").and_then(|v| v.get(key)).and_then(Value::as_u64);
    Some(format!(
        "This page is called \"{}\" and lives at {}. Its language is {}, your clock is that of {}, and its window is {} by {} pixels.",
        text("title")?,
        text("address")?,
        text("language")?,
        text("timeZone")?,
        side("width")?,
        side("height")?
    ))
}

/// A field of what went into this call.
fn input_of(call_id: &str, field: &str, request: &ModelRequest) -> Option<String> {
    Some(whole_input(call_id, request)?.get(field)?.as_str()?.to_owned())
}

/// What went into this call.
/// The input of a call that was cut off; what was meant, where it was cut off before its input was whole.
fn input_again(result: &ToolResult, request: &ModelRequest) -> Option<Value> {
    let input = whole_input(&result.call_id, request)?;
    if input.as_object().is_some_and(|input| !input.is_empty()) {
        return Some(input);
    }
    let at = request.messages.iter().rposition(|message| matches!(&**message, Msg::User(_)) && !is_checkpoint(message))?;
    let asked = whole(&ModelRequest { messages: request.messages.iter().take(at + 1).cloned().collect(), ..request.clone() });
    let meant = asked.events.into_iter().find_map(|(_, event)| match event {
        ModelEvent::ToolCall { name, input, .. } if name == result.name => Some(input),
        _ => None,
    });
    Some(meant.unwrap_or(input))
}

fn whole_input(call_id: &str, request: &ModelRequest) -> Option<Value> {
    request.messages.iter().rev().find_map(|message| match &**message {
        Msg::Assistant(parts) => parts.iter().find_map(|part| match part {
            AssistantPart::ToolCall { id, input, .. } if id == call_id => Some(input.clone()),
            _ => None,
        }),
        Msg::User(_) | Msg::Tool(_) => None,
    })
}

fn cut(text: &str) -> String {
    if text.chars().count() <= RESULT_SHOWN {
        return text.to_owned();
    }
    text.chars().take(RESULT_SHOWN).chain(['…']).collect()
}

fn tool<'a>(request: &'a ModelRequest, name: &str) -> Option<&'a ToolSpec> {
    request.tools.iter().find(|tool| tool.name == name)
}

/// The tool that must be called.
fn forced(request: &ModelRequest) -> Option<&ToolSpec> {
    match &request.tool_choice {
        ToolChoice::Required => request.tools.first(),
        ToolChoice::Named(name) => tool(request, name),
        ToolChoice::Auto | ToolChoice::None => None,
    }
}

/// The offered tool that a text names, and the words behind the name. `get_weather` is named by "get_weather", "get weather" and
/// "weather"; of several, the one with the longest name.
fn named_tool<'a, 't>(request: &'a ModelRequest, text: &'t str) -> Option<(&'a ToolSpec, &'t str)> {
    const VERBS: [&str; 14] =
        ["get", "set", "show", "fetch", "list", "do", "run", "make", "find", "read", "send", "create", "update", "the"];
    let words: Vec<(usize, String)> = words_of(text);
    let place = |name: &str| {
        let all: Vec<String> = words_of(name).into_iter().map(|(_, word)| word).collect();
        let telling: Vec<&String> = all.iter().filter(|word| !VERBS.contains(&word.as_str())).collect();
        let wanted: Vec<&String> = if telling.is_empty() { all.iter().collect() } else { telling };
        let places: Option<Vec<usize>> =
            wanted.iter().map(|wanted| words.iter().find(|(_, word)| word == *wanted).map(|(end, _)| *end)).collect();
        places?.into_iter().max()
    };
    let found = request.tools.iter().filter_map(|tool| Some((tool, place(&tool.name)?)));
    let (tool, end) = found.max_by_key(|(tool, _)| tool.name.len())?;
    Some((tool, text.get(end..).unwrap_or_default()))
}

/// The words of a text or of a name in any case, each with the place where it ends.
fn words_of(text: &str) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for (at, c) in text.char_indices() {
        // Letters of other alphabets are told from signs by not being ASCII: near enough for names of tools.
        let letter = c.is_ascii_alphanumeric() || !c.is_ascii();
        let hump = c.is_ascii_uppercase() && was_lower;
        if (!letter || hump) && !word.is_empty() {
            words.push((at, std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    if !word.is_empty() {
        words.push((text.len(), word));
    }
    words
}

/// An input for a tool: its required fields, filled from the words behind its name where they fit.
fn input_for(tool: &ToolSpec, rest: &str) -> Value {
    let words = trimmed(rest);
    let mut numbers = words.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect::<Vec<u32>>().into_iter();
    object_for(&tool.input_schema, words, &mut numbers, 4)
}

/// Words without what only joins them to the words before.
fn trimmed(rest: &str) -> &str {
    let mut words = rest.trim();
    for filler in ["for ", "in ", "with ", "to ", "of ", "on ", "at ", "about ", ": "] {
        words = words.strip_prefix(filler).unwrap_or(words);
    }
    words.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '.' | '!' | '?' | ':'))
}

fn object_for(schema: &Value, words: &str, numbers: &mut dyn Iterator<Item = u32>, depth: u32) -> Value {
    let mut fields = Map::new();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for name in required {
        let schema = schema.get("properties").and_then(|p| p.get(name)).unwrap_or(&Value::Null);
        fields.insert(name.to_owned(), value_for(schema, words, numbers, depth));
    }
    Value::Object(fields)
}

fn value_for(schema: &Value, words: &str, numbers: &mut dyn Iterator<Item = u32>, depth: u32) -> Value {
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|list| list.first()).cloned();
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        let lower = words.to_ascii_lowercase();
        let said = options.iter().find(|o| o.as_str().is_some_and(|o| lower.contains(&o.to_ascii_lowercase())));
        return said.or(options.first()).cloned().unwrap_or(Value::Null);
    }
    if let Some(value) = schema.get("const").or_else(|| schema.get("default").filter(|d| !d.is_null())) {
        return value.clone();
    }
    let kind = schema.get("type");
    let kind = kind.and_then(Value::as_str).or_else(|| kind?.as_array()?.first()?.as_str()).unwrap_or("string");
    match kind {
        "integer" | "number" => numbers.next().unwrap_or(1).into(),
        "boolean" => true.into(),
        "array" => Value::Array(Vec::new()),
        "object" if depth > 0 => object_for(schema, words, numbers, depth - 1),
        "object" => Value::Object(Map::new()),
        "null" => Value::Null,
        _ if words.is_empty() => first("examples").unwrap_or_else(|| "demo".into()),
        _ => words.into(),
    }
}

/// The expression a text wants to have calculated.
fn expression_in(text: &str, lower: &str) -> Option<String> {
    let asked = ["calculate ", "compute ", "what is ", "what's ", "how much is "].iter().find_map(|phrase| after(text, lower, phrase));
    let run = longest_sum(text);
    let wanted = match (asked, run) {
        (_, Some(run)) if asked.is_some() || run.len() * 2 >= text.trim().len() => run,
        (Some(words), None) if lower.contains("calculate ") || lower.contains("compute ") => words,
        _ => return None,
    };
    let clean = wanted.replace('×', "*").replace('÷', "/").replace('−', "-");
    Some(clean.trim().trim_end_matches(['.', '?', '!', '=']).trim().to_owned()).filter(|text| !text.is_empty())
}

/// The longest piece that reads as arithmetic: digits with an operator between them.
fn longest_sum(text: &str) -> Option<&str> {
    let part = |c: char| c.is_ascii_digit() || " .+-*/()^%×÷−".contains(c);
    text.split(|c: char| !part(c))
        .map(|run| run.trim_matches(|c: char| !c.is_ascii_digit() && !matches!(c, '(' | ')' | '-')).trim())
        .filter(|run| {
            let operator = run.trim_start_matches(['-', '(']).find(|c: char| "+-*/^%×÷−".contains(c));
            operator.is_some() && run.chars().filter(char::is_ascii_digit).count() >= 2
        })
        .max_by_key(|run| run.len())
}

/// What follows a phrase.
fn after<'a>(text: &'a str, lower: &str, phrase: &str) -> Option<&'a str> {
    text.get(lower.find(phrase)? + phrase.len()..)
}

/// A number of seconds or minutes.
fn seconds_in(lower: &str) -> Option<u32> {
    let words: Vec<&str> = lower.split_whitespace().collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number: u32 = digits.parse().ok()?;
        let unit =
            word.get(digits.len()..).filter(|unit| unit.starts_with(|c: char| c.is_ascii_alphabetic())).or(words.get(at + 1).copied());
        Some(if unit.is_some_and(|unit| unit.starts_with('m')) { number.saturating_mul(60) } else { number })
    })
}

/// An answer under construction.
struct Answer {
    events: Vec<(u32, ModelEvent)>,
    /// Waiting that the next event takes along.
    due: u32,
    open: bool,
    calls: u32,
}

impl Answer {
    fn new() -> Self {
        let meta = ModelEvent::Meta { id: None, model: Some("demo".into()) };
        Self { events: vec![(0, meta)], due: 0, open: false, calls: 0 }
    }

    fn push(&mut self, ms: u32, event: ModelEvent) {
        let ms = ms + std::mem::take(&mut self.due);
        self.events.push((ms, event));
    }

    fn wait(&mut self, ms: u32) {
        self.due += ms;
    }

    fn say(&mut self, text: &str) {
        self.say_at(text, WORD_MS);
    }

    fn say_at(&mut self, text: &str, pause: u32) {
        if !std::mem::replace(&mut self.open, true) {
            self.push(0, ModelEvent::TextStart);
        }
        for word in text.split_inclusive([' ', '\n']) {
            self.push(pause, ModelEvent::TextDelta(word.to_owned()));
        }
    }

    fn reason(&mut self, text: &str) {
        self.push(0, ModelEvent::ReasoningStart);
        for word in text.split_inclusive(' ') {
            self.push(WORD_MS, ModelEvent::ReasoningDelta(word.to_owned()));
        }
        self.push(0, ModelEvent::ReasoningEnd { meta: None });
    }

    fn end_text(&mut self) {
        if std::mem::take(&mut self.open) {
            self.push(0, ModelEvent::TextEnd { meta: None });
        }
    }

    fn call(&mut self, tool: &ToolSpec, input: Value, request: &ModelRequest) {
        self.end_text();
        let earlier = request.messages.iter().filter(|message| matches!(&***message, Msg::Tool(_))).count();
        let (slot, name) = (self.calls, tool.name.clone());
        let id = format!("demo_{}_{earlier}_{slot}", request.messages.len());
        self.calls += 1;
        self.push(WORD_MS, ModelEvent::ToolInputStart { slot, id: id.clone(), name: name.clone() });
        for piece in input.to_string().split_inclusive([',', ':']) {
            self.push(WORD_MS, ModelEvent::ToolInputDelta { slot, text: piece.to_owned() });
        }
        self.push(0, ModelEvent::ToolCall { slot, id, name, input, meta: None });
    }

    fn script(mut self) -> Script {
        self.end_text();
        let (reason, raw) = if self.calls > 0 { (FinishReason::ToolCalls, "tool_calls") } else { (FinishReason::Stop, "stop") };
        Script { events: self.events, finish: Finish { reason, raw: raw.to_owned() } }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn spec(name: &str, schema: Value) -> ToolSpec {
        ToolSpec { name: name.into(), description: String::new(), input_schema: schema }
    }

    fn request(messages: Vec<Msg>) -> ModelRequest {
        ModelRequest {
            messages: messages.into_iter().map(Rc::new).collect(),
            tools: Rc::new([
                spec("current_time", json!({"type": "object", "properties": {}})),
                spec(
                    "calculate",
                    json!({"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}),
                ),
                spec(
                    "get_weather",
                    json!({"type": "object", "required": ["city", "days", "unit"], "properties": {
                        "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["celsius", "kelvin"]}}}),
                ),
                spec("changeColor", json!({"type": "object", "required": ["color"], "properties": {"color": {"type": "string"}}})),
            ]),
            ..ModelRequest::default()
        }
    }

    fn says(text: &str) -> Vec<Msg> {
        vec![Msg::User(vec![UserPart::Text(text.into())])]
    }

    fn text_of(script: &Script) -> String {
        let deltas = script.events.iter().filter_map(|(_, event)| match event {
            ModelEvent::TextDelta(text) => Some(text.as_str()),
            _ => None,
        });
        deltas.collect()
    }

    fn calls_of(script: &Script) -> Vec<(String, Value)> {
        let calls = script.events.iter().filter_map(|(_, event)| match event {
            ModelEvent::ToolCall { name, input, .. } => Some((name.clone(), input.clone())),
            _ => None,
        });
        calls.collect()
    }

    fn call_of(script: &Script) -> Option<(String, Value)> {
        calls_of(script).into_iter().next()
    }

    // decision 23
    #[test]
    fn it_says_what_it_is_and_how_to_get_a_model() {
        for words in ["", "Hello!", "hi there", "help", "Tell me about the sea"] {
            let script = script(&request(says(words)));
            let text = text_of(&script);
            assert!(text.contains("demo") && text.contains("`MODEL`") && text.contains("calculate 6 * 7"), "{words}: {text}");
            assert_eq!(script.finish.reason, FinishReason::Stop);
        }
        assert!(text_of(&script(&request(says("Tell me about the sea")))).contains("Tell me about the sea"));
        assert!(text_of(&script(&request(Vec::new()))).contains("No model is configured"));
    }

    #[test]
    fn plain_words_call_tools() {
        let table = [
            ("What time is it?", "current_time", json!({})),
            ("calculate 6 * 7", "calculate", json!({"expression": "6 * 7"})),
            ("what is (2+3)×4?", "calculate", json!({"expression": "(2+3)*4"})),
            ("12/4", "calculate", json!({"expression": "12/4"})),
            ("Calculate two plus two", "calculate", json!({"expression": "two plus two"})),
            ("use the tool get_weather for Brno", "get_weather", json!({"city": "Brno", "days": 1, "unit": "celsius"})),
            ("weather in Brno, 3 days, kelvin", "get_weather", json!({"city": "Brno, 3 days, kelvin", "days": 3, "unit": "kelvin"})),
            ("Please change color to \"teal\"!", "changeColor", json!({"color": "teal"})),
            ("use the tool changeColor", "changeColor", json!({"color": "demo"})),
        ];
        for (words, name, input) in table {
            let script = script(&request(says(words)));
            assert_eq!(call_of(&script), Some((name.to_owned(), input)), "{words}");
            assert_eq!(script.finish.reason, FinishReason::ToolCalls, "{words}");
        }
        for words in ["on 2024-05-01 we met in the park near the river", "what is love", "a color is a color"] {
            assert_eq!(call_of(&script(&request(says(words)))), None, "{words}");
        }
        let mut silent = request(says("what time is it"));
        silent.tool_choice = ToolChoice::None;
        assert_eq!(call_of(&script(&silent)), None);
        silent.tool_choice = ToolChoice::Named("get_weather".into());
        assert_eq!(call_of(&script(&silent)).map(|(name, _)| name), Some("get_weather".to_owned()));
        silent.tools = Rc::new([]);
        silent.tool_choice = ToolChoice::Auto;
        assert!(text_of(&script(&silent)).contains("current_time"));
    }

    #[test]
    fn plain_words_call_the_tools_that_wait_for_somebody() {
        let words = |name: &str| spec(name, json!({"type": "object", "properties": {}}));
        let note = |text: &str| ("save_note", json!({"text": text}));
        let asked = |question: &str| ("ask_person", json!({"question": question}));
        let read = || ("read_page", json!({}));
        let table = [
            ("Save a note: buy milk", vec![note("buy milk")]),
            ("please save a note about \"the sea\".", vec![note("the sea")]),
            ("save two notes: buy milk and call Ada", vec![note("buy milk"), note("call Ada")]),
            ("read the page", vec![read()]),
            ("Ask me something", vec![asked("What shall I call you?")]),
            ("ask me two questions", vec![asked("What shall I call you?"), asked("What is your favourite colour?")]),
            ("read the page and save a note", vec![read(), note("I was here")]),
        ];
        for (text, expected) in table {
            let mut request = request(says(text));
            request.tools = Rc::new([words("save_note"), words("read_page"), words("ask_person")]);
            let script = script(&request);
            let expected: Vec<_> = expected.into_iter().map(|(name, input)| (name.to_owned(), input)).collect();
            assert_eq!(calls_of(&script), expected, "{text}");
            let ids: std::collections::BTreeSet<_> = script
                .events
                .iter()
                .filter_map(|(_, e)| match e {
                    ModelEvent::ToolCall { id, .. } => Some(id.clone()),
                    _ => None,
                })
                .collect();
            assert_eq!(ids.len(), expected.len(), "{text}: an id of its own for each call");
            request.tools = Rc::new([]);
            let refusal = super::script(&request);
            assert_eq!(call_of(&refusal), None, "{text}");
            assert!(text_of(&refusal).contains(&expected[0].0), "{text}");
        }
        for text in ["a note of music", "I ask myself", "turn the page"] {
            assert_eq!(call_of(&script(&request(says(text)))), None, "{text}");
        }
    }

    #[test]
    fn results_are_told_and_end_the_loop() {
        let after = |name: &str, input: Value, output: ToolOutput| {
            let mut messages = says("calculate 6 * 7");
            messages.push(Msg::Assistant(vec![AssistantPart::ToolCall { id: "c".into(), name: name.into(), input, meta: None }]));
            messages.push(Msg::Tool(vec![ToolResult { call_id: "c".into(), name: name.into(), output }]));
            let script = script(&request(messages));
            assert_eq!(call_of(&script), None);
            text_of(&script)
        };
        let sum = json!({"expression": "6 * 7"});
        assert_eq!(after("calculate", sum.clone(), ToolOutput::Json(json!({"result": 42}))), "6 * 7 = **42**");
        assert_eq!(after("calculate", sum, ToolOutput::Text("42".into())), "6 * 7 = **42**");
        assert_eq!(after("current_time", json!({}), ToolOutput::Text("noon".into())), "It is noon.");
        assert!(after("x", json!({}), ToolOutput::Json(json!({"a": 1, "b": 2}))).contains("\"b\": 2"));
        let saved = ToolOutput::Json(json!({"note": "buy milk"}));
        assert_eq!(after("save_note", json!({"text": "buy milk"}), saved), "The note is saved: **buy milk**");
        let question = json!({"question": "Why?"});
        let said = after("ask_person", question.clone(), ToolOutput::Json(json!({"answer": "because"})));
        assert_eq!(said, "I asked: Why? You said: **because**");
        let skipped = after("ask_person", question, ToolOutput::Error("the person skipped the question".into()));
        assert_eq!(skipped, "I have no answer: the person skipped the question.");
        let page = json!({"title": "T", "address": "https://a.example/", "language": "en", "timeZone": "Europe/Prague",
            "viewport": {"width": 800, "height": 600}});
        let read = after("read_page", json!({}), ToolOutput::Json(page));
        assert!(read.contains("\"T\"") && read.contains("Europe/Prague") && read.contains("800 by 600"), "{read}");
        assert!(after("x", json!({}), ToolOutput::Error("broken".into())).contains("did not work: broken"));
        assert!(after("x", json!({}), ToolOutput::Denied(Some("not now".into()))).contains("not now"));
        assert!(after("x", json!({}), ToolOutput::Text("é".repeat(2_000))).chars().count() < 700);
    }

    /// Everything but the words: what a script does besides talking.
    fn deeds_of(script: &Script) -> Vec<ModelEvent> {
        let deeds = script.events.iter().map(|(_, event)| event);
        deeds.filter(|event| matches!(event, ModelEvent::ToolCall { .. })).cloned().collect()
    }

    // recovery 12, 28: the object died, and the model is asked to go on from its own words.
    #[test]
    fn it_goes_on_from_its_own_words_wherever_it_was_interrupted() {
        let own = |text: &str| Msg::Assistant(vec![AssistantPart::Text { text: text.into(), meta: None }]);
        let mut results = says("calculate 6 * 7");
        results.push(Msg::Assistant(vec![AssistantPart::ToolCall {
            id: "c".into(),
            name: "calculate".into(),
            input: json!({"expression": "6 * 7"}),
            meta: None,
        }]));
        let output = ToolOutput::Json(json!({"result": 42}));
        results.push(Msg::Tool(vec![ToolResult { call_id: "c".into(), name: "calculate".into(), output }]));
        let asked = [
            says("talk slowly for 3 seconds"),
            says("hello"),
            says("think about tea"),
            says("what time is it"),
            says("show me markdown"),
            results,
        ];
        for messages in asked {
            let whole = script(&request(messages.clone()));
            let text = text_of(&whole);
            for cut in (1..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let (said, left) = text.split_at(cut);
                for halves in [1, 2] {
                    let mut messages = messages.clone();
                    let half = said.floor_char_boundary(said.len() / halves);
                    messages.extend([&said[..half], &said[half..]].into_iter().filter(|words| !words.is_empty()).map(own));
                    for checkpoint in [false, true] {
                        messages.extend(checkpoint.then(|| Msg::User(vec![UserPart::Text(CHECKPOINT.into())])));
                        let rest = script(&request(messages.clone()));
                        assert_eq!(text_of(&rest), left, "after {said:?}");
                        assert_eq!(deeds_of(&rest), deeds_of(&whole), "after {said:?}");
                        assert_eq!(rest.finish, whole.finish);
                        let starts = rest.events.iter().filter(|(_, event)| *event == ModelEvent::TextStart).count();
                        let ends = rest.events.iter().filter(|(_, event)| matches!(event, ModelEvent::TextEnd { .. })).count();
                        assert_eq!((starts, ends), (usize::from(!left.is_empty()), usize::from(!left.is_empty())), "after {said:?}");
                    }
                }
            }
        }
        let mut foreign = says("hello");
        foreign.push(own("Bonjour"));
        assert!(text_of(&script(&request(foreign))).contains("all I had to say"));
    }

    #[test]
    fn a_call_that_was_cut_off_is_made_again_and_its_first_answer_is_not_told() {
        let call = |id: &str| AssistantPart::ToolCall {
            id: id.into(),
            name: "calculate".into(),
            input: json!({"expression": "6 * 7"}),
            meta: None,
        };
        let result = |id: &str, output| ToolResult { call_id: id.into(), name: "calculate".into(), output };
        let cut_off = || ToolOutput::Error(INTERRUPTED.into());
        let mut messages = says("calculate 6 * 7");
        let mut ids = std::collections::BTreeSet::new();
        for round in 1..CALLS_MOST {
            let id = format!("c{round}");
            messages.extend([Msg::Assistant(vec![call(&id)]), Msg::Tool(vec![result(&id, cut_off())])]);
            let again = script(&request(messages.clone()));
            assert_eq!(calls_of(&again), [("calculate".to_owned(), json!({"expression": "6 * 7"}))], "round {round}");
            assert_eq!(text_of(&again), "");
            assert!(deeds_of(&again).iter().all(|deed| matches!(deed, ModelEvent::ToolCall { id, .. } if ids.insert(id.clone()))));
        }
        let mut answered = messages.clone();
        answered.extend([Msg::Assistant(vec![call("d")]), Msg::Tool(vec![result("d", ToolOutput::Text("42".into()))])]);
        assert_eq!(text_of(&script(&request(answered))), "6 * 7 = **42**");
        messages.extend([Msg::Assistant(vec![call("d")]), Msg::Tool(vec![result("d", cut_off())])]);
        let given_up = script(&request(messages));
        assert_eq!(calls_of(&given_up), []);
        assert!(text_of(&given_up).contains("did not work"));
    }

    #[test]
    fn slow_talk_lasts_as_long_as_asked_and_is_numbered() {
        let table = [
            ("talk slowly for 60 seconds", 60),
            ("talk slowly for 2 minutes please", 120),
            ("Talk slowly for 5s", 5),
            ("talk slowly", SLOW_DEFAULT),
            ("talk slowly for 99999999 minutes", SLOW_MOST),
        ];
        for (words, seconds) in table {
            let script = script(&request(says(words)));
            let total: u32 = script.events.iter().map(|(ms, _)| ms).sum();
            assert!(total.abs_diff(seconds * 1_000) <= 1_500, "{words}: {total} ms");
            let text = text_of(&script);
            assert_eq!(text.matches("Sentence").count(), seconds as usize, "{words}");
            assert!(text.contains(&format!("Sentence {seconds} of {seconds}.")), "{words}");
            assert!(script.events.iter().all(|(ms, _)| *ms <= 1_000), "{words}: a silence");
        }
    }

    #[test]
    fn it_reasons_shows_markdown_and_looks_at_files() {
        let thinking = script(&request(says("Think about rain.")));
        let kinds: Vec<bool> = thinking.events.iter().map(|(_, e)| matches!(e, ModelEvent::ReasoningDelta(_))).collect();
        assert!(kinds.iter().any(|k| *k) && text_of(&thinking).contains("about rain,"));
        let markdown = text_of(&script(&request(says("show me markdown"))));
        assert!(markdown.contains("| --- |") && markdown.contains("```rust\nfn answer() -> u32 {\n    6 * 7\n}\n```"), "{markdown}");
        let file = UserPart::File {
            media_type: "image/png".into(),
            url: "data:image/png;base64,AAAA".into(),
            filename: Some("cat.png".into()),
        };
        let text = text_of(&script(&request(vec![Msg::User(vec![UserPart::Text("what do you see".into()), file])])));
        assert!(text.contains("picture called \"cat.png\" (image/png"), "{text}");
    }

    #[test]
    fn blocks_do_not_overlap_and_the_same_request_gives_the_same_answer() {
        for words in
            ["", "think about x", "calculate 1+1", "talk slowly for 3 seconds", "show me markdown", "use the tool get_weather"]
        {
            let request = request(says(words));
            let script = script(&request);
            assert_eq!(script, super::script(&request), "{words}");
            let mut open = 0;
            for (_, event) in &script.events {
                match event {
                    ModelEvent::TextStart | ModelEvent::ReasoningStart => open += 1,
                    ModelEvent::TextEnd { .. } | ModelEvent::ReasoningEnd { .. } => open -= 1,
                    ModelEvent::TextDelta(_) | ModelEvent::ReasoningDelta(_) => assert_eq!(open, 1, "{words}"),
                    _ => assert!(open <= 1, "{words}"),
                }
                assert!((0..=1).contains(&open), "{words}");
            }
            assert_eq!(open, 0, "{words}");
        }
    }
}
