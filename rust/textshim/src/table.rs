//! The vocabulary: every token's raw piece, the bytes it stands for, and its kind.
use std::collections::HashMap;

use crate::guard::{invalid, Outcome};

/// GGUF's token types, which tokenizer.json is mapped onto.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

impl Kind {
    pub fn from_gguf(value: i32) -> Outcome<Kind> {
        Ok(match value {
            // 0 (undefined) appears in old files for ordinary pieces.
            0 | 1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            other => return Err(invalid(format!("token type {other} is unknown; expected 0 to 6"))),
        })
    }
    /// Never produced from plain text.
    pub fn is_control(self) -> bool {
        matches!(self, Kind::Control | Kind::Unknown)
    }
}

/// How a raw piece becomes bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// GPT-2's table of 256 printable characters.
    ByteLevel,
    /// SentencePiece: U+2581 is a blank, <0xNN> is a byte.
    Blanks,
    /// The same in user-defined pieces too, as tokenizer.json writes them.
    BlanksEverywhere,
    Plain,
}

#[derive(Default)]
pub struct TokenTable {
    texts: Vec<u8>,
    text_ends: Vec<usize>,
    bytes: Vec<u8>,
    byte_ends: Vec<usize>,
    pub kinds: Vec<Kind>,
}

fn part<'a>(flat: &'a [u8], ends: &[usize], id: usize) -> &'a [u8] {
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &flat[start..ends[id]]
}

impl TokenTable {
    pub fn push(&mut self, text: &[u8], kind: Kind, spelling: Spelling) {
        self.texts.extend_from_slice(text);
        self.text_ends.push(self.texts.len());
        spell(text, kind, spelling, &mut self.bytes);
        self.byte_ends.push(self.bytes.len());
        self.kinds.push(kind);
    }
    pub fn len(&self) -> usize {
        self.kinds.len()
    }
    /// REQUIRES: id < len(), here and below.
    pub fn text(&self, id: usize) -> &[u8] {
        part(&self.texts, &self.text_ends, id)
    }
    pub fn bytes(&self, id: usize) -> &[u8] {
        part(&self.bytes, &self.byte_ends, id)
    }

    /// Raw piece to id. Of two equal pieces the first wins, except that an ordinary one beats a control token: plain
    /// text must never find a control token here.
    pub fn index(&self) -> HashMap<Box<[u8]>, u32> {
        let mut index: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(self.len());
        for control in [false, true] {
            for id in (0..self.len()).filter(|&id| self.kinds[id].is_control() == control) {
                index.entry(self.text(id).into()).or_insert(id as u32);
            }
        }
        index
    }
}

fn spell(text: &[u8], kind: Kind, spelling: Spelling, out: &mut Vec<u8>) {
    if kind.is_control() || (kind == Kind::UserDefined && spelling != Spelling::BlanksEverywhere) {
        return out.extend_from_slice(text);
    }
    if kind == Kind::Byte {
        if let Some(byte) = byte_of_piece(text) {
            return out.push(byte);
        }
    }
    match (spelling, std::str::from_utf8(text)) {
        (Spelling::ByteLevel, Ok(piece)) => {
            for c in piece.chars() {
                match byte_of_char(c) {
                    Some(byte) => out.push(byte),
                    None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        }
        (Spelling::Blanks | Spelling::BlanksEverywhere, Ok(piece)) => out.extend_from_slice(piece.replace('\u{2581}', " ").as_bytes()),
        _ => out.extend_from_slice(text),
    }
}

/// `<0x0A>` is byte 10.
pub fn byte_of_piece(piece: &[u8]) -> Option<u8> {
    let hex = piece.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    match hex {
        [high, low] => {
            let digit = |b: &u8| (*b as char).to_digit(16);
            Some((digit(high)? * 16 + digit(low)?) as u8)
        }
        _ => None,
    }
}

/// GPT-2's table: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in order.
pub fn char_of_byte(byte: u8) -> char {
    let prints = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    if prints(byte) {
        return byte as char;
    }
    let before = (0..byte).filter(|&b| !prints(b)).count() as u32;
    char::from_u32(256 + before).unwrap_or('\u{FFFD}')
}

pub fn byte_of_char(c: char) -> Option<u8> {
    match c as u32 {
        33..=126 | 161..=172 | 174..=255 => Some(c as u8),
        code @ 256..=288 => Some((code - 256) as u8), // 0..=32
        code @ 289..=322 => Some((code - 289 + 127) as u8), // 127..=160
        323 => Some(173),
        _ => None,
    }
}
