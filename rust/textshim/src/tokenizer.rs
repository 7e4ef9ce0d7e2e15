//! Text to ids. Added tokens are cut out first; what lies between goes to one of the engines.
use unicode_normalization::{is_nfc_quick, IsNormalized, UnicodeNormalization};

use crate::added::{AddedTokens, Part};
use crate::guard::{invalid, Outcome};
use crate::merge::MergeTable;
use crate::pieces::ScoredPieces;
use crate::split::Splitter;
use crate::table::TokenTable;

/// When a piece of text gets a blank in front, SentencePiece's "dummy prefix".
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    Never,
    /// Only at the very start of the text.
    First,
    /// At the start and after each control token, where a new text begins; user-defined tokens lie inside a text.
    AfterControl,
    /// At the start and after each added token.
    Always,
}

/// What lies before a piece of plain text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Control,
    /// Plain text or a user-defined token.
    Text,
}

pub struct BytePairs {
    pub splitter: Splitter,
    /// Compose the text (Unicode NFC) first.
    pub nfc: bool,
    pub prefix: Prefix,
    pub merges: MergeTable,
    pub byte_ids: [Option<u32>; 256],
    /// A word that is a token as a whole skips merging (Llama 3). Empty: never.
    pub whole_words: std::collections::HashMap<Box<[u8]>, u32>,
    pub unknown: Option<u32>,
}

/// Merges over characters, with byte tokens for what the vocabulary lacks: SentencePiece models as tokenizer.json
/// writes them.
pub struct CharPairs {
    pub prefix: Prefix,
    /// Do not add a second blank in front of a text that starts with one.
    pub prefix_once: bool,
    pub merges: MergeTable,
    pub char_ids: std::collections::HashMap<char, u32>,
    pub byte_ids: [Option<u32>; 256],
    pub unknown: Option<u32>,
    pub fuse_unknown: bool,
    pub whole_words: std::collections::HashMap<Box<[u8]>, u32>,
}

pub enum Engine {
    BytePairs(Box<BytePairs>),
    CharPairs(Box<CharPairs>),
    Scored { pieces: Box<ScoredPieces>, prefix: Prefix },
    /// Everything else that tokenizer.json can describe (WordPiece, Unigram, unusual patterns).
    Library(Box<tokenizers::Tokenizer>),
}

pub struct Tokenizer {
    pub table: TokenTable,
    pub added: AddedTokens,
    pub engine: Engine,
    /// What the model wants around a text, usually one BOS in front.
    pub head: Vec<u32>,
    pub tail: Vec<u32>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub pad: Option<u32>,
    pub strips_leading_space: bool,
}

pub struct EncodeOptions {
    pub parse_special: bool,
    /// `head` and `tail`, never doubled: a text that brings its own BOS keeps just that one.
    pub add_head: bool,
    pub add_tail: bool,
    /// A character to be dropped before encoding; inside the text of a control token it keeps that text plain.
    pub sentinel: Option<char>,
}

impl Tokenizer {
    pub fn encode(&self, text: &str, options: &EncodeOptions) -> Outcome<Vec<u32>> {
        // SentencePiece takes its mark in a text for a blank; user-defined tokens (Gemma's runs) are spelled with blanks.
        if matches!(self.engine, Engine::Scored { .. }) && text.contains(BLANK) {
            return self.encode(&text.replace(BLANK, " "), options);
        }
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        let mut before = Before::Nothing;
        self.added.cut(text, options.parse_special, &mut |part| {
            match part {
                Part::Token(id) => before = self.push_added(id, before, &mut ids),
                Part::Text(piece) => {
                    match options.sentinel {
                        Some(sentinel) if piece.contains(sentinel) => {
                            let plain: String = piece.chars().filter(|&c| c != sentinel).collect();
                            self.encode_plain(&plain, before, &mut ids)?;
                        }
                        _ => self.engine.encode(piece, before, &mut ids)?,
                    }
                    before = Before::Text;
                }
            }
            Ok(())
        })?;
        if options.add_head && !ids.starts_with(&self.head) {
            ids.splice(0..0, self.head.iter().copied());
        }
        if options.add_tail && !ids.ends_with(&self.tail) {
            ids.extend_from_slice(&self.tail);
        }
        Ok(ids)
    }

    /// Text that became whole only after its sentinels were dropped: user-defined tokens may show up in it now.
    fn encode_plain(&self, text: &str, mut before: Before, ids: &mut Vec<u32>) -> Outcome<()> {
        self.added.cut(text, false, &mut |part| {
            match part {
                Part::Token(id) => before = self.push_added(id, before, ids),
                Part::Text(piece) => {
                    self.engine.encode(piece, before, ids)?;
                    before = Before::Text;
                }
            }
            Ok(())
        })
    }

    fn push_added(&self, id: u32, before: Before, ids: &mut Vec<u32>) -> Before {
        if self.table.kinds[id as usize].is_control() {
            ids.push(id);
            return Before::Control;
        }
        // SentencePiece puts its blank in front of the text, also when the text begins with a user-defined piece.
        if let (Engine::Scored { pieces, prefix: Prefix::AfterControl }, Before::Nothing) = (&self.engine, before) {
            pieces.encode(BLANK, ids);
        }
        ids.push(id);
        Before::Text
    }
}

impl Engine {
    fn encode(&self, text: &str, before: Before, out: &mut Vec<u32>) -> Outcome<()> {
        if text.is_empty() {
            return Ok(());
        }
        match self {
            Engine::BytePairs(engine) => engine.encode(text, before, out),
            Engine::CharPairs(engine) => engine.encode(text, before, out),
            Engine::Scored { pieces, prefix } => {
                pieces.encode(&with_blanks(text, wants_prefix(*prefix, before)), out);
            }
            Engine::Library(library) => {
                let encoding = library.encode_fast(text, false).map_err(|e| invalid(format!("tokenizer: {e}")))?;
                out.extend_from_slice(encoding.get_ids());
            }
        }
        Ok(())
    }
}

fn wants_prefix(prefix: Prefix, before: Before) -> bool {
    match prefix {
        Prefix::Never => false,
        Prefix::First => before == Before::Nothing,
        Prefix::AfterControl => before != Before::Text,
        Prefix::Always => true,
    }
}

const BLANK: &str = "\u{2581}";

fn with_blanks(text: &str, prefix: bool) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4 + 3);
    if prefix {
        out.push_str(BLANK);
    }
    out.extend(text.chars().map(|c| if c == ' ' { '\u{2581}' } else { c }));
    out
}

impl BytePairs {
    fn encode(&self, text: &str, before: Before, out: &mut Vec<u32>) {
        let composed: String;
        let mut text = text;
        if self.nfc && !text.is_ascii() && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            composed = text.nfc().collect();
            text = &composed;
        }
        let prefixed: String;
        if wants_prefix(self.prefix, before) && !text.starts_with(' ') {
            prefixed = format!(" {text}");
            text = &prefixed;
        }
        let mut symbols = Vec::new();
        self.splitter.split(text, &mut |word| self.encode_word(word.as_bytes(), &mut symbols, out));
    }

    fn encode_word(&self, word: &[u8], symbols: &mut Vec<u32>, out: &mut Vec<u32>) {
        if let Some(&id) = self.whole_words.get(word) {
            return out.push(id);
        }
        symbols.clear();
        symbols.extend(word.iter().filter_map(|&b| self.byte_ids[b as usize].or(self.unknown)));
        self.merges.apply(symbols);
        out.extend_from_slice(symbols);
    }
}

impl CharPairs {
    fn encode(&self, text: &str, before: Before, out: &mut Vec<u32>) {
        let prefix = wants_prefix(self.prefix, before) && !(self.prefix_once && text.starts_with([' ', '\u{2581}']));
        let text = with_blanks(text, prefix);
        if let Some(&id) = self.whole_words.get(text.as_bytes()) {
            return out.push(id);
        }
        let mut symbols = Vec::with_capacity(text.len());
        for c in text.chars() {
            if let Some(&id) = self.char_ids.get(&c) {
                symbols.push(id);
                continue;
            }
            let mut utf8 = [0; 4];
            let bytes = c.encode_utf8(&mut utf8).bytes();
            let ids: Option<Vec<u32>> = bytes.map(|b| self.byte_ids[b as usize]).collect();
            match ids {
                Some(ids) => symbols.extend(ids),
                None if self.fuse_unknown && symbols.last().copied() == self.unknown => {}
                None => symbols.extend(self.unknown),
            }
        }
        self.merges.apply(&mut symbols);
        out.extend_from_slice(&symbols);
    }
}
