//! What was, for as long as a page shows.

use std::collections::VecDeque;

use crate::document::{Series, TimeSeries};

/// What is kept of several values within a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Within {
    /// The last.
    #[default]
    Last,
    /// Their mean.
    Mean,
    /// The greatest.
    Greatest,
}

/// Values of several curves at even times, the last so many of them.
#[derive(Clone, Debug)]
pub struct History {
    step: f64,
    length: usize,
    names: Vec<String>,
    keeps: Within,
    /// How many values of each curve the newest row has.
    counts: Vec<u32>,
    /// Index since 1970 in steps of the newest row.
    newest: Option<u64>,
    rows: VecDeque<Vec<Option<f32>>>,
}

impl History {
    /// Curves of these names, with a value every `step` seconds, for `length` steps.
    ///
    /// # Panics
    ///
    /// If the step is not positive.
    pub fn new(names: impl IntoIterator<Item = String>, step: f64, length: usize) -> Self {
        assert!(step > 0.0, "a step of {step} s");
        let names: Vec<_> = names.into_iter().collect();
        Self {
            step,
            length: length.max(1),
            counts: vec![0; names.len()],
            names,
            keeps: Within::default(),
            newest: None,
            rows: VecDeque::new(),
        }
    }

    /// Keeps this of several values within a step, instead of the last.
    #[must_use]
    pub fn keeping(mut self, keeps: Within) -> Self {
        self.keeps = keeps;
        self
    }

    /// Notes the values of this UNIX time. One that is not finite is none, and takes no other's
    /// place; where there was none within a step, there is a hole.
    pub fn note(&mut self, time: f64, values: &[f64]) {
        let index = (time / self.step) as u64;
        self.forget_behind(index);
        let behind = self.newest.map_or(1, |newest| index.saturating_sub(newest));
        // A clock that was set back a little goes on where it was.
        self.newest = Some(self.newest.map_or(index, |newest| newest.max(index)));
        let holes = behind.min(self.length as u64 + 1);
        let none = vec![None; self.names.len()];
        self.rows.extend((0..holes).map(|_| none.clone()));
        let surplus = self.rows.len().saturating_sub(self.length);
        self.rows.drain(..surplus);
        if holes > 0 {
            self.counts.fill(0);
        }
        let Some(row) = self.rows.back_mut() else {
            return;
        };
        let places = row.iter_mut().zip(&mut self.counts).zip(values);
        for ((place, count), value) in places.filter(|(_, value)| value.is_finite()) {
            let value = *value as f32;
            *count += 1;
            *place = Some(match (self.keeps, *place) {
                (Within::Last, _) | (_, None) => value,
                (Within::Mean, Some(mean)) => mean + (value - mean) / *count as f32,
                (Within::Greatest, Some(other)) => value.max(other),
            });
        }
    }

    /// Forgets the steps behind this one, of a clock that was set back: else all would be noted in
    /// the newest of them until the clock is there again.
    fn forget_behind(&mut self, index: u64) {
        let ahead = self.newest.map_or(0, |newest| newest.saturating_sub(index));
        if ahead < 2 {
            return;
        }
        let kept = self.rows.len() - self.rows.len().min(ahead as usize);
        self.rows.truncate(kept);
        self.newest = (kept > 0).then_some(index);
        self.counts.fill(1);
    }

    /// As a panel has it.
    pub fn time_series(&self, unit: &str) -> TimeSeries {
        let newest = self.newest.unwrap_or_default() as f64;
        let first = (newest + 1.0 - self.rows.len() as f64) * self.step;
        let curve = |(index, name): (usize, &String)| Series {
            name: name.clone(),
            values: self.rows.iter().map(|row| row[index]).collect(),
            highest: Vec::new(),
        };
        TimeSeries {
            first,
            step: self.step,
            unit: unit.to_owned(),
            series: self.names.iter().enumerate().map(curve).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_hole() {
        let mut history = History::new(["a".to_owned()], 10.0, 4);
        for (time, value) in [(100.0, 1.0), (111.0, 2.0), (119.0, 3.0), (140.0, 4.0)] {
            history.note(time, &[value]);
        }
        let series = history.time_series("heaps/s");
        assert_eq!((series.first, series.step), (110.0, 10.0));
        let expected = [Some(3.0), None, None, Some(4.0)];
        assert_eq!(series.series[0].values, expected);
    }

    #[test]
    fn a_spike_and_the_only_value_of_a_step_stay() {
        let noted = |keeps| {
            let mut history = History::new(["a".to_owned()], 10.0, 4).keeping(keeps);
            for (time, value) in [(100.0, 1.0), (101.0, 9.0), (102.0, 2.0), (103.0, f64::NAN)] {
                history.note(time, &[value]);
            }
            history.note(110.0, &[f64::NAN]);
            history.note(111.0, &[3.0]);
            history.time_series("s").series[0].values.clone()
        };
        assert_eq!(noted(Within::Greatest), [Some(9.0), Some(3.0)]);
        assert_eq!(noted(Within::Mean), [Some(4.0), Some(3.0)]);
        assert_eq!(noted(Within::Last), [Some(2.0), Some(3.0)]);
    }

    #[test]
    fn a_clock_that_is_set_back_or_far_ahead_does_no_harm() {
        let mut history = History::new(["a".to_owned()], 1.0, 3);
        history.note(1e9, &[1.0]);
        history.note(5.0, &[2.0]);
        assert_eq!(history.time_series("").series[0].values, [Some(2.0)]);
        assert_eq!(history.time_series("").first, 5.0);
        history.note(1e12, &[f64::NAN]);
        assert_eq!(history.time_series("").series[0].values, [None; 3]);
    }

    #[test]
    fn what_was_before_stays_where_a_clock_is_set_back() {
        let mut history = History::new(["a".to_owned()], 10.0, 9).keeping(Within::Greatest);
        for (time, value) in [(100.0, 1.0), (110.0, 2.0), (120.0, 9.0), (130.0, 9.0)] {
            history.note(time, &[value]);
        }
        for (time, value) in [(111.0, 3.0), (120.0, 4.0), (119.0, 5.0)] {
            history.note(time, &[value]);
        }
        let series = history.time_series("");
        assert_eq!(series.first, 100.0);
        let expected = [Some(1.0), Some(3.0), Some(5.0)];
        assert_eq!(series.series[0].values, expected);
    }
}
