//! A value of several words that one thread writes and any thread reads whole.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// `N` words. The writer never waits; a reader that meets a write reads again.
#[derive(Debug)]
pub(super) struct Latest<const N: usize> {
    /// Odd while a write is under way.
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Latest<N> {
    pub fn new(words: [u64; N]) -> Self {
        Self {
            version: AtomicU64::new(0),
            words: words.map(AtomicU64::new),
        }
    }

    /// Only one thread may call this.
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

    pub fn read(&self) -> [u64; N] {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let words = std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return words;
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_never_sees_half_a_write() {
        const WRITES: u64 = 100_000;
        let latest = Latest::new([0; 4]);
        std::thread::scope(|scope| {
            scope.spawn(|| (1..=WRITES).for_each(|i| latest.write([i; 4])));
            let mut last = 0;
            while last < WRITES {
                let words = latest.read();
                assert!(words.iter().all(|&word| word == words[0]), "{words:?}");
                assert!(words[0] >= last);
                last = words[0];
            }
        });
    }
}
