//! Times in which gains or delays change: the two engines do not let them begin at the same sample.

use std::sync::Mutex;
use std::time::Instant;

/// A time in which something of an output changes.
#[derive(Clone, Copy, Debug)]
struct Change {
    output: usize,
    /// From the first sample that may have it already.
    from: u64,
    /// To the first at which both engines have it, as far as that is known.
    to: u64,
    /// When it was heard of, while `to` may still grow.
    open: Option<Instant>,
}

/// All times that matter.
#[derive(Debug, Default)]
pub struct Changes(Mutex<Vec<Change>>);

/// Times that are kept. Windows wait some seconds, so that it takes more changes than an engine can
/// be asked for to need more.
const KEPT: usize = 4096;

impl Changes {
    /// Something of the output changes, from `from` on: here up to `to`, and nobody knows up to
    /// where in the engine.
    pub fn begin(&self, output: usize, from: u64, to: u64, now: Instant) {
        let mut changes = ground::lock(&self.0);
        if changes.len() == KEPT {
            changes.remove(0);
        }
        let open = Some(now);
        changes.push(Change {
            output,
            from,
            to,
            open,
        });
    }

    /// The engine said, when asked at `asked`, that its output has all changes from `steady` on.
    /// Closes those that were heard of before `settled`.
    pub fn steady(&self, steady: u64, settled: Instant) {
        for change in ground::lock(&self.0).iter_mut() {
            if let Some(heard) = change.open {
                change.to = change.to.max(steady);
                change.open = Some(heard).filter(|heard| *heard >= settled);
            }
        }
    }

    /// Whether something of the output changes among these samples.
    pub fn excuses(&self, output: usize, (start, end): (u64, u64)) -> bool {
        let changes = ground::lock(&self.0);
        let mut ours = changes.iter().filter(|change| change.output == output);
        ours.any(|change| {
            let ends_before = change.open.is_none() && change.to <= start;
            change.from < end && !ends_before
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_excuses_from_its_first_sample_to_where_both_have_it() {
        let (changes, now) = (Changes::default(), Instant::now());
        assert!(!changes.excuses(0, (0, 1000)));
        changes.begin(0, 100, 150, now);
        // Until the engine says otherwise, for ever.
        for (span, excused) in [((0, 100), false), ((0, 101), true), ((900, 1000), true)] {
            assert_eq!(changes.excuses(0, span), excused, "{span:?}");
        }
        assert!(!changes.excuses(1, (0, 1000)));
        changes.steady(200, now);
        assert!(changes.excuses(0, (900, 1000)), "heard of too lately");
        changes.steady(120, now + Duration::from_millis(1));
        for (span, excused) in [((0, 101), true), ((199, 300), true), ((200, 300), false)] {
            assert_eq!(changes.excuses(0, span), excused, "{span:?}");
        }
        changes.steady(5000, now + Duration::from_secs(1));
        assert!(!changes.excuses(0, (200, 300)), "closed already");
    }
}
