//! Which object a path names (wire §1.1, §1.3). Pure: the path decides, never the query; nothing is percent-decoded, because
//! the raw segment is the identity of the object.

use crate::limits;

/// What a path means to the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed<'a> {
    /// Another path of the application.
    NotOurs,
    /// Ours by its prefix, but no such class, or a name that no object may have. Answered 400 `Invalid request`.
    Invalid,
    /// An object.
    Object {
        /// The binding whose kebab name the path carries.
        binding: &'a str,
        /// The raw segment.
        name: &'a str,
    },
}

/// Routes `path` to one of `bindings`, whose names are compared in [`kebab`]. Empty segments do not count; of two bindings with
/// the same kebab name the later one answers.
///
/// ```
/// use wakeful::runtime::router::{Routed, route_path};
/// let found = route_path("/agents/chat-agent/room-1/get-messages", "agents", &["ChatAgent"]);
/// assert_eq!(found, Routed::Object { binding: "ChatAgent", name: "room-1" });
/// ```
pub fn route_path<'a, B: AsRef<str>>(path: &'a str, prefix: &str, bindings: &'a [B]) -> Routed<'a> {
    let mut segments = path.split('/').filter(|s| !s.is_empty());
    for expected in prefix.split('/').filter(|s| !s.is_empty()) {
        if segments.next() != Some(expected) {
            return Routed::NotOurs;
        }
    }
    let (Some(class), Some(name)) = (segments.next(), segments.next()) else { return Routed::NotOurs };
    match bindings.iter().map(AsRef::as_ref).rev().find(|b| kebab(b) == class) {
        Some(binding) if is_name(name) => Routed::Object { binding, name },
        _ => Routed::Invalid,
    }
}

/// Whether an object may have this name (decision 46): 1 to [`limits::NAME`] bytes, no control characters, neither as they are
/// nor percent-encoded.
pub fn is_name(segment: &str) -> bool {
    let encoded_control = segment
        .split('%')
        .skip(1)
        .filter_map(|after| after.get(..2))
        .any(|hex| u8::from_str_radix(hex, 16).is_ok_and(|byte| byte.is_ascii_control()));
    (1..=limits::NAME).contains(&segment.len()) && !segment.chars().any(char::is_control) && !encoded_control
}

/// The name of a class or binding in URLs and in the identity frame, as the clients compute it from their `agent` option.
///
/// ```
/// use wakeful::runtime::router::kebab;
/// assert_eq!(kebab("ChatAgent"), "chat-agent");
/// ```
pub fn kebab(name: &str) -> String {
    // Letters beyond ASCII keep their case: the tables for it would be a twentieth of the worker.
    if name.contains(|c: char| c.is_ascii_uppercase()) && !name.contains(char::is_lowercase) {
        return name.to_ascii_lowercase().replace('_', "-");
    }
    let mut out = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('-');
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    let out = out.strip_prefix('-').unwrap_or(&out).replace('_', "-");
    out.strip_suffix('-').unwrap_or(&out).to_owned()
}

/// The value of a query parameter in an address, percent-decoded; the first one, as `URLSearchParams.get` returns.
pub fn query_param(url: &str, name: &str) -> Option<String> {
    let query = url.split_once('?')?.1.split('#').next().unwrap_or_default();
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name).then(|| decode(value))
    })
}

/// Form decoding: `+` is a space, `%XX` a byte, anything malformed stands for itself, bytes that are no UTF-8 are replaced.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        match (byte, hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', _) => {
                out.push(b' ');
                rest = tail;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kebab_agrees_with_the_clients() {
        // wire §1.1, wire 10
        let table = [
            ("ChatAgent", "chat-agent"),
            ("chat_agent", "chat-agent"),
            ("AIAssistant", "a-i-assistant"),
            ("V2Agent", "v2-agent"),
            ("_Foo", "--foo"),
            ("foo__", "foo-"),
            ("ÉtatAgent", "État-agent"),
            ("CHAT_AGENT", "chat-agent"),
            ("Chat_Agent", "chat--agent"),
            ("HTTPServer", "h-t-t-p-server"),
            ("CHATAGENT", "chatagent"),
            ("Foo_", "foo"),
            ("123", "123"),
            ("a", "a"),
            ("", ""),
        ];
        for (name, expected) in table {
            assert_eq!(kebab(name), expected, "{name}");
        }
    }

    const BINDINGS: [&str; 2] = ["ChatAgent", "CHAT_ROOM"];

    fn object<'a>(binding: &'a str, name: &'a str) -> Routed<'a> {
        Routed::Object { binding, name }
    }

    #[test]
    fn paths_find_their_object() {
        let table = [
            ("/agents/chat-agent", Routed::NotOurs),  // wire 1
            ("/other/chat-agent/x", Routed::NotOurs), // wire 2
            ("/", Routed::NotOurs),
            ("", Routed::NotOurs),
            ("/agents", Routed::NotOurs),
            ("/agents/nope/x", Routed::Invalid),               // wire 3
            ("/agents/ChatAgent/x", Routed::Invalid),          // wire 9
            ("/agents/CHAT_AGENT/x", Routed::Invalid),         // wire 9
            ("/agents/chat-room/x", object("CHAT_ROOM", "x")), // wire 10
            ("/agents/chat-agent/x", object("ChatAgent", "x")),
            ("//agents///chat-agent//x", object("ChatAgent", "x")), // wire 11
            ("/agents/chat-agent/x/y/z", object("ChatAgent", "x")),
            ("/agents/chat-agent/foo%20bar", object("ChatAgent", "foo%20bar")), // wire 13
            ("/agents/chat-agent/a%2Fb/get-messages", object("ChatAgent", "a%2Fb")),
        ];
        for (path, expected) in table {
            assert_eq!(route_path(path, "agents", &BINDINGS), expected, "{path}");
        }
    }

    #[test]
    fn a_prefix_of_several_segments_is_the_only_way_in() {
        // wire 12
        assert_eq!(route_path("/api/agents/chat-agent/x", "api/agents", &BINDINGS), object("ChatAgent", "x"));
        assert_eq!(route_path("/api/agents/chat-agent/x", "/api/agents/", &BINDINGS), object("ChatAgent", "x"));
        assert_eq!(route_path("/agents/chat-agent/x", "api/agents", &BINDINGS), Routed::NotOurs);
        assert_eq!(route_path("/api/chat-agent/x", "api/agents", &BINDINGS), Routed::NotOurs);
    }

    #[test]
    fn of_two_bindings_with_one_url_name_the_later_answers() {
        assert_eq!(route_path("/agents/chat-agent/x", "agents", &["CHAT_AGENT", "ChatAgent"]), object("ChatAgent", "x"));
    }

    #[test]
    fn names_are_bounded_and_printable() {
        // decision 46
        let longest = "a".repeat(limits::NAME);
        let table = [
            ("a", true),
            ("Zürich", true),
            ("foo%20bar", true),
            ("100%", true),
            ("%zz", true),
            (longest.as_str(), true),
            ("", false),
            ("a\u{7}b", false),
            ("a%00b", false),
            ("a%0ab", false),
            ("a%7F", false),
        ];
        for (name, expected) in table {
            assert_eq!(is_name(name), expected, "{name:?}");
        }
        let too_long = format!("/agents/chat-agent/{longest}a");
        assert_eq!(route_path(&too_long, "agents", &BINDINGS), Routed::Invalid);
    }

    #[test]
    fn query_parameters_are_decoded_as_the_browser_encodes_them() {
        let url = "wss://h/agents/chat-agent/x?_pk=a%2Bb+c&token=&flag&_pk=second#_pk=no";
        assert_eq!(query_param(url, "_pk").as_deref(), Some("a+b c"));
        assert_eq!(query_param(url, "token").as_deref(), Some(""));
        assert_eq!(query_param(url, "flag").as_deref(), Some(""));
        assert_eq!(query_param(url, "none"), None);
        assert_eq!(query_param("/x?q=%C3%A9%zz%", "q").as_deref(), Some("é%zz%"));
        assert_eq!(query_param("/x?q=%ff", "q").as_deref(), Some("\u{fffd}"));
        assert_eq!(query_param("/x", "q"), None);
    }
}
