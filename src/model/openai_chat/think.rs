//! Reasoning that arrives as `<think>…</think>` in front of the text (`providers.md` §10.5, field Q-14). Tags may be cut anywhere;
//! after the first visible text they are text.

use crate::model::profile::ThinkTags;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// What a piece of text is.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Reasoning(String),
}

/// Splits text at its tags.
#[derive(Debug)]
pub(super) struct Think {
    state: State,
    /// Text that may be the beginning of a tag.
    held: String,
}

#[derive(Debug, PartialEq)]
enum State {
    /// Nothing but white space so far.
    Front {
        implicit: bool,
    },
    /// Behind a tag: the line ends next to it belong to it.
    AfterTag {
        open: bool,
    },
    Inside,
    /// All the rest is text.
    Past,
}

impl Think {
    pub fn new(tags: ThinkTags) -> Self {
        let state = match tags {
            ThinkTags::Off => State::Past,
            ThinkTags::On => State::Front { implicit: false },
            ThinkTags::ImplicitOpen => State::Front { implicit: true },
        };
        Self { state, held: String::new() }
    }

    /// Whether text needs no splitting any more.
    pub fn is_past(&self) -> bool {
        self.state == State::Past && self.held.is_empty()
    }

    /// Takes the next text.
    pub fn push(&mut self, text: &str, out: &mut Vec<Piece>) {
        self.held.push_str(text);
        self.run(false, out);
    }

    /// No more text comes.
    pub fn finish(&mut self, out: &mut Vec<Piece>) {
        self.run(true, out);
    }

    fn run(&mut self, last: bool, out: &mut Vec<Piece>) {
        loop {
            match self.state {
                State::Front { implicit } => {
                    let seen = self.held.trim_start();
                    if let Some(rest) = seen.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.state = State::AfterTag { open: true };
                    } else if OPEN.starts_with(seen) && !last {
                        return;
                    } else {
                        self.state = if implicit { State::Inside } else { State::Past };
                    }
                }
                State::AfterTag { open } => {
                    self.held = self.held.trim_start_matches(['\n', '\r']).to_owned();
                    if self.held.is_empty() {
                        return;
                    }
                    self.state = if open { State::Inside } else { State::Past };
                }
                State::Inside => {
                    if let Some((inside, rest)) = self.held.split_once(CLOSE) {
                        push(out, Piece::Reasoning(inside.to_owned()));
                        self.held = rest.to_owned();
                        self.state = State::AfterTag { open: false };
                        continue;
                    }
                    let keep = if last { 0 } else { beginning_of_tag(&self.held) };
                    let rest = self.held.split_off(self.held.len() - keep);
                    push(out, Piece::Reasoning(std::mem::replace(&mut self.held, rest)));
                    return;
                }
                State::Past => {
                    push(out, Piece::Text(std::mem::take(&mut self.held)));
                    return;
                }
            }
        }
    }
}

fn push(out: &mut Vec<Piece>, piece: Piece) {
    let (Piece::Text(text) | Piece::Reasoning(text)) = &piece;
    if !text.is_empty() {
        out.push(piece);
    }
}

/// Bytes at the end of `text` that may be the beginning of the closing tag.
fn beginning_of_tag(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|n| CLOSE.get(..*n).is_some_and(|front| text.ends_with(front))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(tags: ThinkTags, pieces: &[&str]) -> (String, String) {
        let mut think = Think::new(tags);
        let mut out = Vec::new();
        pieces.iter().for_each(|piece| think.push(piece, &mut out));
        think.finish(&mut out);
        let mut both = (String::new(), String::new());
        for piece in out {
            match piece {
                Piece::Reasoning(text) => both.0.push_str(&text),
                Piece::Text(text) => both.1.push_str(&text),
            }
        }
        both
    }

    // field Q-14
    #[test]
    fn tags_in_front_become_reasoning_however_they_are_cut() {
        let code = "answer ```<think>x</think>```";
        let table = [
            (ThinkTags::On, "<think>plan</think>answer", "plan", "answer"),
            (ThinkTags::On, "\n<think>\nplan</think>\n\nanswer", "plan", "answer"),
            (ThinkTags::On, code, "", code),
            (ThinkTags::On, "<thing>", "", "<thing>"),
            (ThinkTags::On, "<thi", "", "<thi"),
            (ThinkTags::On, " ", "", " "),
            (ThinkTags::On, "<think>a</thin", "a</thin", ""),
            (ThinkTags::On, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
            (ThinkTags::ImplicitOpen, "plan</think>answer", "plan", "answer"),
            (ThinkTags::ImplicitOpen, "<think>plan</think>answer", "plan", "answer"),
            (ThinkTags::Off, "<think>plan</think>answer", "", "<think>plan</think>answer"),
        ];
        for (tags, text, reasoning, answer) in table {
            let expected = (reasoning.to_owned(), answer.to_owned());
            assert_eq!(split(tags, &[text]), expected, "{text}");
            let letters: Vec<&str> = text.split_inclusive(|_| true).collect();
            assert_eq!(split(tags, &letters), expected, "{text}, letter by letter");
            for cut in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
                let (head, tail) = text.split_at(cut);
                assert_eq!(split(tags, &[head, tail]), expected, "{text}, cut at {cut}");
            }
        }
    }
}
