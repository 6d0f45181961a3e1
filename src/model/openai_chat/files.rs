//! How a file in a user message is sent: as an image, sound or document the protocol has a form for, as its text, or as a note.

use super::json::Json;
use crate::model::profile::Profile;

/// A user part that is no plain text, or the text it is replaced by.
pub(super) enum FilePart<'a> {
    /// `image_url`.
    Image(&'a str),
    /// `input_audio`: data in base64 and its format.
    Audio(&'a str, &'static str),
    /// `file`: name and data URL.
    Document(&'a str, &'a str),
    /// What the model can read of it.
    Text(String),
}

impl FilePart<'_> {
    /// Writes it as an item of `content`.
    pub fn write(&self, json: &mut Json) {
        json.object(|j| match self {
            FilePart::Image(url) => {
                j.text("type", "image_url");
                j.key("image_url").object(|j| j.text("url", url));
            }
            FilePart::Audio(data, format) => {
                j.text("type", "input_audio");
                j.key("input_audio").object(|j| {
                    j.text("data", data);
                    j.text("format", format);
                });
            }
            FilePart::Document(name, data) => {
                j.text("type", "file");
                j.key("file").object(|j| {
                    j.text("filename", name);
                    j.text("file_data", data);
                });
            }
            FilePart::Text(text) => {
                j.text("type", "text");
                j.text("text", text);
            }
        });
    }
}

/// The form of one file for this server.
pub(super) fn form<'a>(profile: &Profile, media_type: &str, url: &'a str, filename: Option<&'a str>) -> FilePart<'a> {
    let (essence, _) = media_type.split_once(';').unwrap_or((media_type, ""));
    let essence = essence.trim().to_ascii_lowercase();
    let data = Data::of(url);
    let address = url.starts_with("https://") || url.starts_with("http://");
    if essence.starts_with("image/") && (data.is_some() || (address && profile.image_urls)) {
        return FilePart::Image(url);
    }
    if let Some(data) = &data {
        let format = match essence.as_str() {
            "audio/wav" | "audio/x-wav" | "audio/wave" => Some("wav"),
            "audio/mpeg" | "audio/mp3" => Some("mp3"),
            _ => None,
        };
        if let (Some(format), true) = (format, data.base64) {
            return FilePart::Audio(data.payload, format);
        }
        if essence == "application/pdf" {
            return FilePart::Document(filename.unwrap_or("document.pdf"), url);
        }
        let textual =
            essence.starts_with("text/") || matches!(essence.as_str(), "application/json" | "application/xml" | "application/yaml");
        if textual && let Some(text) = data.text() {
            let name = filename.unwrap_or("without a name");
            return FilePart::Text(format!("[file: {name} ({essence})]\n{text}"));
        }
    }
    let name = filename.unwrap_or("without a name");
    let kind = if essence.is_empty() { "unknown type" } else { essence.as_str() };
    FilePart::Text(format!("[file: {name} ({kind}); its content cannot be shown to this model]"))
}

/// The two halves of a `data:` address.
struct Data<'a> {
    base64: bool,
    payload: &'a str,
}

impl<'a> Data<'a> {
    fn of(url: &'a str) -> Option<Self> {
        let (head, payload) = url.strip_prefix("data:")?.split_once(',')?;
        Some(Self { base64: head.ends_with(";base64"), payload })
    }

    /// Its bytes as text, if they are one of a sensible length.
    fn text(&self) -> Option<String> {
        if self.payload.len() > crate::limits::TEXT_FILE * 4 {
            return None;
        }
        let bytes = if self.base64 { base64(self.payload)? } else { percent(self.payload) };
        String::from_utf8(bytes).ok().filter(|text| text.len() <= crate::limits::TEXT_FILE && !text.contains('\0'))
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' | b'\n' | b'\r' => continue,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xFF) as u8);
        }
    }
    Some(bytes)
}

fn percent(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => bytes.push(*first),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::{self, CONSERVATIVE};

    fn kind(profile: &Profile, media: &str, url: &str) -> String {
        match form(profile, media, url, Some("a.bin")) {
            FilePart::Image(_) => "image".into(),
            FilePart::Audio(data, format) => format!("audio {format} {data}"),
            FilePart::Document(name, _) => format!("document {name}"),
            FilePart::Text(text) => text,
        }
    }

    #[test]
    fn each_media_type_takes_the_form_the_server_reads() {
        let note = |kind: &str| format!("[file: a.bin ({kind}); its content cannot be shown to this model]");
        let table = [
            ("image/png", "data:image/png;base64,AAAA", "image".to_owned()),
            ("image/png", "https://x.example/a.png", "image".to_owned()),
            ("image/png", "blob:https://x.example/1", note("image/png")),
            ("audio/wav", "data:audio/wav;base64,AAAA", "audio wav AAAA".to_owned()),
            ("audio/mpeg", "data:audio/mpeg;base64,AAAA", "audio mp3 AAAA".to_owned()),
            ("audio/wav", "https://x.example/a.wav", note("audio/wav")),
            ("audio/ogg", "data:audio/ogg;base64,AAAA", note("audio/ogg")),
            ("application/pdf", "data:application/pdf;base64,AAAA", "document a.bin".to_owned()),
            ("application/pdf", "https://x.example/a.pdf", note("application/pdf")),
            ("text/plain; charset=utf-8", "data:text/plain;base64,aGVsbG8=", "[file: a.bin (text/plain)]\nhello".to_owned()),
            ("text/csv", "data:text/csv,a%2Cb%0A1", "[file: a.bin (text/csv)]\na,b\n1".to_owned()),
            ("text/plain", "data:text/plain;base64,/w==", note("text/plain")),
            ("application/zip", "data:application/zip;base64,AAAA", note("application/zip")),
            ("", "nonsense", note("unknown type")),
        ];
        for (media, url, expected) in table {
            assert_eq!(kind(&CONSERVATIVE, media, url), expected, "{media} {url}");
        }
    }

    // providers §4.4: images of `@cf/` models only as data
    #[test]
    fn an_image_address_is_a_note_where_only_data_is_taken() {
        let Ok(route) = profile::route(&"workers-ai/@cf/meta/llama-4".into()) else { unreachable!() };
        assert!(kind(route.profile(), "image/png", "https://x.example/a.png").starts_with("[file: a.bin"));
        assert_eq!(kind(route.profile(), "image/png", "data:image/png;base64,AAAA"), "image");
    }

    #[test]
    fn base64_and_percent_signs_are_decoded() {
        assert_eq!(base64("aGk"), Some(b"hi".to_vec()));
        assert_eq!(base64("a*"), None);
        assert_eq!(percent("a%zz%4"), b"a%zz%4");
        assert_eq!(percent("%C3%A9"), "é".as_bytes());
    }
}
