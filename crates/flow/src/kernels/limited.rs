//! Sums that are limited before they go on, as those of integrators that must not run away.
//!
//! Each sum waits for the one before. Two things make the wait short: where all of some sums are
//! limited, none needs another; and elsewhere a sum is made with each limit too, before it is known
//! which of them counts.

use super::element::Real;
use super::recur::Each;

/// Samples that are looked at together.
const BLOCK: usize = 32;

pub(super) struct Limited<'a, T> {
    pub high: Each<'a, T>,
    pub low: Each<'a, T>,
    pub a: Each<'a, T>,
    /// A condition for each sample (0 is false), and the value of it with which the sum stays what
    /// it was.
    pub keep: Option<(&'a [u8], bool)>,
}

/// An operand for some samples at once.
struct Operand<'a, T> {
    each: Each<'a, T>,
    same: [T; BLOCK],
}

impl<'a, T: Real> Operand<'a, T> {
    #[inline(always)]
    fn of(each: Each<'a, T>) -> Operand<'a, T> {
        let same = [each.numbers.first().copied().unwrap_or_default(); BLOCK];
        Operand { each, same }
    }

    /// The numbers from one sample on, if there are enough.
    #[inline(always)]
    fn from(&self, at: usize) -> Option<&[T; BLOCK]> {
        if self.each.is_same() {
            return Some(&self.same);
        }
        self.each.numbers.get(at..)?.first_chunk()
    }
}

impl<T: Real> Limited<'_, T> {
    /// All sums.
    #[inline(always)]
    pub fn all(self, before: T, out: &mut [T]) {
        let mut x = before;
        let all = [self.high, self.low, self.a].map(Operand::of);
        let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
        let mut at = 0;
        for out in blocks {
            let [Some(high), Some(low), Some(a)] = all.each_ref().map(|each| each.from(at)) else {
                return;
            };
            let (mut any, mut every) = (false, false);
            if let Some((c, when)) = self.keep {
                let c = c.get(at..).and_then(|c| c.first_chunk::<BLOCK>());
                let kept = c.map(|c| c.map(|c| u8::from((c != 0) == when)));
                let kept = kept.unwrap_or_default();
                any = kept.iter().fold(0, |all, one| all | one) != 0;
                every = kept.iter().fold(1, |all, one| all & one) != 0;
            }
            let next = all[0].from(at + 1).zip(all[1].from(at + 1));
            x = if every {
                *out = [x; BLOCK];
                x
            } else if any {
                self.some(x, at, out)
            } else if let Some(next) = next
                && let Some(last) = beyond(x, (high, low), next, a, out)
            {
                last
            } else {
                sums(x, high, low, a, out)
            };
            at += BLOCK;
        }
        self.some(x, at, rest);
    }

    /// Sums one after the other.
    #[inline(always)]
    fn some(&self, before: T, first: usize, out: &mut [T]) -> T {
        let mut x = before;
        for (at, out) in (first..).zip(out) {
            let keeps = self.keep.is_some_and(|(c, when)| (c[at] != 0) == when);
            if !keeps {
                let (high, low) = (self.high.at(at), self.low.at(at));
                x = super::recur::within(x, high, low).add(self.a.at(at));
            }
            *out = x;
        }
        x
    }
}

/// The sums and the last one of them, if each is limited by the same limit; `next` are the limits
/// of one sample later. Otherwise what is put out is void.
#[inline(always)]
fn beyond<T: Real>(
    before: T,
    (high, low): (&[T; BLOCK], &[T; BLOCK]),
    next: (&[T; BLOCK], &[T; BLOCK]),
    a: &[T; BLOCK],
    out: &mut [T; BLOCK],
) -> Option<T> {
    let mut all = 1u32;
    if before > high[0] {
        for at in 0..BLOCK {
            let sum = high[at].add(a[at]);
            out[at] = sum;
            all &= u32::from(sum > next.0[at]);
        }
    } else if before < low[0] {
        for at in 0..BLOCK {
            let sum = low[at].add(a[at]);
            out[at] = sum;
            // Where both limits are passed, the higher one counts.
            all &= u32::from(sum < next.1[at]) & (1 - u32::from(sum > next.0[at]));
        }
    } else {
        return None;
    }
    (all == 1).then_some(out[BLOCK - 1])
}

/// The sums and the last one of them.
#[inline(always)]
fn sums<T: Real>(
    before: T,
    high: &[T; BLOCK],
    low: &[T; BLOCK],
    a: &[T; BLOCK],
    out: &mut [T; BLOCK],
) -> T {
    let mut x = before;
    for at in 0..BLOCK {
        let (high, low, a) = (high[at], low[at], a[at]);
        let (sum, highest, lowest) = (x.add(a), high.add(a), low.add(a));
        let limited = if x > high { highest } else { lowest };
        x = if (x > high) | (x < low) { limited } else { sum };
        out[at] = x;
    }
    x
}
