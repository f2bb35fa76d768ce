//! What was, for as long as a page shows.

use std::collections::VecDeque;

use crate::document::{Series, TimeSeries};

/// Values of several curves at even times, the last so many of them.
#[derive(Clone, Debug)]
pub struct History {
    step: f64,
    length: usize,
    names: Vec<String>,
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
        Self {
            step,
            length: length.max(1),
            names: names.into_iter().collect(),
            newest: None,
            rows: VecDeque::new(),
        }
    }

    /// Notes the values of this UNIX time. Of several within a step, the last counts; where there
    /// was none within a step, there is a hole.
    pub fn note(&mut self, time: f64, values: &[f64]) {
        let index = (time / self.step) as u64;
        let behind = self.newest.map_or(1, |newest| index.saturating_sub(newest));
        // A clock that was set back goes on where it was.
        self.newest = Some(self.newest.map_or(index, |newest| newest.max(index)));
        let holes = behind.min(self.length as u64 + 1);
        let none = vec![None; self.names.len()];
        self.rows.extend((0..holes).map(|_| none.clone()));
        let surplus = self.rows.len().saturating_sub(self.length);
        self.rows.drain(..surplus);
        if let Some(row) = self.rows.back_mut() {
            for (place, value) in row.iter_mut().zip(values) {
                *place = value.is_finite().then_some(*value as f32);
            }
        }
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
    fn a_clock_that_is_set_back_or_far_ahead_does_no_harm() {
        let mut history = History::new(["a".to_owned()], 1.0, 3);
        history.note(1e9, &[1.0]);
        history.note(5.0, &[2.0]);
        assert_eq!(history.time_series("").series[0].values, [Some(2.0)]);
        history.note(1e12, &[f64::NAN]);
        assert_eq!(history.time_series("").series[0].values, [None; 3]);
    }
}
