//! The tables of `providers.md` §13: overflow texts, what only looks like one, statuses, shapes, waits, and what is shown.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};

use super::*;
use crate::model::{
    ErrorClass,
    ModelErrorClass::*,
    ModelRef,
    profile::{Binding, route},
};

fn route_of(model: &str) -> Route {
    let model = ModelRef::from(model).api_key("the-key-of-this-test");
    route(&match model.provider.as_str() {
        "openai-compatible" | "azure-openai" => model.base_url("http://127.0.0.1:9/v1"),
        _ => model,
    })
    .unwrap()
}

fn origin(model: &str) -> Origin {
    Origin::of(&route_of(model), &[])
}

fn head(status: u16, headers: &[(&str, &str)]) -> Head {
    Head { status, headers: headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect() }
}

fn openai_error(message: &str, code: &str) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}}).to_string()
}

fn http_of(model: &str, status: u16, body: &str) -> ModelError {
    http(&origin(model), &head(status, &[]), body.as_bytes())
}

const I: ModelErrorClass = Overflow(OverflowKind::Input);
const O: ModelErrorClass = Overflow(OverflowKind::Output);
const B: ModelErrorClass = Overflow(OverflowKind::Bytes);

/// Limit, input, output.
type Three = (Option<u64>, Option<u64>, Option<u64>);
const NONE: Three = (None, None, None);

fn three(limit: u64, input: u64) -> Three {
    (Some(limit), Some(input), None)
}

fn four(limit: u64, input: u64, output: u64) -> Three {
    (Some(limit), Some(input), Some(output))
}

/// Rows 4, 29 (finish reason) and 36 have no body: they are rows of the decoder.
// PV-44
#[test]
fn every_overflow_text_is_an_overflow_with_its_kind_and_numbers() {
    let any = "openai-compatible/m";
    let vllm_new = "This model's maximum context length is 8192 tokens. However, you requested 1024 output tokens and your prompt \
        contains at least 7169 input tokens, for a total of at least 8193 tokens. Please reduce the length of the input prompt or the \
        number of requested output tokens. (parameter=input_tokens, value=7169)";
    let table: &[(&str, &str, u16, String, ModelErrorClass, Three)] = &[
        ("1", any, 400, openai_error("prompt is too long: 210,000 tokens > 200,000 maximum", ""), I, three(200_000, 210_000)),
        (
            "2 O",
            any,
            400,
            openai_error(
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
                "",
            ),
            O,
            four(200_000, 190_000, 20_000),
        ),
        (
            "2 I",
            any,
            400,
            openai_error("input length and `max_tokens` exceed context limit: 210000 + 20000 > 200000, decrease", ""),
            I,
            four(200_000, 210_000, 20_000),
        ),
        (
            "3",
            any,
            413,
            json!({"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}).to_string(),
            B,
            NONE,
        ),
        (
            "5",
            "openai/gpt-4",
            400,
            openai_error(
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. Please reduce the length of the messages.",
                "context_length_exceeded",
            ),
            I,
            three(8192, 9000),
        ),
        (
            "5 O",
            "openai/gpt-4",
            400,
            openai_error(
                "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (7000 in the messages, 2000 in the completion).",
                "context_length_exceeded",
            ),
            O,
            four(8192, 7000, 2000),
        ),
        (
            "6",
            any,
            400,
            openai_error("Your input exceeds the context window of this model. Please adjust your input and try again.", "context_length_exceeded"),
            I,
            NONE,
        ),
        ("7", "azure-openai/m", 400, openai_error("x", "context_length_exceeded"), I, NONE),
        (
            "8",
            any,
            400,
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}]).to_string(),
            I,
            three(1_048_576, 1_200_000),
        ),
        (
            "8 older",
            any,
            400,
            openai_error("The input token count 1200000 exceeds the maximum number of tokens allowed 1048576.", ""),
            I,
            three(1_048_576, 1_200_000),
        ),
        (
            "9",
            any,
            400,
            openai_error("Unable to submit request because the input token count is 40000 but the model only supports up to 32768.", ""),
            I,
            three(32_768, 40_000),
        ),
        ("10", any, 400, json!({"message": "Input is too long for requested model."}).to_string(), I, NONE),
        (
            "10 wrapped",
            any,
            400,
            json!({"message": "The model returned the following errors: Input is too long for requested model."}).to_string(),
            I,
            NONE,
        ),
        ("10 bytes", any, 400, json!({"Message": "too many total text bytes: 900 > 800"}).to_string(), I, NONE),
        (
            "10 tokens",
            any,
            400,
            json!({"message": "Input Tokens Exceeded: Number of input tokens exceeds maximum input token limit"}).to_string(),
            I,
            NONE,
        ),
        (
            "11",
            "xai/grok",
            400,
            json!({"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 140000 tokens."}).to_string(),
            I,
            three(131_072, 140_000),
        ),
        ("12", "groq/m", 400, openai_error("Please reduce the length of the messages or completion.", "context_length_exceeded"), I, NONE),
        (
            "13 O",
            "openrouter/m",
            400,
            json!({"error": {"code": 400, "message": "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (6884 of text input, 1000 of tool input, 131072 in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.", "metadata": {"provider_name": null}}}).to_string(),
            O,
            four(131_072, 7_884, 131_072),
        ),
        (
            "13 I",
            "openrouter/m",
            400,
            json!({"error": {"code": 400, "message": "This endpoint's maximum context length is 8192 tokens. However, you requested about 10000 tokens (9000 of text input, 1000 in the output). Please reduce the length of either one, or use the context-compression plugin"}}).to_string(),
            I,
            four(8192, 9000, 1000),
        ),
        (
            "14",
            "openrouter/m",
            400,
            json!({"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": "{\"error\":{\"message\":\"Input length 140000 exceeds the maximum allowed input length of 131040 tokens.\"}}"}}}).to_string(),
            I,
            three(131_040, 140_000),
        ),
        (
            "15",
            "together/m",
            400,
            openai_error("The input (9000 tokens) is longer than the model's context length (8192 tokens).", ""),
            I,
            three(8192, 9000),
        ),
        (
            "15 O",
            "together/m",
            422,
            openai_error("Input validation error: inputs tokens + max_new_tokens must be <= 8193. Given: 7000 inputs tokens and 2000 max_new_tokens", ""),
            O,
            four(8193, 7000, 2000),
        ),
        (
            "16",
            "mistral/m",
            400,
            json!({"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_prompt", "param": null, "code": "3051"}).to_string(),
            I,
            three(32_768, 40_000),
        ),
        (
            "17",
            "deepseek/m",
            400,
            openai_error(
                "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (60000 in the messages, 10000 in the completion). Please reduce the length of the messages or completion.",
                "invalid_request_error",
            ),
            O,
            four(65_536, 60_000, 10_000),
        ),
        (
            "18",
            "vllm/m",
            400,
            json!({"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4900 in the messages, 100 in the completion).", "type": "BadRequestError", "code": 400}).to_string(),
            I,
            four(4096, 4900, 100),
        ),
        (
            "18 negative",
            "vllm/m",
            400,
            json!({"object": "error", "message": "max_tokens must be at least 1, got -186.", "type": "BadRequestError", "code": 400}).to_string(),
            I,
            NONE,
        ),
        ("19", "vllm/m", 400, openai_error(vllm_new, ""), I, four(8192, 7169, 1024)),
        (
            "20",
            any,
            400,
            openai_error("Input length (9000) exceeds model's maximum context length (8192).", ""),
            I,
            three(8192, 9000),
        ),
        (
            "20 total",
            any,
            400,
            openai_error("Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: 7000 tokens from the input messages and 2000 tokens for the completion.", ""),
            O,
            four(8192, 7000, 2000),
        ),
        ("20 litellm", any, 400, openai_error("litellm.ContextWindowExceededError: x", ""), I, NONE),
        ("20 window", any, 400, openai_error("Context Window exceeded for given call", ""), I, NONE),
        (
            "21",
            "workers-ai/@cf/m",
            400,
            json!({"errors": [{"code": 5006, "message": format!("AiError: AiError: {vllm_new}")}], "success": false, "result": {}, "messages": []}).to_string(),
            I,
            four(8192, 7169, 1024),
        ),
        (
            "21 nested",
            "workers-ai/@cf/m",
            413,
            json!({"errors": [{"code": 8007, "message": "AiError: {\"object\":\"error\",\"message\":\"Input length (9000) exceeds model's maximum context length (8192).\",\"code\":400}"}], "success": false}).to_string(),
            I,
            three(8192, 9000),
        ),
        (
            "22",
            "llama-cpp/m",
            400,
            json!({"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}).to_string(),
            I,
            three(4096, 5000),
        ),
        (
            "22 text",
            "llama-cpp/m",
            400,
            json!({"error": {"code": 400, "message": "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error"}}).to_string(),
            I,
            three(4096, 5000),
        ),
        (
            "23",
            "lmstudio/m",
            400,
            json!({"error": "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000>= n_ctx: 4096). Try to load the model with a larger context length"}).to_string(),
            I,
            three(4096, 5000),
        ),
        (
            "23 older",
            "lmstudio/m",
            400,
            json!({"error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}).to_string(),
            I,
            three(4096, 5000),
        ),
        ("24", "ollama/m", 400, json!({"error": {"message": "prompt too long; exceeded max context length by 900 tokens"}}).to_string(), I, NONE),
        ("24 input", "ollama/m", 400, json!({"error": "input length exceeds maximum context length"}).to_string(), I, NONE),
        (
            "25",
            any,
            400,
            json!({"message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 4096 - received 5000. Try using a shorter prompt"}).to_string(),
            I,
            (Some(4096), None, None),
        ),
        ("25 max", any, 400, json!({"message": "invalid request: total tokens exceeds the model's max of 4096"}).to_string(), I, (Some(4096), None, None)),
        ("25 size", any, 422, json!({"message": "size limit exceeded"}).to_string(), I, NONE),
        ("26", any, 400, openai_error("The total length of all messages is too long", ""), I, NONE),
        (
            "27",
            "moonshot/m",
            400,
            openai_error("Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)", ""),
            I,
            three(131_072, 140_000),
        ),
        (
            "28",
            "minimax/m",
            200,
            json!({"base_resp": {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit (2013)"}, "choices": null}).to_string(),
            I,
            NONE,
        ),
        ("29", "zai/m", 400, json!({"error": {"code": "1261", "message": "Prompt too long"}}).to_string(), I, NONE),
        ("29 code", "zai/m", 400, json!({"error": {"code": "1261", "message": "提示过长"}}).to_string(), I, NONE),
        ("29 max", any, 400, json!({"error": {"code": "1261", "message": "Prompt exceeds max length"}}).to_string(), I, NONE),
        (
            "30",
            "dashscope/m",
            400,
            json!({"code": "InvalidParameter", "message": "Range of input length should be [1, 30720]", "request_id": "r"}).to_string(),
            I,
            (Some(30_720), None, None),
        ),
        (
            "31",
            any,
            400,
            json!({"error": {"message": "prompt token count of 70000 exceeds the limit of 64000", "code": "model_max_prompt_tokens_exceeded"}}).to_string(),
            I,
            three(64_000, 70_000),
        ),
        ("31 bytes", any, 413, "failed to parse request".into(), B, NONE),
        (
            "32 text",
            "cerebras/m",
            400,
            json!({"message": "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}).to_string(),
            I,
            three(8192, 9000),
        ),
        (
            "33",
            any,
            400,
            json!({"error": {"type": "context_exceeded", "message": "Prompt tokens (9000) exceeds context size (8192)", "n_prompt_tokens": 9000, "n_ctx": 8192}}).to_string(),
            I,
            three(8192, 9000),
        ),
        (
            "33 has",
            any,
            400,
            json!({"error": {"type": "context_exceeded", "message": "Prompt has 9000 tokens, but the configured context size is 8192 tokens"}}).to_string(),
            I,
            three(8192, 9000),
        ),
        (
            "34 O",
            any,
            422,
            json!({"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens and 2000 `max_new_tokens`", "error_type": "validation"}).to_string(),
            O,
            four(4096, 3000, 2000),
        ),
        (
            "34 I",
            any,
            422,
            json!({"error": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000", "error_type": "validation"}).to_string(),
            I,
            three(4095, 5000),
        ),
        (
            "35",
            "fireworks/m",
            400,
            json!({"error": {"object": "error", "type": "invalid_request_error", "message": "The prompt is too long: 9000, model maximum context length: 8192"}}).to_string(),
            I,
            three(8192, 9000),
        ),
    ];
    for (row, model, status, body, class, numbers) in table {
        let error = http_of(model, *status, body);
        let found = error.numbers.as_deref().copied().unwrap_or_default();
        assert_eq!(error.class, *class, "row {row}: {}", error.message);
        assert_eq!((found.limit, found.input, found.output), *numbers, "row {row}: {}", error.message);
        assert_eq!(error.class.hook_class(), ErrorClass::ContextOverflow, "row {row}");
        assert_eq!(error.class.retries_in_step(), 0, "row {row}");
    }
}

/// Row 32: the server says nothing at all.
#[test]
fn an_error_without_a_body_is_an_overflow_only_where_servers_say_it_so_and_the_request_is_long() {
    let long = origin("cerebras/m").request_bytes(2_000_000);
    assert_eq!(http(&long, &head(400, &[]), b"").class, I);
    assert_eq!(http(&long, &head(413, &[]), b"").class, I);
    assert_eq!(http(&origin("cerebras/m").request_bytes(2_000), &head(400, &[]), b"").class, InvalidRequest);
    assert_eq!(http(&origin("groq/m").request_bytes(2_000_000), &head(400, &[]), b"").class, InvalidRequest);
}

// PV-45
#[test]
fn what_only_looks_like_an_overflow_has_its_own_class() {
    let tpm = |limit: u32, requested: u32| {
        format!(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit {limit}, Requested {requested}. The input or output tokens must be reduced"
        )
    };
    let table: &[(&str, u16, String, ModelErrorClass)] = &[
        ("openai/m", 429, openai_error(&tpm(30_000, 20_000), "rate_limit_exceeded"), RateLimit),
        ("openai/m", 429, openai_error(&tpm(30_000, 45_123), "rate_limit_exceeded"), RequestTooBigForRate),
        (
            "groq/m",
            413,
            openai_error(
                "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 5000, please reduce your message size",
                "rate_limit_exceeded",
            ),
            RateLimit,
        ),
        (
            "groq/m",
            413,
            openai_error(
                "Request too large for model `x` on tokens per minute (TPM): Limit 6,000, Requested 7,000",
                "rate_limit_exceeded",
            ),
            RequestTooBigForRate,
        ),
        ("openai-compatible/m", 429, json!({"message": "Too many tokens, please wait before trying again."}).to_string(), RateLimit),
        ("openai-compatible/m", 400, json!({"message": "Too many tokens, please wait before trying again."}).to_string(), RateLimit),
        (
            "groq/m",
            429,
            openai_error(
                "Rate limit reached for model `x` on tokens per day: Limit 100000, Used 99000, Requested 2000",
                "rate_limit_exceeded",
            ),
            RateLimit,
        ),
        ("openai-compatible/m", 400, "Too Many Requests".into(), RateLimit),
        ("azure-openai/m", 400, openai_error("The input exceeds the maximum usage size allowed during peak load", ""), Overloaded),
        (
            "groq/m",
            400,
            openai_error(
                "max_tokens must be less than or equal to `16384`, the maximum value for max_tokens is less than the context_window for this model",
                "",
            ),
            InvalidRequest,
        ),
        (
            "openai/m",
            400,
            openai_error(
                "max_completion_tokens is too large: 200000. This model supports at most 100000 completion tokens",
                "invalid_value",
            ),
            InvalidRequest,
        ),
        (
            "openai-compatible/m",
            400,
            openai_error("max_tokens: 99999 > 64000, which is the maximum allowed number of output tokens for x", ""),
            InvalidRequest,
        ),
        ("openai-compatible/m", 400, openai_error("`max_tokens` must be greater than `thinking.budget_tokens`", ""), InvalidRequest),
        (
            "openai/m",
            400,
            openai_error(
                "Invalid 'messages[1].tool_call_id': string too long. Expected a string with maximum length 40, but got 50",
                "string_above_max_length",
            ),
            InvalidRequest,
        ),
        (
            "openai/m",
            400,
            openai_error("Invalid 'messages': array too long. Expected an array with maximum length 2048", "array_above_max_length"),
            InvalidRequest,
        ),
        (
            "openai/m",
            400,
            openai_error(
                "Invalid 'messages[0].content': string too long. Expected a string with maximum length 10485760",
                "string_above_max_length",
            ),
            B,
        ),
        (
            "openai-compatible/m",
            400,
            openai_error("messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes", ""),
            B,
        ),
        (
            "openai-compatible/m",
            400,
            openai_error(
                "messages.4.content.0: at least one of the image dimensions exceed max allowed size for many-image requests",
                "",
            ),
            B,
        ),
        ("openai-compatible/m", 400, openai_error("too many images", ""), B),
        (
            "openai-compatible/m",
            429,
            openai_error("This request would exceed your account's rate limit. Please try again later.", ""),
            RateLimit,
        ),
        ("openai-compatible/m", 429, openai_error("The long context beta requires extra usage", ""), Quota),
        (
            "openai-compatible/m",
            429,
            openai_error("You have exceeded your current quota, please check your plan and billing details.", "insufficient_quota"),
            Quota,
        ),
        (
            "workers-ai/@cf/m",
            400,
            json!({"error": {"code": "invalid_prompt", "message": "AiError: AiError: Request timeout"}}).to_string(),
            Transient,
        ),
        // Whatever it says, 429 is never an overflow.
        ("openai-compatible/m", 429, openai_error("maximum context length", ""), RateLimit),
        // The phrase stands far behind the head of the message, in what the server quotes of the prompt.
        (
            "openai-compatible/m",
            400,
            openai_error(&format!("Invalid value in messages[3]: {} the prompt is too long", "x".repeat(300)), ""),
            InvalidRequest,
        ),
        // The phrase stands beside the message.
        (
            "openai-compatible/m",
            400,
            json!({"error": {"message": "bad tool", "type": "invalid_request_error"}, "input": "the prompt is too long"}).to_string(),
            InvalidRequest,
        ),
    ];
    for (model, status, body, class) in table {
        assert_eq!(http_of(model, *status, body).class, *class, "{status} {body}");
    }
}

#[test]
fn statuses_codes_and_words_give_the_class() {
    let plain = |text: &str| json!({"error": {"message": text}}).to_string();
    let coded = |code: &str| json!({"error": {"message": "x", "type": "t", "code": code}}).to_string();
    let table: &[(u16, String, ModelErrorClass)] = &[
        (400, plain("x"), InvalidRequest),
        (401, plain("x"), Auth),
        (401, openai_error("Incorrect API key provided", "invalid_api_key"), Auth),
        (402, plain("x"), Quota),
        (403, plain("x"), Auth),
        (403, plain("Your input was flagged by moderation"), ContentFilter),
        (404, plain("x"), NotFound),
        (404, openai_error("The model `gpt-9` does not exist", "model_not_found"), NotFound),
        (400, coded("model_not_found"), NotFound),
        (405, plain("x"), InvalidRequest),
        (408, plain("x"), Transient),
        (409, plain("x"), Transient),
        (415, plain("x"), InvalidRequest),
        (418, plain("x"), InvalidRequest),
        (422, plain("x"), InvalidRequest),
        (425, plain("x"), Transient),
        (429, plain("x"), RateLimit),
        (429, coded("insufficient_quota"), Quota),
        (498, plain("x"), Overloaded),
        (500, plain("x"), Transient),
        (500, plain("The model is overloaded"), Overloaded),
        (502, "<html><title>502 Bad Gateway</title></html>".into(), Transient),
        (503, plain("x"), Overloaded),
        (504, plain("x"), Transient),
        (522, plain("x"), Transient),
        (529, plain("x"), Overloaded),
        (413, plain("x"), B),
        (400, coded("content_filter"), ContentFilter),
        (400, coded("content_policy_violation"), ContentFilter),
        (400, coded("tool_use_failed"), ModelOutput),
        (400, plain("Your credit balance is too low"), Quota),
        (403, plain("Quota exceeded for requests per day"), Quota),
        (301, String::new(), NotFound),
    ];
    for (status, body, class) in table {
        assert_eq!(http_of("openai-compatible/m", *status, body).class, *class, "{status} {body}");
    }
    // Codes of one server mean nothing at another.
    assert_eq!(http_of("zai/m", 400, &coded("1308")).class, Quota);
    assert_eq!(http_of("openai-compatible/m", 400, &coded("1308")).class, InvalidRequest);
    // OpenRouter: an empty account, or a moment's.
    let empty = http(&origin("openrouter/m"), &head(402, &[]), plain("x").as_bytes());
    let moment = http(&origin("openrouter/m"), &head(402, &[("retry-after", "3")]), plain("x").as_bytes());
    assert_eq!((empty.class, moment.class), (Quota, RateLimit));
}

#[test]
fn every_shape_of_error_is_read() {
    let table: &[(Value, &str, Option<&str>)] = &[
        (json!({"error": {"message": "m", "code": "c"}}), "m", Some("c")),
        (json!([{"error": {"message": "m", "code": 17}}]), "m", Some("17")),
        (json!({"error": "m"}), "m", None),
        (json!({"error": {"error": {"message": "m", "type": "t"}}}), "m", Some("t")),
        (json!({"type": "error", "error": {"type": "t", "message": "m"}}), "m", Some("t")),
        (json!({"type": "error", "code": "c", "message": "m"}), "m", Some("c")),
        (json!({"type": "response.failed", "response": {"error": {"code": "c", "message": "m"}}}), "m", Some("c")),
        (json!({"object": "error", "message": "m", "type": "t", "code": 400}), "m", Some("400")),
        (json!({"errors": [{"code": 5007, "message": "m"}]}), "m", Some("5007")),
        (json!({"success": false, "error": [{"code": 2001, "message": "m"}], "name": "AiGatewayError"}), "m", Some("2001")),
        (json!({"detail": "m"}), "m", None),
        (json!({"detail": [{"msg": "m", "loc": ["body"]}]}), "m", None),
        (json!({"message": "m"}), "m", None),
        (json!({"Message": "m"}), "m", None),
        (json!({"description": "m"}), "m", None),
        (json!({"msg": "m"}), "m", None),
        (json!({"error": {"message": "{\"error\":{\"message\":\"m\",\"code\":\"c\"}}"}}), "m", Some("c")),
        (
            json!({"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": "{\"message\":\"m\",\"code\":\"c\"}"}}}),
            "m",
            Some("c"),
        ),
        (json!({"code": "c", "error": "m"}), "m", Some("c")),
    ];
    for (body, message, code) in table {
        let error = http_of("openai-compatible/m", 400, &body.to_string());
        assert_eq!((error.message.as_str(), error.code.as_deref()), (*message, *code), "{body}");
    }
    let page =
        http_of("openai-compatible/m", 404, "<!doctype html><html><head><TITLE>Not\n Found</TITLE></head><body>x</body></html>");
    assert_eq!(page.message, "Not Found");
    assert_eq!(http_of("openai-compatible/m", 404, "no such thing").message, "no such thing");
    assert_eq!(http_of("openai-compatible/m", 404, "").message, "the provider answered 404 without a message");
}

// PV-37, providers §4.6
#[test]
fn errors_of_the_binding_are_told_by_their_codes() {
    let binding = Route::AiBinding(Binding { profile: route_of("workers-ai/@cf/m").profile() });
    let table = [
        ("3040: Capacity temporarily exceeded, please try again.", Overloaded),
        ("InferenceUpstreamError: 3040: Capacity temporarily exceeded", Overloaded),
        ("3036: you have used up your daily free allocation of 10,000 neurons", Quota),
        ("4006: you have used up your daily free allocation", Quota),
        ("5007: No such model @cf/x", NotFound),
        ("5006: Error: required properties at '/' are 'prompt'", InvalidRequest),
        ("AiError: 3007: Request timed out", Transient),
        ("5016: licence", Auth),
        ("TypeError: Cannot read properties of undefined", InvalidRequest),
        ("1234: whatever", InvalidRequest),
        ("Network connection lost.", Transient),
    ];
    for (text, class) in table {
        assert_eq!(transport(&binding, text).class, class, "{text}");
    }
    let body = |code: u32, message: &str| json!({"errors": [{"code": code, "message": message}], "success": false}).to_string();
    assert_eq!(http_of("workers-ai/@cf/m", 429, &body(3036, "x")).class, Quota);
    assert_eq!(http_of("workers-ai/@cf/m", 429, &body(3040, "x")).class, Overloaded);
    assert_eq!(http_of("workers-ai/@cf/m", 413, &body(3006, "x")).class, B);
    assert_eq!(http_of("workers-ai/@cf/m", 403, &body(5018, "x")).class, Auth);
    // The network of everyone else.
    let network = transport(&route_of("openai-compatible/m"), "TypeError: fetch failed");
    assert_eq!((network.class, network.code.as_deref()), (Transient, Some("network")));
}

// PV-46
#[test]
fn waits_are_read_and_capped() {
    let plain = openai_error("slow down", "rate_limit_exceeded");
    let wait = |headers: &[(&str, &str)], body: &str| {
        http(&origin("openai-compatible/m"), &head(429, headers), body.as_bytes()).retry_after_ms
    };
    assert_eq!(wait(&[("retry-after", "2")], &plain), Some(2_000));
    assert_eq!(wait(&[("retry-after-ms", "150"), ("retry-after", "2")], &plain), Some(150));
    let date = [("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT")];
    assert_eq!(wait(&date, &plain), Some(20_000));
    assert_eq!(wait(&[("retry-after", "3600")], &plain), Some(60_000));
    assert_eq!(wait(&[], &plain), None);
    let gemini = json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "You exceeded your current quota.",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "23s"}]}}]);
    let error = http(&origin("gemini/m"), &head(429, &[]), gemini.to_string().as_bytes());
    assert_eq!((error.class, error.retry_after_ms), (RateLimit, Some(23_000)));
    assert_eq!(wait(&[], &openai_error("Rate limit reached. Please try again in 1.2s.", "")), Some(1_200));
    assert_eq!(wait(&[], &openai_error("Rate limit reached. Please try again in 6m0s.", "")), Some(60_000));
}

// PV-47
#[test]
fn the_server_may_forbid_or_allow_a_retry() {
    let ask = |status: u16, word: &str| http(&origin("openai/m"), &head(status, &[("x-should-retry", word)]), b"{}");
    assert!(ask(503, "false").no_retry);
    assert!(!ask(503, "true").no_retry);
    assert_eq!(ask(400, "true").class, Transient);
    assert_eq!(ask(400, "false").class, InvalidRequest);
    assert_eq!(ask(401, "true").class, Auth);
}

// PV-48
#[test]
fn bodies_are_read_whatever_they_are_and_kept_short() {
    let broken = http(&origin("openai-compatible/m"), &head(500, &[("x-request-id", "r1")]), b"bad \xFF\xFE byte");
    assert_eq!(broken.message, "bad \u{FFFD}\u{FFFD} byte");
    assert_eq!(broken.request_id.as_deref(), Some("r1"));
    let long = openai_error(&"é".repeat(100_000), "");
    let error = http_of("openai-compatible/m", 400, &long);
    assert!(error.message.len() <= ERROR_MESSAGE && error.raw.len() <= ERROR_RAW && error.message.starts_with("éé"));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(http_of("openai-compatible/m", 400, &deep).class, InvalidRequest);
    // Each level doubles the escapes of the one inside it.
    let nested = (0..8).fold("m".to_owned(), |text, _| json!({ "error": text }).to_string());
    assert_eq!(http_of("openai-compatible/m", 400, &nested).class, InvalidRequest);
}

// PV-49
#[test]
fn keys_are_hidden_before_anyone_sees_them() {
    let headers = [("x-portkey".to_owned(), "portkey-secret-value".to_owned())];
    let origin = Origin::of(&route_of("openai/gpt-4o"), &headers);
    let body = openai_error(
        "Incorrect API key provided: the-key-of-this-test. Also portkey-secret-value, Bearer abcdefgh12345, api_key=sk-proj-abc123456789 and AIzaSyD-1234567890.",
        "invalid_api_key",
    );
    let error = http(&origin, &head(401, &[]), body.as_bytes());
    for text in [error.message.clone(), error.raw.clone().into(), public_message(&error)] {
        for secret in ["the-key-of-this-test", "portkey-secret", "abcdefgh12345", "sk-proj", "AIzaSy"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert_eq!(error.message, "Incorrect API key provided: [key]. Also [key], Bearer [key], api_key=[key] and [key]");
    // Ordinary words stay.
    assert_eq!(hide_keys("task-force, sk-, pk-test, bearer of news"), "task-force, sk-, pk-test, bearer of news");
}

// decision 43
#[test]
fn clients_read_what_to_do_and_the_providers_own_words() {
    let classes = [
        I,
        O,
        B,
        RateLimit,
        RequestTooBigForRate,
        Overloaded,
        Transient,
        Quota,
        Auth,
        NotFound,
        InvalidRequest,
        ContentFilter,
        ModelOutput,
        Protocol,
        Aborted,
    ];
    let mut sentences = Vec::new();
    for class in classes {
        let text = public_message(&ModelError::new(class, ""));
        assert!(text.ends_with('.') && text.len() > 10, "{text}");
        sentences.push(text);
        let text = public_message(&ModelError::new(class, "own words"));
        assert!(text.ends_with(" (own words)"), "{text}");
    }
    sentences.dedup();
    assert_eq!(sentences.len(), classes.len() - 1, "the two kinds of a too long conversation share theirs");
    let table = [
        ("first line\n    at Object.run (worker.js:1:2)", "(first line)"),
        ("see https://internal.example/x?key=1 for more", "(see for more)"),
        ("the provider's answer is no completion: {\"a\":1}", "(the provider's answer is no completion)"),
        ("the provider answered with a web page: <html>", "(the provider answered with a web page)"),
    ];
    for (message, own) in table {
        let text = public_message(&ModelError::new(Transient, message));
        assert!(text.ends_with(own), "{message:?}: {text}");
    }
    let long = public_message(&ModelError::new(Transient, "é".repeat(1_000)));
    let own = long.split_once('(').unwrap().1;
    assert_eq!(own.trim_end_matches(')').chars().count(), ERROR_SHOWN);
}

// PV-52
#[test]
fn an_output_that_does_not_fit_has_a_smaller_cap_and_an_input_has_none() {
    let error = |text: &str| http_of("openai-compatible/m", 400, &openai_error(text, ""));
    let endless = error(
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text input, 131072 in the output).",
    );
    assert_eq!(smaller_cap(&endless, None), Some(131_072 - 7_884 - 256));
    let narrow = error(
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8000 in the messages, 1000 in the completion).",
    );
    assert_eq!((narrow.class, smaller_cap(&narrow, None)), (O, None));
    let counted = error(
        "This model's maximum context length is 8192 tokens. However, you requested 4096 output tokens and your prompt contains at least 4097 input tokens, for a total of at least 8193 tokens.",
    );
    assert_eq!(smaller_cap(&counted, None), None);
    assert_eq!(smaller_cap(&counted, Some(5_000)), Some(8_192 - 5_000 - 1_024));
    assert_eq!(smaller_cap(&counted, Some(8_000)), None);
    assert_eq!(smaller_cap(&error("prompt is too long: 210000 tokens > 200000 maximum"), Some(1)), None);
}
