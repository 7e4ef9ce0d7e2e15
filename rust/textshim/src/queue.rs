//! The order of merges: the smallest priority first, the smallest position among equals.
//!
//! One list of positions for each priority. In the long runs that make a text slow, positions arrive in rising order
//! and are taken from the front at no cost, where one heap of a million candidates misses the cache at every level.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasherDefault;

use crate::merge::PairHasher;

#[derive(Default)]
struct Bucket {
    rising: Vec<u32>,
    taken: usize,
    /// Positions that came after a larger one.
    late: BinaryHeap<Reverse<u32>>,
}

impl Bucket {
    fn push(&mut self, position: u32) {
        if self.rising.last().is_none_or(|&last| last <= position) {
            self.rising.push(position);
        } else {
            self.late.push(Reverse(position));
        }
    }
    fn pop(&mut self) -> Option<u32> {
        match (self.rising.get(self.taken).copied(), self.late.peek().copied()) {
            (Some(rising), Some(Reverse(late))) if late < rising => self.late.pop().map(|r| r.0),
            (None, _) => self.late.pop().map(|r| r.0),
            (rising, _) => {
                self.taken += 1;
                rising
            }
        }
    }
}

#[derive(Default)]
pub struct MergeQueue {
    buckets: Vec<Bucket>,
    bucket_of: HashMap<u64, u32, BuildHasherDefault<PairHasher>>,
    /// (priority, bucket) of every bucket that may hold positions.
    waiting: BinaryHeap<Reverse<(u32, u32)>>,
    /// The bucket pushed to last: runs push to the same one again and again.
    recent: Option<(u32, u32)>,
}

impl MergeQueue {
    pub fn push(&mut self, priority: u32, position: u32) {
        let index = match self.recent {
            Some((recent, index)) if recent == priority => index,
            _ => self.bucket(priority),
        };
        self.recent = Some((priority, index));
        self.buckets[index as usize].push(position);
    }

    fn bucket(&mut self, priority: u32) -> u32 {
        let fresh = self.buckets.len() as u32;
        let index = *self.bucket_of.entry(u64::from(priority)).or_insert(fresh);
        if index == fresh {
            self.buckets.push(Bucket::default());
            self.waiting.push(Reverse((priority, index)));
        }
        index
    }

    pub fn pop(&mut self) -> Option<(u32, u32)> {
        while let Some(&Reverse((priority, index))) = self.waiting.peek() {
            if let Some(position) = self.buckets[index as usize].pop() {
                return Some((priority, position));
            }
            // Empty: forget it, so that a later push of this priority starts anew.
            self.waiting.pop();
            self.bucket_of.remove(&u64::from(priority));
            self.recent = None;
            self.buckets[index as usize] = Bucket::default();
        }
        None
    }
}
