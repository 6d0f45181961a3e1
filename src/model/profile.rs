//! Which server answers, and what it deviates in (`providers.md` §9): one row of data each, no branch on a name anywhere else.
//!
//! A server nobody knows gets the first row, which sends only what every server takes.

use super::{
    ModelError, ModelErrorClass,
    ModelErrorClass::{Auth as AuthError, InvalidRequest, NotFound, Overloaded, Quota, RateLimit, Transient},
    ModelRef,
    OverflowKind::{Bytes, Input},
};
use crate::limits::REQUEST_BODY;

/// Where a request goes and how it must look there.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// An HTTP server.
    Http(Endpoint),
    /// The AI binding of the worker.
    AiBinding(Binding),
    /// The built-in script.
    Demo,
}

impl Route {
    /// What the server deviates in.
    pub fn profile(&self) -> &'static Profile {
        match self {
            Route::Http(endpoint) => endpoint.profile,
            Route::AiBinding(binding) => binding.profile,
            Route::Demo => &CONSERVATIVE,
        }
    }
}

/// An HTTP server that speaks Chat Completions.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// What it deviates in.
    pub profile: &'static Profile,
    /// The address in front of `/chat/completions`.
    pub base_url: String,
    /// Its key.
    pub api_key: Option<String>,
}

/// The AI binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// What the model's family deviates in.
    pub profile: &'static Profile,
}

/// One row of the table.
#[derive(Debug, PartialEq)]
pub struct Profile {
    /// Its name in a [`ModelRef`].
    pub id: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// Its address; empty where only the user can know it.
    pub base: &'static str,
    /// A host, or a `:port`, by which a given address is recognised as this server's.
    pub known_by: &'static str,
    /// Whether its own address answers without a key.
    pub keyless: bool,
    /// The header of the key.
    pub auth: Auth,
    /// The namespace of its metadata in stored messages. Metadata of another namespace is never sent to it.
    pub namespace: &'static str,
    /// The field of the output limit.
    pub cap_field: &'static str,
    /// How usage is asked for.
    pub usage: UsageMode,
    /// Whether its reasoning models (o3, gpt-5, …) want the role `developer` and refuse sampling parameters.
    pub openai_reasoning: bool,
    /// Whether `prompt_cache_key` is known.
    pub cache_key: bool,
    /// How reasoning is sent back.
    pub replay: Replay,
    /// How reasoning is switched.
    pub control: Control,
    /// Whether efforts beyond low, medium and high are refused.
    pub three_efforts: bool,
    /// Whether an assistant message may have `content: null`.
    pub null_content: bool,
    /// Whether images may be addresses rather than data.
    pub image_urls: bool,
    /// How a call is demanded.
    pub required: Required,
    /// What call ids must look like.
    pub call_ids: CallIds,
    /// Whether an assistant message must stand between results and the next user message.
    pub assistant_between: bool,
    /// Whether results carry the name of their tool.
    pub result_names: bool,
    /// What it appends to the model's name in its answers.
    pub echo_suffix: &'static str,
    /// Whether reasoning arrives as tags in the text.
    pub think_tags: ThinkTags,
    /// Whether everything is labelled reasoning when reasoning is off.
    pub mislabels_text: bool,
    /// Whether a forced call may arrive as JSON text.
    pub leaks_calls: bool,
    /// Whether a 400 or 413 without a body is how it says that the context is too long.
    pub mute_overflow: bool,
    /// Its own error codes, as text.
    pub codes: &'static [(&'static str, ModelErrorClass)],
    /// Bytes of a request at most.
    pub request_cap: usize,
    /// Milliseconds of a wait it may ask for; a longer one is cut to this.
    pub retry_after_cap_ms: u64,
}

/// The header of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer`.
    Bearer,
    /// `api-key`.
    ApiKey,
}

/// How usage is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageMode {
    /// `stream_options: {include_usage: true}`.
    StreamOptions,
    /// `usage: {include: true}`.
    Include,
    /// It comes anyway.
    Always,
}

/// How reasoning is sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Not at all.
    None,
    /// In this field.
    Field(&'static str),
    /// In this field, on messages with calls, always.
    WithCalls(&'static str),
    /// The array `reasoning_details`, verbatim.
    Details,
}

/// How reasoning is switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Not at all.
    None,
    /// `reasoning_effort`; it cannot be switched off.
    Effort,
    /// `reasoning_effort`, and `chat_template_kwargs: {enable_thinking: false}`.
    Template,
    /// `enable_thinking`.
    EnableThinking,
    /// `thinking: {type}`.
    Thinking,
    /// `reasoning: {effort}`.
    Object,
}

/// How a call is demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// `required`.
    Ok,
    /// `any`.
    Any,
    /// By name if there is one tool only; else it cannot be.
    Named,
}

/// What call ids must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallIds {
    /// Anything not empty.
    Any,
    /// Letters, digits, `_` and `-`, at most so many.
    Safe(usize),
    /// Exactly nine letters and digits.
    Nine,
}

/// Whether reasoning arrives as tags in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkTags {
    /// No; tags are text.
    Off,
    /// Between `<think>` and `</think>` in front of the text.
    On,
    /// Everything up to `</think>`.
    ImplicitOpen,
}

/// Error codes of Workers AI (`providers.md` §4.6).
const WORKERS_AI_CODES: &[(&str, ModelErrorClass)] = &[
    ("5007", NotFound),
    ("3042", NotFound),
    ("5004", InvalidRequest),
    ("5005", InvalidRequest),
    ("5006", InvalidRequest),
    ("5019", InvalidRequest),
    ("5023", InvalidRequest),
    ("3003", InvalidRequest),
    ("3039", InvalidRequest),
    ("5018", AuthError),
    ("3041", AuthError),
    ("5016", AuthError),
    ("3023", AuthError),
    ("3006", ModelErrorClass::Overflow(Bytes)),
    ("3007", Transient),
    ("3008", Transient),
    ("3036", Quota),
    ("4006", Quota),
    ("3040", Overloaded),
];

const ZAI_CODES: &[(&str, ModelErrorClass)] =
    &[("1113", Quota), ("1261", ModelErrorClass::Overflow(Input)), ("1302", RateLimit), ("1305", Overloaded), ("1308", Quota)];

const MINIMAX_CODES: &[(&str, ModelErrorClass)] =
    &[("1000", Transient), ("1001", Transient), ("1002", RateLimit), ("1004", AuthError), ("1008", Quota), ("1039", RateLimit)];

const PLAIN: Profile = Profile {
    id: "openai-compatible",
    aliases: &[],
    base: "",
    known_by: "",
    keyless: false,
    auth: Auth::Bearer,
    namespace: "openaiCompatible",
    cap_field: "max_tokens",
    usage: UsageMode::StreamOptions,
    openai_reasoning: false,
    cache_key: false,
    replay: Replay::None,
    control: Control::None,
    three_efforts: false,
    null_content: true,
    image_urls: true,
    required: Required::Ok,
    call_ids: CallIds::Any,
    assistant_between: false,
    result_names: false,
    echo_suffix: "",
    think_tags: ThinkTags::Off,
    mislabels_text: false,
    leaks_calls: false,
    mute_overflow: false,
    codes: &[],
    request_cap: REQUEST_BODY,
    retry_after_cap_ms: 60_000,
};

/// The row of a server nobody knows.
pub static CONSERVATIVE: Profile = PLAIN;

const OPENAI: Profile = Profile {
    id: "openai",
    aliases: &["openai-chat"],
    base: "https://api.openai.com/v1",
    known_by: "api.openai.com",
    namespace: "openai",
    cap_field: "max_completion_tokens",
    openai_reasoning: true,
    cache_key: true,
    control: Control::Effort,
    call_ids: CallIds::Safe(40),
    ..PLAIN
};

/// The servers reached over HTTP.
static SERVERS: &[Profile] = &[
    OPENAI,
    Profile {
        id: "azure-openai",
        aliases: &["azure"],
        base: "",
        known_by: ".openai.azure.com",
        namespace: "azure",
        auth: Auth::ApiKey,
        ..OPENAI
    },
    Profile { id: "ollama", base: "http://127.0.0.1:11434/v1", known_by: ":11434", keyless: true, namespace: "ollama", ..PLAIN },
    Profile {
        id: "vllm",
        base: "http://127.0.0.1:8000/v1",
        known_by: ":8000",
        keyless: true,
        namespace: "vllm",
        replay: Replay::Field("reasoning_content"),
        control: Control::Template,
        ..PLAIN
    },
    Profile {
        id: "sglang",
        base: "http://127.0.0.1:30000/v1",
        known_by: ":30000",
        keyless: true,
        namespace: "sglang",
        replay: Replay::Field("reasoning_content"),
        control: Control::Template,
        ..PLAIN
    },
    Profile {
        id: "llama-cpp",
        aliases: &["llamacpp", "llama.cpp"],
        base: "http://127.0.0.1:8080/v1",
        known_by: ":8080",
        keyless: true,
        namespace: "llamaCpp",
        replay: Replay::Field("reasoning_content"),
        ..PLAIN
    },
    Profile {
        id: "lmstudio",
        aliases: &["lm-studio"],
        base: "http://127.0.0.1:1234/v1",
        known_by: ":1234",
        keyless: true,
        namespace: "lmstudio",
        think_tags: ThinkTags::On,
        ..PLAIN
    },
    Profile {
        id: "openrouter",
        base: "https://openrouter.ai/api/v1",
        known_by: "openrouter.ai",
        namespace: "openrouter",
        usage: UsageMode::Include,
        replay: Replay::Details,
        control: Control::Object,
        ..PLAIN
    },
    Profile {
        id: "groq",
        base: "https://api.groq.com/openai/v1",
        known_by: "api.groq.com",
        namespace: "groq",
        cap_field: "max_completion_tokens",
        ..PLAIN
    },
    Profile {
        id: "deepseek",
        base: "https://api.deepseek.com",
        known_by: "api.deepseek.com",
        namespace: "deepseek",
        replay: Replay::WithCalls("reasoning_content"),
        control: Control::Thinking,
        ..PLAIN
    },
    Profile {
        id: "mistral",
        base: "https://api.mistral.ai/v1",
        known_by: "api.mistral.ai",
        namespace: "mistral",
        usage: UsageMode::Always,
        required: Required::Any,
        call_ids: CallIds::Nine,
        assistant_between: true,
        ..PLAIN
    },
    Profile { id: "together", base: "https://api.together.xyz/v1", known_by: "api.together.", namespace: "together", ..PLAIN },
    Profile {
        id: "xai",
        base: "https://api.x.ai/v1",
        known_by: "api.x.ai",
        namespace: "xai",
        cap_field: "max_completion_tokens",
        ..PLAIN
    },
    Profile {
        id: "cerebras",
        base: "https://api.cerebras.ai/v1",
        known_by: "api.cerebras.ai",
        namespace: "cerebras",
        cap_field: "max_completion_tokens",
        mute_overflow: true,
        ..PLAIN
    },
    Profile {
        id: "moonshot",
        aliases: &["kimi"],
        base: "https://api.moonshot.ai/v1",
        known_by: "api.moonshot.",
        namespace: "moonshot",
        replay: Replay::Field("reasoning_content"),
        control: Control::Thinking,
        ..PLAIN
    },
    Profile {
        id: "minimax",
        base: "https://api.minimax.io/v1",
        known_by: "api.minimax",
        namespace: "minimax",
        replay: Replay::Details,
        codes: MINIMAX_CODES,
        ..PLAIN
    },
    Profile {
        id: "zai",
        aliases: &["z-ai", "glm"],
        base: "https://api.z.ai/api/paas/v4",
        known_by: "api.z.ai",
        namespace: "zai",
        replay: Replay::Field("reasoning_content"),
        control: Control::Thinking,
        codes: ZAI_CODES,
        ..PLAIN
    },
    Profile {
        id: "dashscope",
        aliases: &["qwen"],
        base: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        known_by: ".aliyuncs.com",
        namespace: "dashscope",
        control: Control::EnableThinking,
        ..PLAIN
    },
    Profile {
        id: "fireworks",
        base: "https://api.fireworks.ai/inference/v1",
        known_by: "api.fireworks.ai",
        namespace: "fireworks",
        ..PLAIN
    },
    Profile {
        id: "deepinfra",
        base: "https://api.deepinfra.com/v1/openai",
        known_by: "api.deepinfra.com",
        namespace: "deepinfra",
        ..PLAIN
    },
    Profile {
        id: "huggingface",
        base: "https://router.huggingface.co/v1",
        known_by: "router.huggingface.co",
        namespace: "huggingface",
        ..PLAIN
    },
    Profile { id: "vercel", base: "https://ai-gateway.vercel.sh/v1", known_by: "ai-gateway.vercel.sh", namespace: "vercel", ..PLAIN },
    Profile {
        id: "nvidia",
        base: "https://integrate.api.nvidia.com/v1",
        known_by: "integrate.api.nvidia.com",
        namespace: "nvidia",
        ..PLAIN
    },
    Profile {
        id: "gemini",
        aliases: &["google"],
        base: "https://generativelanguage.googleapis.com/v1beta/openai",
        known_by: "generativelanguage.googleapis.com",
        namespace: "google",
        control: Control::Effort,
        three_efforts: true,
        ..PLAIN
    },
];

/// What all Workers AI models of `@cf/` and `@hf/` share (`providers.md` §4.4).
const WORKERS_AI: Profile = Profile {
    id: "workers-ai",
    known_by: "api.cloudflare.com",
    namespace: "workers-ai",
    usage: UsageMode::Always,
    replay: Replay::Field("reasoning_content"),
    control: Control::Template,
    three_efforts: true,
    null_content: false,
    image_urls: false,
    codes: WORKERS_AI_CODES,
    request_cap: crate::limits::WORKERS_AI_BODY,
    ..PLAIN
};

/// The families of Workers AI by the beginning of the model's name; the first match counts, the last row takes the rest.
static FAMILIES: &[(&str, Profile)] = &[
    ("@cf/openai/", Profile { control: Control::Effort, leaks_calls: true, ..WORKERS_AI }),
    ("@cf/moonshotai/", Profile { control: Control::Effort, ..WORKERS_AI }),
    ("@cf/zai-org/glm-4.7-flash", Profile { required: Required::Named, ..WORKERS_AI }),
    ("@cf/mistralai/", Profile { control: Control::None, call_ids: CallIds::Nine, assistant_between: true, ..WORKERS_AI }),
    ("@cf/google/", Profile { echo_suffix: "-external", ..WORKERS_AI }),
    ("@cf/nvidia/nemotron-", Profile { mislabels_text: true, ..WORKERS_AI }),
    ("@hf/", Profile { result_names: true, replay: Replay::None, control: Control::None, ..WORKERS_AI }),
    ("@cf/meta/llama-3", Profile { result_names: true, replay: Replay::None, control: Control::None, ..WORKERS_AI }),
    ("@cf/qwen/qwen1.5", Profile { result_names: true, replay: Replay::None, control: Control::None, ..WORKERS_AI }),
    ("@cf/", WORKERS_AI),
    (
        "",
        Profile {
            cap_field: "max_completion_tokens",
            replay: Replay::None,
            control: Control::Effort,
            null_content: true,
            image_urls: true,
            ..WORKERS_AI
        },
    ),
];

/// The row of a Workers AI model.
fn family(model: &str) -> &'static Profile {
    FAMILIES.iter().find(|(prefix, _)| model.starts_with(prefix)).map_or(&CONSERVATIVE, |(_, profile)| profile)
}

/// The row of the server at this address, if the address tells.
fn recognise(base_url: &str) -> Option<&'static Profile> {
    let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    SERVERS.iter().find(|row| match row.known_by {
        "" => false,
        port if port.starts_with(':') => host.ends_with(port),
        suffix if suffix.starts_with('.') => host.ends_with(suffix),
        name => host.starts_with(name),
    })
}

/// Where requests of `model` go.
///
/// ```
/// use wakeful::model::{ModelRef, profile::{Route, route}};
/// let model = ModelRef::from("ollama/qwen3");
/// assert!(matches!(route(&model), Ok(Route::Http(e)) if e.base_url == "http://127.0.0.1:11434/v1"));
/// assert!(route(&"nobody/knows".into()).is_err());
/// ```
///
/// # Errors
/// `InvalidRequest` for a provider or address that cannot be used, `Auth` where a key is missing; the text says what to set.
pub fn route(model: &ModelRef) -> Result<Route, ModelError> {
    if matches!(model.provider.as_str(), "demo" | "") {
        return Ok(Route::Demo);
    }
    let base_url = model.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
    let key = model.api_key.as_deref().map(str::trim).filter(|key| !key.is_empty());
    let profile = if model.provider == "workers-ai" {
        family(&model.model)
    } else if model.provider == CONSERVATIVE.id {
        base_url.and_then(recognise).unwrap_or(&CONSERVATIVE)
    } else {
        named(&model.provider)?
    };
    if model.model.trim().is_empty() {
        let example = if profile.id == "workers-ai" { "@cf/openai/gpt-oss-120b" } else { "name-of-the-model" };
        let text = format!("\"{0}\" names no model: write provider/model, like {0}/{example}", model.provider);
        return Err(ModelError::new(InvalidRequest, text));
    }
    let address = match base_url {
        None if model.provider == "workers-ai" => return Ok(Route::AiBinding(Binding { profile })),
        None if profile.base.is_empty() => {
            let text = format!("\"{0}\" needs an address: set the model's base URL (MODEL_BASE_URL)", model.provider);
            return Err(ModelError::new(InvalidRequest, text));
        }
        // A server behind an address of the user's own (a proxy, a gateway) may keep the key itself.
        None if key.is_none() && !profile.keyless => {
            let text = format!("\"{0}\" needs a key: set the model's API key (MODEL_API_KEY)", model.provider);
            return Err(ModelError::new(AuthError, text));
        }
        None => profile.base,
        Some(url) => url,
    };
    if !(address.starts_with("https://") || address.starts_with("http://")) || address.contains(|c: char| c.is_control() || c == ' ') {
        let text = format!("the base URL of \"{}\" is no http(s) address", model.provider);
        return Err(ModelError::new(InvalidRequest, text));
    }
    Ok(Route::Http(Endpoint { profile, base_url: address.to_owned(), api_key: key.map(str::to_owned) }))
}

fn named(provider: &str) -> Result<&'static Profile, ModelError> {
    if let Some(row) = SERVERS.iter().find(|row| row.id == provider || row.aliases.contains(&provider)) {
        return Ok(row);
    }
    let known: Vec<&str> = SERVERS.iter().map(|row| row.id).collect();
    let text = format!(
        "no provider is called \"{provider}\": use demo, workers-ai, openai-compatible (with a base URL), {}",
        known.join(", ")
    );
    Err(ModelError::new(InvalidRequest, text))
}

/// Whether OpenAI's model of this name is a reasoning model: it wants `developer` and refuses sampling parameters.
pub fn is_openai_reasoning_model(model: &str) -> bool {
    let after = |prefix: &str| model.strip_prefix(prefix);
    let o_series = after("o").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let gpt = after("gpt-5").is_some_and(|rest| !rest.contains("-chat"));
    o_series || gpt || model.starts_with("codex-")
}

/// The effort by which OpenAI's model of this name thinks least.
pub fn least_openai_effort(model: &str) -> &'static str {
    if model.starts_with("gpt-5.") {
        "none"
    } else if model.starts_with("gpt-5") {
        "minimal"
    } else {
        "low"
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn http(model: ModelRef) -> Endpoint {
        match route(&model).unwrap() {
            Route::Http(endpoint) => endpoint,
            other => panic!("{model:?} goes to {other:?}"),
        }
    }

    #[test]
    fn each_provider_has_its_own_name_address_and_namespace() {
        let mut names: Vec<&str> = SERVERS.iter().flat_map(|row| [&[row.id][..], row.aliases].concat()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name is used twice");
        for row in SERVERS {
            let mut model = ModelRef::from(format!("{}/m", row.id)).api_key("k");
            if row.base.is_empty() {
                model = model.base_url("https://x.example/v1");
            }
            let endpoint = http(model);
            assert_eq!(endpoint.profile.id, row.id);
            if !row.base.is_empty() {
                assert_eq!(recognise(row.base).map(|p| p.id), Some(row.id), "its own address is not recognised");
            }
        }
        // The aliases of the deployable (decision 49).
        assert_eq!(http(ModelRef::from("openai-chat/gpt-4o").api_key("k")).profile.id, "openai");
    }

    #[test]
    fn an_address_tells_the_server() {
        let table = [
            ("http://127.0.0.1:11434/v1", "ollama"),
            ("http://gpu.local:8000/v1", "vllm"),
            ("https://OpenRouter.ai/api/v1", "openrouter"),
            ("https://user:pw@api.groq.com/openai/v1", "groq"),
            ("https://res.openai.azure.com/openai/v1", "azure-openai"),
            ("http://127.0.0.1:9911/v1", "openai-compatible"),
            ("https://evil.example/api.openai.com/v1", "openai-compatible"),
            ("https://proxy.example:80001/v1", "openai-compatible"),
        ];
        for (url, id) in table {
            assert_eq!(http(ModelRef::from("openai-compatible/m").base_url(url)).profile.id, id, "{url}");
        }
        // A named provider keeps its row whatever its address.
        assert_eq!(http(ModelRef::from("mistral/m").base_url("http://127.0.0.1:11434/v1")).profile.id, "mistral");
    }

    #[test]
    fn what_cannot_be_routed_says_what_to_set() {
        let table = [
            ("nobody/m", InvalidRequest, "openai-compatible (with a base URL), openai, azure-openai, ollama"),
            ("openai-compatible/m", InvalidRequest, "MODEL_BASE_URL"),
            ("azure-openai/m", InvalidRequest, "MODEL_BASE_URL"),
            ("openai/gpt-5", AuthError, "MODEL_API_KEY"),
            ("ollama", InvalidRequest, "ollama/name-of-the-model"),
            ("workers-ai/", InvalidRequest, "workers-ai/@cf/"),
        ];
        for (text, class, part) in table {
            let error = route(&text.into()).unwrap_err();
            assert_eq!(error.class, class, "{text}");
            assert!(error.message.contains(part), "{text}: {}", error.message);
        }
        for url in ["ftp://x", "localhost:8000", "http://a b/v1"] {
            assert!(route(&ModelRef::from("vllm/m").base_url(url)).is_err(), "{url}");
        }
    }

    // providers §4.4
    #[test]
    fn workers_ai_rows_follow_the_family() {
        let profile = |name: &str| route(&format!("workers-ai/{name}").into()).unwrap().profile();
        assert!(profile("@cf/openai/gpt-oss-120b").leaks_calls);
        assert_eq!(profile("@cf/moonshotai/kimi-k2.5").control, Control::Effort);
        assert_eq!(profile("@cf/zai-org/glm-4.7-flash").required, Required::Named);
        assert_eq!(profile("@cf/mistralai/mistral-small-3.1-24b-instruct").call_ids, CallIds::Nine);
        assert_eq!(profile("@cf/google/gemma-3-12b-it").echo_suffix, "-external");
        assert!(profile("@cf/nvidia/nemotron-3").mislabels_text);
        assert!(profile("@hf/nousresearch/hermes-2-pro-mistral-7b").result_names);
        assert!(!profile("@cf/qwen/qwq-32b").null_content);
        assert_eq!(profile("anthropic/claude-sonnet").cap_field, "max_completion_tokens");
        assert_eq!(route(&"demo".into()).unwrap(), Route::Demo);
        // Over REST the same rows count.
        let rest =
            http(ModelRef::from("workers-ai/@cf/google/gemma").base_url("https://api.cloudflare.com/client/v4/accounts/a/ai/v1"));
        assert_eq!(rest.profile.echo_suffix, "-external");
    }

    #[test]
    fn openai_reasoning_models_are_told_apart() {
        for name in ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5.1", "gpt-5-nano", "codex-mini"] {
            assert!(is_openai_reasoning_model(name), "{name}");
        }
        for name in ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "omni", "chatgpt-4o-latest"] {
            assert!(!is_openai_reasoning_model(name), "{name}");
        }
    }
}
