//! Byte-pair merging: the lowest-ranked adjacent pair first, the leftmost among equals.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::queue::MergeQueue;

/// Multiplicative hash of a pair of ids packed into 64 bits: pairs come from a trusted table, so no keyed hash is needed.
#[derive(Default, Clone)]
pub struct PairHasher(u64);
impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

#[derive(Clone, Copy)]
struct Merged {
    rank: u32,
    id: u32,
}

#[derive(Default)]
pub struct MergeTable {
    pairs: HashMap<u64, Merged, BuildHasherDefault<PairHasher>>,
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Below this many symbols a scan of all pairs beats the queue (measured: the break-even lies between 24 and 48).
const SCAN_SYMBOLS_MAX: usize = 32;
const NONE: u32 = u32::MAX;
const NO_MERGE: Merged = Merged { rank: NONE, id: 0 };

impl MergeTable {
    pub fn insert(&mut self, left: u32, right: u32, rank: u32, id: u32) {
        self.pairs.insert(key(left, right), Merged { rank, id });
    }

    fn find(&self, left: u32, right: u32) -> Option<Merged> {
        self.pairs.get(&key(left, right)).copied()
    }

    /// Merges `symbols` in place until no pair is left.
    pub fn apply(&self, symbols: &mut Vec<u32>) {
        if symbols.len() <= SCAN_SYMBOLS_MAX {
            self.apply_by_scan(symbols);
        } else {
            self.apply_by_queue(symbols);
        }
    }

    fn apply_by_scan(&self, symbols: &mut Vec<u32>) {
        let mut found = [NO_MERGE; SCAN_SYMBOLS_MAX];
        let look = |left, right| self.find(left, right).unwrap_or(NO_MERGE);
        for i in 1..symbols.len() {
            found[i - 1] = look(symbols[i - 1], symbols[i]);
        }
        while symbols.len() > 1 {
            let pairs = symbols.len() - 1;
            let best = (0..pairs).min_by_key(|&i| found[i].rank).unwrap_or(0);
            if found[best].rank == NONE {
                return;
            }
            symbols[best] = found[best].id;
            symbols.remove(best + 1);
            found.copy_within(best + 1..pairs, best);
            if best > 0 {
                found[best - 1] = look(symbols[best - 1], symbols[best]);
            }
            if best + 1 < symbols.len() {
                found[best] = look(symbols[best], symbols[best + 1]);
            }
        }
    }

    /// A linked list of symbols and a queue of candidate pairs: n log n for a word of any length.
    fn apply_by_queue(&self, symbols: &mut Vec<u32>) {
        let count = symbols.len();
        let mut next: Vec<u32> = (1..=count as u32).collect();
        let mut prev: Vec<u32> = (0..count as u32).map(|i| i.wrapping_sub(1)).collect();
        // What the symbol here and the next one would merge to.
        let mut pairs = vec![NO_MERGE; count];
        let mut queue = MergeQueue::default();
        for i in 1..count {
            self.offer(symbols[i - 1], symbols[i], i - 1, &mut pairs, &mut queue);
        }
        while let Some((rank, at)) = queue.pop() {
            let left = at as usize;
            if pairs[left].rank != rank {
                continue; // one of the two symbols has been merged since
            }
            let right = next[left] as usize;
            symbols[left] = pairs[left].id;
            symbols[right] = NONE;
            pairs[left] = NO_MERGE;
            pairs[right] = NO_MERGE;
            let after = next[right] as usize;
            next[left] = after as u32;
            if after < count {
                prev[after] = at;
                self.offer(symbols[left], symbols[after], left, &mut pairs, &mut queue);
            }
            let before = prev[left];
            if before != NONE {
                self.offer(symbols[before as usize], symbols[left], before as usize, &mut pairs, &mut queue);
            }
        }
        symbols.retain(|&id| id != NONE);
    }

    fn offer(&self, left: u32, right: u32, at: usize, pairs: &mut [Merged], queue: &mut MergeQueue) {
        pairs[at] = self.find(left, right).unwrap_or(NO_MERGE);
        if pairs[at].rank != NONE {
            queue.push(pairs[at].rank, at as u32);
        }
    }
}
