//! A value of several words that one thread writes and any thread reads whole.
//!
//! `tests/loom/latest.rs` checks with loom that no reader sees a part of a write.

use super::sync::{AtomicU64, Ordering, fence, spin_loop};

/// `N` words. The writer never waits; a reader that meets a write reads again.
#[derive(Debug)]
pub struct Latest<const N: usize> {
    /// Odd while a write is under way.
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Latest<N> {
    /// These words, until others are written.
    pub fn new(words: [u64; N]) -> Self {
        Self {
            version: AtomicU64::new(0),
            words: words.map(AtomicU64::new),
        }
    }

    /// Writes all words. Only one thread may call this.
    pub fn write(&self, words: [u64; N]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees a word of this write also sees the odd version.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// The words of the last write that is over.
    pub fn read(&self) -> [u64; N] {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let words = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return words;
            }
            spin_loop();
        }
    }
}
