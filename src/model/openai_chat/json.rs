//! Writes JSON text piece by piece. A request may carry megabytes of images: they are copied once, into the body, and into no tree.

use serde_json::Value;

use crate::wire::chunk::escape;

/// A JSON text under construction. Its methods are called from everywhere: they stay calls, for the size of the worker.
#[derive(Debug, Default)]
pub(crate) struct Json {
    text: String,
    /// Whether a comma is due before the next member.
    comma: bool,
}

impl Json {
    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }

    /// An object whose members `inside` writes.
    pub fn object(&mut self, inside: impl FnOnce(&mut Self)) {
        self.nest('{', '}', inside);
    }

    /// An array whose items `inside` writes.
    pub fn array(&mut self, inside: impl FnOnce(&mut Self)) {
        self.nest('[', ']', inside);
    }

    /// A member's name; its value must follow.
    #[inline(never)]
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.string(name);
        self.text.push(':');
        self.comma = false;
        self
    }

    /// A string.
    #[inline(never)]
    pub fn string(&mut self, text: &str) {
        self.separate();
        self.text.push('"');
        escape(&mut self.text, text);
        self.text.push('"');
    }

    /// A string made of pieces.
    pub fn strings<'a>(&mut self, pieces: impl Iterator<Item = &'a str>) {
        self.separate();
        self.text.push('"');
        pieces.for_each(|piece| escape(&mut self.text, piece));
        self.text.push('"');
    }

    /// JSON text as it is.
    #[inline(never)]
    pub fn raw(&mut self, json: &str) {
        self.separate();
        self.text.push_str(json);
    }

    /// A value.
    #[inline(never)]
    pub fn value(&mut self, value: &Value) {
        self.raw(&value.to_string());
    }

    /// A member that is a string.
    #[inline(never)]
    pub fn text(&mut self, name: &str, text: &str) {
        self.key(name).string(text);
    }

    fn nest(&mut self, open: char, close: char, inside: impl FnOnce(&mut Self)) {
        self.separate();
        self.text.push(open);
        self.comma = false;
        inside(self);
        self.text.push(close);
        self.comma = true;
    }

    #[inline(never)]
    fn separate(&mut self) {
        if std::mem::replace(&mut self.comma, true) {
            self.text.push(',');
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn members_and_items_are_separated() {
        let mut json = Json::default();
        json.object(|j| {
            j.text("a", "1\n");
            j.key("b").array(|j| {
                j.raw("1");
                j.object(|_| {});
                j.array(|_| {});
                j.value(&json!({"x": [null]}));
            });
            j.key("c").strings(["x", "\"", "y"].into_iter());
        });
        assert_eq!(json.into_text(), r#"{"a":"1\n","b":[1,{},[],{"x":[null]}],"c":"x\"y"}"#);
    }

    proptest! {
        #[test]
        fn any_string_is_read_back(text in any::<String>()) {
            let mut json = Json::default();
            json.string(&text);
            prop_assert_eq!(serde_json::from_str::<String>(&json.into_text()).unwrap(), text);
        }
    }
}
