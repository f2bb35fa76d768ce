//! Which delay model held when, for good.

use ground::Timestamp;

use super::{DelayPoint, LinearDelay};

/// The models by which an output was delayed, each with the output timestamp from which it was.
///
/// Unlike [`DelayModels`](super::DelayModels), it forgets nothing, and a model that was asked for
/// late does not change what had been computed by then.
#[derive(Clone, Debug)]
pub struct DelayHistory {
    // Never empty; timestamps strictly ascending, the first is 0.
    models: Vec<(Timestamp, LinearDelay)>,
    subsampling: u32,
}

impl DelayHistory {
    /// [`LinearDelay::ZERO`] alone, input samples on multiples of `subsampling`.
    pub fn with_subsampling(subsampling: u32) -> Self {
        Self {
            models: vec![(Timestamp(0), LinearDelay::ZERO)],
            subsampling: subsampling.max(1),
        }
    }

    /// Adds a model that was asked for when `next` was the next spectrum. It replaces those that
    /// would have begun when it does, or later.
    pub fn add(&mut self, next: Timestamp, model: LinearDelay) {
        let from = next.max(Timestamp(model.start.max(0) as u64));
        let kept = self.models.partition_point(|(begun, _)| *begun < from);
        self.models.truncate(kept);
        self.models.push((from, model));
    }

    /// Timestamps from which another model holds, ascending.
    pub fn changes(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.models.iter().map(|(from, _)| *from)
    }

    /// The same behind `after` and up to `last`.
    pub fn changes_within(
        &self,
        after: Timestamp,
        last: Timestamp,
    ) -> impl Iterator<Item = Timestamp> + '_ {
        let begun = self.models.partition_point(|(from, _)| *from <= after);
        let within = self.models[begun..].iter().map(|(from, _)| *from);
        within.take_while(move |from| *from <= last)
    }

    /// Delay and phase at output timestamp `t`.
    pub fn at(&self, t: Timestamp) -> DelayPoint {
        let begun = self.models.partition_point(|(from, _)| *from <= t);
        let (_, model) = self.models[begun.saturating_sub(1)];
        model.at(t).aligned(self.subsampling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::DelayModels;
    use crate::delay::tests::linear;
    use proptest::prelude::*;

    proptest! {
        /// At each timestamp that an engine passes, the model that its list had then.
        #[test]
        fn what_held_at_each_timestamp_is_kept(
            asked in prop::collection::vec((0u64..60, 0i64..400, -50i32..50), 0..12),
        ) {
            let mut asked = asked;
            asked.sort_by_key(|request| request.0);
            let (mut list, mut history) = (DelayModels::new(), DelayHistory::with_subsampling(1));
            let mut held = Vec::new();
            let mut requests = asked.into_iter().peekable();
            for step in 0..100 {
                let next = Timestamp(step * 3);
                while let Some((_, start, delay)) = requests.next_if(|request| request.0 <= step) {
                    let model = linear(start, f64::from(delay), 0.25, 0.0, 0.0);
                    list.add(model);
                    history.add(next, model);
                }
                held.push((next, list.at(next)));
                list.advance(next);
            }
            for (t, point) in held {
                prop_assert_eq!(history.at(t), point);
            }
        }
    }
}
