//! What a live digitiser has sent so far, for who looks at it meanwhile.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sim::faults::{Fault, Ledger};

/// What was sent so far.
#[derive(Debug, Default)]
pub struct SimStats {
    /// Data heaps that the port has taken.
    pub heaps: AtomicU64,
    /// Bytes of samples in them.
    pub bytes: AtomicU64,
    /// Heaps that the port did not take in time.
    pub skipped: AtomicU64,
    /// Wall clock less nominal time of the last heap when it was handed over, or of the newest
    /// that waits, in seconds: bits of an `f64`.
    time_error: AtomicU64,
    /// Faults by kind.
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl SimStats {
    /// Wall clock less nominal time of the last heap when it was handed over, in seconds; of the
    /// newest that waits, if the port takes none.
    pub fn time_error(&self) -> f64 {
        f64::from_bits(self.time_error.load(Ordering::Relaxed))
    }

    /// Faults injected so far, by kind.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        ground::lock(&self.faults).clone()
    }

    /// Sets what [`Self::time_error`] tells.
    pub(super) fn set_time_error(&self, seconds: f64) {
        self.time_error.store(seconds.to_bits(), Ordering::Relaxed);
    }

    /// Counts the faults of a ledger, which is empty then. It waits for who reads them.
    pub(super) fn count_faults(&self, ledger: &Ledger) {
        count(&mut ledger.borrow_mut(), &mut ground::lock(&self.faults));
    }

    /// The same, but not while somebody reads them: who does may have lost its CPU, and the next
    /// turn counts them as well.
    pub(super) fn count_faults_unless_read(&self, ledger: &Ledger) {
        let mut ledger = ledger.borrow_mut();
        if ledger.is_empty() {
            return;
        }
        if let Ok(mut faults) = self.faults.try_lock() {
            count(&mut ledger, &mut faults);
        }
    }
}

fn count(ledger: &mut Vec<Fault>, faults: &mut BTreeMap<&'static str, u64>) {
    for fault in ledger.drain(..) {
        *faults.entry(fault.kind).or_default() += 1;
    }
}
