//! Cuts bytes into server-sent events (`providers.md` §10.1), the same ones however the network cut the bytes.
//!
//! Knows nothing of what the events mean. Deviates from the browser's rule in one point: the end of the stream dispatches an
//! unfinished event, because several servers leave out the last blank line.

use super::codec::Flow;
use crate::limits::SSE_EVENT;

/// A line or an event above [`SSE_EVENT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field; empty if there was none.
    pub name: &'a str,
    /// The `data` lines, joined by line feeds.
    pub data: &'a str,
    /// Whether bytes that are no UTF-8 were replaced.
    pub lossy: bool,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Sse {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    begun: bool,
    after_cr: bool,
}

impl Sse {
    /// Takes the next bytes and hands each event that is complete to `sink`, until it says [`Flow::Done`].
    ///
    /// # Errors
    /// [`TooLarge`]; the stream is lost.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(SseEvent<'_>) -> Flow) -> Result<Flow, TooLarge> {
        loop {
            // The line ended at the CR already; the LF of a CRLF belongs to it, even if it comes with the next bytes.
            if self.after_cr && !bytes.is_empty() {
                self.after_cr = false;
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let Some(at) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.line.extend_from_slice(bytes);
                return if self.line.len() > SSE_EVENT { Err(TooLarge) } else { Ok(Flow::More) };
            };
            let (end, rest) = bytes.split_at(at);
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            let flow = if self.line.is_empty() {
                self.take_line(end, sink)?
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(end);
                let flow = self.take_line(&line, sink);
                line.clear();
                self.line = line;
                flow?
            };
            if flow == Flow::Done {
                return Ok(Flow::Done);
            }
        }
    }

    /// No more bytes come: dispatches what is unfinished.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn finish(&mut self, sink: &mut dyn FnMut(SseEvent<'_>) -> Flow) -> Result<Flow, TooLarge> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() && self.take_line(&line, sink)? == Flow::Done {
            return Ok(Flow::Done);
        }
        Ok(self.dispatch(sink))
    }

    fn take_line(&mut self, mut line: &[u8], sink: &mut dyn FnMut(SseEvent<'_>) -> Flow) -> Result<Flow, TooLarge> {
        if line.len() > SSE_EVENT {
            return Err(TooLarge);
        }
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(self.dispatch(sink));
        }
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(at) => {
                let (field, rest) = line.split_at(at);
                let value = rest.strip_prefix(b":").unwrap_or(rest);
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
                if self.data.len() > SSE_EVENT {
                    return Err(TooLarge);
                }
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Comments (an empty field name), ids, retry times and whatever else a server invents.
            _ => {}
        }
        Ok(Flow::More)
    }

    fn dispatch(&mut self, sink: &mut dyn FnMut(SseEvent<'_>) -> Flow) -> Flow {
        let mut flow = Flow::More;
        if self.has_data {
            let name = String::from_utf8_lossy(&self.name);
            flow = match std::str::from_utf8(&self.data) {
                Ok(data) => sink(SseEvent { name: &name, data, lossy: false }),
                Err(_) => sink(SseEvent { name: &name, data: &String::from_utf8_lossy(&self.data), lossy: true }),
            };
        }
        self.has_data = false;
        self.data.clear();
        self.name.clear();
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name and data of an event.
    type Pair = (String, String);

    fn events(pieces: &[&[u8]]) -> Result<Vec<Pair>, TooLarge> {
        let mut sse = Sse::default();
        let mut all = Vec::new();
        let mut sink = |e: SseEvent<'_>| {
            all.push((e.name.to_owned(), e.data.to_owned()));
            Flow::More
        };
        for piece in pieces {
            sse.push(piece, &mut sink)?;
        }
        sse.finish(&mut sink)?;
        Ok(all)
    }

    fn pair(name: &str, data: &str) -> Pair {
        (name.into(), data.into())
    }

    // providers §10.1, field Q-07
    #[test]
    fn lines_are_read_as_servers_write_them() {
        let table: [(&str, &[u8], Vec<Pair>); 12] = [
            ("plain", b"data: a\n\ndata: b\n\n", vec![pair("", "a"), pair("", "b")]),
            ("no space", b"data:{\"a\":1}\n\n", vec![pair("", "{\"a\":1}")]),
            ("only one space is removed", b"data:  a\n\n", vec![pair("", " a")]),
            ("several data lines", b"data: a\ndata: b\n\n", vec![pair("", "a\nb")]),
            ("name", b"event: ping\ndata: {}\n\n", vec![pair("ping", "{}")]),
            ("a name does not leak", b"event: ping\n\ndata: a\n\n", vec![pair("", "a")]),
            ("comments and fields of others", b": hi\nid: 1\nretry: 5\nfoo: bar\ndata: a\n\n", vec![pair("", "a")]),
            ("byte order mark", b"\xEF\xBB\xBFdata: a\n\n", vec![pair("", "a")]),
            ("CR", b"data: a\r\rdata: b\r\r", vec![pair("", "a"), pair("", "b")]),
            ("CRLF", b"data: a\r\n\r\ndata: b\r\n\r\n", vec![pair("", "a"), pair("", "b")]),
            // PV-03
            ("no last blank line", b"data: a\n\ndata: b", vec![pair("", "a"), pair("", "b")]),
            ("a field without a colon", b"data\n\n", vec![pair("", "")]),
        ];
        for (name, bytes, expected) in table {
            assert_eq!(events(&[bytes]), Ok(expected.clone()), "{name}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(events(&single), Ok(expected.clone()), "{name}, byte by byte");
            for cut in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(cut);
                assert_eq!(events(&[head, tail]), Ok(expected.clone()), "{name}, cut at {cut}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_reported() {
        let mut sse = Sse::default();
        let mut seen = Vec::new();
        let flow = sse.push(b"data: a\xFFb\n\ndata: c\n\n", &mut |e| {
            seen.push((e.data.to_owned(), e.lossy));
            Flow::More
        });
        assert_eq!(flow, Ok(Flow::More));
        assert_eq!(seen, [("a\u{FFFD}b".to_owned(), true), ("c".to_owned(), false)]);
    }

    #[test]
    fn nothing_is_read_after_done() {
        let mut sse = Sse::default();
        let mut seen = 0;
        let flow = sse.push(b"data: a\n\ndata: b\n\n", &mut |_| {
            seen += 1;
            Flow::Done
        });
        assert_eq!((flow, seen), (Ok(Flow::Done), 1));
    }

    #[test]
    fn lines_and_events_above_the_limit_are_refused() {
        let half = vec![b'x'; SSE_EVENT / 2];
        let line = [b"data: ", &half[..], b"\n"].concat();
        assert_eq!(events(&[&line, b"\n"]).map(|e| e.len()), Ok(1));
        assert_eq!(events(&[&line, &line, &line]), Err(TooLarge));
        assert_eq!(events(&[&half, &half, b"xx"]), Err(TooLarge));
    }
}
