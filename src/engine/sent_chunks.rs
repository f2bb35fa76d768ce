//! Which output chunks have left: every tx lcore hands over its share of each, and the last to do
//! so is told.
//!
//! `tests/loom/sent_chunks.rs` checks with loom that there is one last lcore of each chunk.

use super::sync::{AtomicU64, Ordering, fence};

/// Chunks of one output that its tx lcores have handed over.
#[derive(Debug)]
pub struct SentChunks {
    /// By each lcore, which alone writes it.
    lcores: Box<[AtomicU64]>,
    /// By all of them.
    all: AtomicU64,
}

impl SentChunks {
    /// None yet, of so many lcores.
    pub fn new(lcores: usize) -> Self {
        Self {
            lcores: (0..lcores).map(|_| AtomicU64::new(0)).collect(),
            all: AtomicU64::new(0),
        }
    }

    /// The lcore with this index has handed over its share of the next chunk. Returns whether it
    /// was the last to do so.
    pub fn note(&self, lcore: usize) -> bool {
        let Some(own) = self.lcores.get(lcore) else {
            return false;
        };
        let chunks = own.load(Ordering::Relaxed) + 1;
        own.store(chunks, Ordering::Release);
        // Of those that come at once, one at least sees all the others; only one of these is the
        // last.
        fence(Ordering::SeqCst);
        let mut lcores = self.lcores.iter();
        lcores.all(|lcore| lcore.load(Ordering::Acquire) >= chunks)
            && self.all.fetch_max(chunks, Ordering::AcqRel) < chunks
    }

    /// Chunks that all lcores have handed over.
    pub fn all(&self) -> u64 {
        self.all.load(Ordering::Acquire)
    }
}
