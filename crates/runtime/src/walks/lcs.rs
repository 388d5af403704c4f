//! How far an LCS has come: its table of lengths.

use wire::resp::LcsWants;

/// An LCS that is being answered.
pub struct LcsWalk {
    /// The lengths.
    pub table: Table,
    /// What the command wants.
    pub asked: Asked,
}

/// The options of the client.
#[derive(Clone, Copy)]
pub struct Asked {
    /// What the reply has.
    pub wants: LcsWants,
    /// MINMATCHLEN.
    pub match_min_bytes: u64,
    /// WITHMATCHLEN.
    pub with_lengths: bool,
}

impl LcsWalk {
    /// The memory it takes.
    pub fn held_bytes(&self) -> usize {
        let Table { left, right, lengths, .. } = &self.table;
        left.len() + right.len() + size_of_val(&lengths[..])
    }
}

/// The lengths of the subsequences of all prefixes of the two values.
pub struct Table {
    /// The first value.
    pub left: Vec<u8>,
    /// The second.
    pub right: Vec<u8>,
    /// The lengths of common subsequences of their beginnings.
    pub lengths: Vec<u32>,
    /// Computed rows, besides the first one.
    pub row_count: usize,
}

/// A common part of both values: its start in each, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Where it begins in the first value.
    pub left: usize,
    /// Where it begins in the second.
    pub right: usize,
    /// Its length.
    pub len_bytes: usize,
}

impl Table {
    /// An empty table for two values.
    pub fn new(left: Vec<u8>, right: Vec<u8>) -> Table {
        let lengths = vec![0; (right.len() + 1) * (left.len() + 1)];
        Table { left, right, lengths, row_count: 0 }
    }

    /// Whether all lengths are known.
    pub fn is_full(&self) -> bool {
        self.row_count == self.left.len()
    }

    /// Computes rows of `cells_max` cells or slightly more in all; returns the number of cells.
    pub fn fill(&mut self, cells_max: u64) -> u64 {
        let width = self.right.len() + 1;
        let mut cells = 0;
        while cells < cells_max && !self.is_full() {
            let row = self.row_count;
            let byte = self.left[row];
            let (above, below) = self.lengths.split_at_mut((row + 1) * width);
            let above = &above[row * width..];
            for (column, other) in self.right.iter().enumerate() {
                below[column + 1] = if byte == *other {
                    above[column] + 1
                } else {
                    above[column + 1].max(below[column])
                };
            }
            self.row_count += 1;
            cells += width as u64;
        }
        cells
    }

    /// The length for these beginnings.
    pub fn length(&self, left: usize, right: usize) -> u32 {
        self.lengths[left * (self.right.len() + 1) + right]
    }

    /// The way back: the positions of the bytes of the subsequence, the last first.
    pub fn steps(&self) -> impl Iterator<Item = (usize, usize)> {
        let (mut left, mut right) = (self.left.len(), self.right.len());
        std::iter::from_fn(move || {
            while left > 0 && right > 0 {
                if self.left[left - 1] == self.right[right - 1] {
                    left -= 1;
                    right -= 1;
                    return Some((left, right));
                }
                if self.length(left - 1, right) > self.length(left, right - 1) {
                    left -= 1;
                } else {
                    right -= 1;
                }
            }
            None
        })
    }

    /// The common subsequence.
    pub fn text(&self) -> Vec<u8> {
        let mut text: Vec<u8> = self.steps().map(|(left, _)| self.left[left]).collect();
        text.reverse();
        text
    }

    /// The matches, the last first, as Redis lists them.
    pub fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        for (left, right) in self.steps() {
            match matches.last_mut() {
                Some(last) if last.left == left + 1 && last.right == right + 1 => {
                    *last = Match { left, right, len_bytes: last.len_bytes + 1 };
                }
                _ => matches.push(Match { left, right, len_bytes: 1 }),
            }
        }
        matches
    }
}
