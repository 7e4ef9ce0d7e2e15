//! Tokens that are matched in the text itself, before any splitting: control tokens and user-defined ones.
use aho_corasick::{AhoCorasick, MatchKind};

use crate::guard::{invalid, Outcome};

#[derive(Clone, Default)]
pub struct AddedToken {
    pub id: u32,
    pub text: String,
    pub control: bool,
    /// Swallow whitespace on that side of the match.
    pub lstrip: bool,
    pub rstrip: bool,
    /// Only between characters that are not part of a word.
    pub single_word: bool,
}

pub enum Part<'a> {
    Text(&'a str),
    Token(u32),
}

struct Matcher {
    tokens: Vec<AddedToken>,
    automaton: AhoCorasick,
}

pub struct AddedTokens {
    all: Option<Matcher>,
    user_defined: Option<Matcher>,
}

impl AddedTokens {
    pub fn new(mut tokens: Vec<AddedToken>) -> Outcome<AddedTokens> {
        tokens.retain(|t| !t.text.is_empty());
        let user_defined = tokens.iter().filter(|t| !t.control).cloned().collect();
        Ok(AddedTokens { all: Matcher::new(tokens)?, user_defined: Matcher::new(user_defined)? })
    }

    /// Cuts `text` at added tokens, the longest at the leftmost place; control tokens only when asked.
    pub fn cut<'a>(&self, text: &'a str, with_control: bool, visit: &mut dyn FnMut(Part<'a>) -> Outcome<()>) -> Outcome<()> {
        match if with_control { &self.all } else { &self.user_defined } {
            Some(matcher) => matcher.cut(text, visit),
            None if text.is_empty() => Ok(()),
            None => visit(Part::Text(text)),
        }
    }
}

impl Matcher {
    fn new(tokens: Vec<AddedToken>) -> Outcome<Option<Matcher>> {
        if tokens.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|t| t.text.as_bytes()))
            .map_err(|e| invalid(format!("added tokens: {e}")))?;
        Ok(Some(Matcher { tokens, automaton }))
    }

    fn cut<'a>(&self, text: &'a str, visit: &mut dyn FnMut(Part<'a>) -> Outcome<()>) -> Outcome<()> {
        let mut at = 0;
        for found in self.automaton.find_iter(text) {
            let token = &self.tokens[found.pattern().as_usize()];
            let (mut start, mut end) = (found.start(), found.end());
            if start < at || (token.single_word && !stands_alone(text, start, end)) {
                continue;
            }
            if token.lstrip {
                start = at + text[at..start].trim_end().len();
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if start > at {
                visit(Part::Text(&text[at..start]))?;
            }
            visit(Part::Token(token.id))?;
            at = end;
        }
        if at < text.len() {
            visit(Part::Text(&text[at..]))?;
        }
        Ok(())
    }
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    !text[..start].chars().next_back().is_some_and(word) && !text[end..].chars().next().is_some_and(word)
}
