//! SentencePiece BPE from scores: the adjacent pair whose joined piece scores highest merges first, the leftmost among
//! equals (Kudo and Richardson, "SentencePiece", 2018). What stays unknown becomes byte tokens.
use std::collections::HashMap;

use crate::queue::MergeQueue;
use crate::table::{byte_of_piece, Kind, TokenTable};

pub struct ScoredPieces {
    /// Pieces that plain text may become: no control tokens, no byte tokens.
    ids: HashMap<Box<str>, u32>,
    /// By id; the best score has the smallest priority.
    priorities: Vec<u32>,
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    piece_bytes_max: usize,
}

#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    bytes: u32, // 0: merged into its left neighbour
    prev: u32,
    next: u32,
    pair: u32, // the id of this symbol and the next as one piece, or NONE
}
const NONE: u32 = u32::MAX;

impl ScoredPieces {
    pub fn new(table: &TokenTable, scores: Vec<f32>, unknown: Option<u32>) -> ScoredPieces {
        let priorities = scores.into_iter().map(priority).collect();
        let mut pieces = ScoredPieces { ids: HashMap::new(), priorities, bytes: [None; 256], unknown, piece_bytes_max: 0 };
        for id in 0..table.len() {
            let text = table.text(id);
            match (table.kinds[id], std::str::from_utf8(text)) {
                (Kind::Byte, _) => {
                    if let Some(byte) = byte_of_piece(text) {
                        pieces.bytes[byte as usize] = Some(id as u32);
                    }
                }
                (Kind::Normal | Kind::UserDefined | Kind::Unused, Ok(piece)) if !piece.is_empty() => {
                    pieces.piece_bytes_max = pieces.piece_bytes_max.max(piece.len());
                    pieces.ids.entry(piece.into()).or_insert(id as u32);
                }
                _ => {}
            }
        }
        pieces
    }

    /// `text` has its blanks already written as U+2581. REQUIRES: text.len() < 2^32 - 1.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let mut symbols = symbols_of(text);
        let mut queue = MergeQueue::default();
        for left in 0..symbols.len() as u32 {
            self.offer(text, &mut symbols, left, &mut queue);
        }
        while let Some((priority, at)) = queue.pop() {
            let left = symbols[at as usize];
            // A stale candidate: one side has grown or gone since.
            if left.pair == NONE || self.priorities[left.pair as usize] != priority {
                continue;
            }
            let right = symbols[left.next as usize];
            symbols[left.next as usize].bytes = 0;
            symbols[left.next as usize].pair = NONE;
            symbols[at as usize].bytes += right.bytes;
            symbols[at as usize].next = right.next;
            if right.next != NONE {
                symbols[right.next as usize].prev = at;
            }
            if left.prev != NONE {
                self.offer(text, &mut symbols, left.prev, &mut queue);
            }
            self.offer(text, &mut symbols, at, &mut queue);
        }
        for symbol in symbols.iter().filter(|s| s.bytes > 0) {
            self.emit(&text[symbol.start as usize..(symbol.start + symbol.bytes) as usize], out);
        }
    }

    fn offer(&self, text: &str, symbols: &mut [Symbol], left: u32, queue: &mut MergeQueue) {
        let symbol = symbols[left as usize];
        symbols[left as usize].pair = NONE;
        if symbol.next == NONE {
            return;
        }
        let bytes = symbol.bytes + symbols[symbol.next as usize].bytes;
        // Hashing no more than the longest piece keeps the whole linear in the text.
        if bytes as usize > self.piece_bytes_max {
            return;
        }
        if let Some(&id) = self.ids.get(&text[symbol.start as usize..(symbol.start + bytes) as usize]) {
            symbols[left as usize].pair = id;
            queue.push(self.priorities[id as usize], left);
        }
    }

    fn emit(&self, piece: &str, out: &mut Vec<u32>) {
        if let Some(&id) = self.ids.get(piece) {
            return out.push(id);
        }
        let bytes: Option<Vec<u32>> = piece.bytes().map(|b| self.bytes[b as usize]).collect();
        match bytes {
            Some(ids) => out.extend(ids),
            None => out.extend(self.unknown),
        }
    }
}

/// Unsigned numbers in the reverse order of the scores; -0 and 0 are one score, and so are all that are not numbers.
fn priority(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    let bits = (score + 0.0).to_bits();
    // IEEE 754: among positive numbers the order is that of the bits, among negative ones its reverse.
    let rising = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !rising
}

fn symbols_of(text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
    for (start, c) in text.char_indices() {
        let at = symbols.len() as u32;
        let bytes = c.len_utf8() as u32;
        symbols.push(Symbol { start: start as u32, bytes, prev: at.wrapping_sub(1), next: at + 1, pair: NONE });
    }
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}
