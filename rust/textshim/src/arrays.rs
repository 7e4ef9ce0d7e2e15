//! A tokenizer from the arrays of a GGUF file.
use std::collections::HashMap;

use crate::added::{AddedToken, AddedTokens};
use crate::guard::{invalid, unsupported, Outcome};
use crate::merge::MergeTable;
use crate::pieces::ScoredPieces;
use crate::split::Splitter;
use crate::table::{char_of_byte, Kind, Spelling, TokenTable};
use crate::tokenizer::{BytePairs, Engine, Prefix, Tokenizer};

/// Strings laid end to end; string i is bytes[ends[i - 1]..ends[i]].
pub struct Strings<'a> {
    pub bytes: &'a [u8],
    pub ends: &'a [usize],
}

impl<'a> Strings<'a> {
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    fn get(&self, i: usize) -> Outcome<&'a [u8]> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        self.bytes.get(start..self.ends[i]).ok_or_else(|| invalid(format!("string {i} lies outside its array")))
    }
}

pub struct Arrays<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Strings<'a>,
    pub scores: &'a [f32],
    pub types: &'a [i32],
    pub merges: Strings<'a>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub pad: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_space_prefix: bool,
}

pub fn tokenizer_from_arrays(arrays: &Arrays) -> Outcome<Tokenizer> {
    let spelling = match arrays.model {
        "gpt2" => Spelling::ByteLevel,
        "llama" => Spelling::Blanks,
        other => {
            return Err(unsupported(format!(
                "tokenizer model \"{other}\" is not supported; supported are: gpt2 (byte-level pairs), llama (SentencePiece pairs)"
            )));
        }
    };
    let table = read_table(arrays, spelling)?;
    let engine = match spelling {
        Spelling::ByteLevel => byte_pairs(arrays, &table)?,
        _ => scored(arrays, &table)?,
    };
    let named = |id: Option<u32>, wanted: bool| id.filter(|_| wanted).into_iter().collect::<Vec<u32>>();
    Ok(Tokenizer {
        added: AddedTokens::new(added_tokens(&table)?)?,
        engine,
        head: named(arrays.bos, arrays.add_bos),
        tail: named(arrays.eos, arrays.add_eos),
        bos: arrays.bos,
        eos: arrays.eos,
        unknown: arrays.unknown,
        pad: arrays.pad,
        strips_leading_space: spelling == Spelling::Blanks && arrays.add_space_prefix,
        table,
    })
}

fn read_table(arrays: &Arrays, spelling: Spelling) -> Outcome<TokenTable> {
    let count = arrays.tokens.len();
    if count == 0 || count != arrays.types.len() {
        return Err(invalid(format!("vocabulary: {count} tokens and {} types", arrays.types.len())));
    }
    for (what, id) in [("bos", arrays.bos), ("eos", arrays.eos), ("unknown", arrays.unknown), ("padding", arrays.pad)] {
        if id.is_some_and(|id| id as usize >= count) {
            return Err(invalid(format!("vocabulary: the {what} token id {} is not below {count}", id.unwrap_or(0))));
        }
    }
    let mut table = TokenTable::default();
    for i in 0..count {
        table.push(arrays.tokens.get(i)?, Kind::from_gguf(arrays.types[i])?, spelling);
    }
    Ok(table)
}

fn added_tokens(table: &TokenTable) -> Outcome<Vec<AddedToken>> {
    let mut added = Vec::new();
    for id in 0..table.len() {
        let kind = table.kinds[id];
        if !kind.is_control() && kind != Kind::UserDefined {
            continue;
        }
        let text = std::str::from_utf8(table.text(id)).map_err(|_| invalid(format!("token {id} is not valid UTF-8")))?;
        added.push(AddedToken { id: id as u32, text: text.to_string(), control: kind.is_control(), ..Default::default() });
    }
    Ok(added)
}

fn byte_pairs(arrays: &Arrays, table: &TokenTable) -> Outcome<Engine> {
    let (splitter, nfc) = Splitter::named(arrays.pre)?;
    let mut index = table.index();
    let merges = read_merges(&arrays.merges, table, &index)?;
    let byte_ids = byte_alphabet(&index);
    let whole_words = match arrays.pre {
        "llama-bpe" | "llama3" | "llama-v3" | "tekken" => by_bytes(&mut index, table),
        _ => HashMap::new(),
    };
    let unknown = arrays.unknown.filter(|&id| !table.kinds[id as usize].is_control());
    Ok(Engine::BytePairs(Box::new(BytePairs {
        splitter,
        nfc,
        prefix: Prefix::Never,
        merges,
        byte_ids,
        whole_words,
        unknown,
    })))
}

/// The id of each byte's one-character piece.
pub fn byte_alphabet(index: &HashMap<Box<[u8]>, u32>) -> [Option<u32>; 256] {
    let mut ids = [None; 256];
    for byte in 0..=255u8 {
        ids[byte as usize] = index.get(char_of_byte(byte).to_string().as_bytes()).copied();
    }
    ids
}

/// Ordinary tokens by the bytes they stand for.
pub fn by_bytes(index: &mut HashMap<Box<[u8]>, u32>, table: &TokenTable) -> HashMap<Box<[u8]>, u32> {
    let ordinary = index.drain().filter(|&(_, id)| table.kinds[id as usize] == Kind::Normal);
    ordinary.map(|(_, id)| (table.bytes(id as usize).into(), id)).collect()
}

fn read_merges(merges: &Strings, table: &TokenTable, index: &HashMap<Box<[u8]>, u32>) -> Outcome<MergeTable> {
    let mut found = MergeTable::default();
    for rank in 0..merges.len() {
        let line = merges.get(rank)?;
        add_merge(&mut found, rank as u32, splits_of(line), table, index).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(line).chars().take(60).collect();
            invalid(format!("merge {rank} (\"{shown}\") names tokens that the vocabulary lacks"))
        })?;
    }
    Ok(found)
}

/// The ways to read "left right"; pieces may hold blanks of their own, so all of them are tried.
fn splits_of(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    (1..line.len()).filter(move |&i| line[i] == b' ').map(move |i| (&line[..i], &line[i + 1..]))
}

/// None: no split names known tokens. A merge into a control token is left out: plain text must not become one.
pub fn add_merge<'a>(
    merges: &mut MergeTable,
    rank: u32,
    mut splits: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    table: &TokenTable,
    index: &HashMap<Box<[u8]>, u32>,
) -> Option<()> {
    let (left, right, merged) = splits.find_map(|(left, right)| {
        let whole = [left, right].concat();
        Some((*index.get(left)?, *index.get(right)?, *index.get(whole.as_slice())?))
    })?;
    if !table.kinds[merged as usize].is_control() {
        merges.insert(left, right, rank, merged);
    }
    Some(())
}

fn scored(arrays: &Arrays, table: &TokenTable) -> Outcome<Engine> {
    if arrays.scores.len() != table.len() {
        return Err(invalid(format!("vocabulary: {} tokens and {} scores", table.len(), arrays.scores.len())));
    }
    let prefix = if arrays.add_space_prefix { Prefix::AfterControl } else { Prefix::Never };
    let pieces = ScoredPieces::new(table, arrays.scores.to_vec(), arrays.unknown);
    Ok(Engine::Scored { pieces: Box::new(pieces), prefix })
}
