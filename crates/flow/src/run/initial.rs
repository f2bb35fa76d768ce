//! Samples that a signal has in its queue at the start.

use std::collections::VecDeque;

use crate::literal::{Literals, MAX_LITERALS};
use crate::value::Value;

/// Samples, the first to be read first. What many samples in a row have in common is kept once: a
/// delay may be longer than memory for each of its samples allows.
#[derive(Clone, Debug, Default)]
pub(super) struct InitialSamples {
    /// Values, and how many samples in a row each of them is: at least one.
    runs: VecDeque<(Value, usize)>,
}

impl InitialSamples {
    /// So many samples of one value.
    pub fn alike(value: Value, count: usize) -> InitialSamples {
        let run = (count > 0).then_some((value, count));
        InitialSamples {
            runs: run.into_iter().collect(),
        }
    }

    /// These samples.
    pub fn each(values: impl IntoIterator<Item = Value>) -> InitialSamples {
        InitialSamples {
            runs: values.into_iter().map(|value| (value, 1)).collect(),
        }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        let counts = self.runs.iter().map(|(_, count)| *count);
        counts.fold(0, usize::saturating_add)
    }

    /// The samples.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        let runs = self.runs.iter();
        runs.flat_map(|(value, count)| std::iter::repeat_n(value, *count))
    }

    /// Adds samples behind the last.
    pub fn append(&mut self, mut more: InitialSamples) {
        self.runs.append(&mut more.runs);
    }

    /// Takes away all but the first samples, and returns them.
    pub fn split_off(&mut self, first: usize) -> InitialSamples {
        let (mut left, mut at) = (first, 0);
        while let Some((_, count)) = self.runs.get(at).filter(|(_, count)| *count <= left) {
            left -= count;
            at += 1;
        }
        let mut rest = self.runs.split_off(at);
        if left > 0
            && let Some((value, count)) = rest.front_mut()
        {
            self.runs.push_back((value.clone(), left));
            *count -= left;
        }
        InitialSamples { runs: rest }
    }

    /// How many of the last samples are the same bits in all of these.
    pub fn common_end(all: &[InitialSamples]) -> usize {
        // For each the runs from the last back, and how many samples of the present one are left.
        let mut ends: Vec<_> = all
            .iter()
            .map(|samples| {
                samples
                    .runs
                    .iter()
                    .rev()
                    .map(|(value, n)| (value, *n))
                    .peekable()
            })
            .collect();
        let mut used = vec![0; ends.len()];
        let mut common = 0;
        loop {
            let mut first: Option<Vec<u8>> = None;
            let mut step = usize::MAX;
            for (end, used) in ends.iter_mut().zip(&used) {
                let Some(&(value, count)) = end.peek() else {
                    return common;
                };
                let own = bytes(value);
                if first.as_ref().is_some_and(|first| *first != own) {
                    return common;
                }
                first = Some(own);
                step = step.min(count - used);
            }
            if first.is_none() {
                return common;
            }
            common += step;
            for (end, used) in ends.iter_mut().zip(&mut used) {
                *used += step;
                if end.peek().is_some_and(|&(_, count)| count == *used) {
                    end.next();
                    *used = 0;
                }
            }
        }
    }

    /// The samples in parts that one parameter each can give, the first to be read first.
    pub fn parts(mut self) -> Vec<InitialSamples> {
        let Some(len) = self.runs.front().map(|(value, _)| value.kind().len) else {
            return Vec::new();
        };
        if self.runs.len() == 1 || self.len().saturating_mul(len) <= MAX_LITERALS {
            return vec![self];
        }
        let most = (MAX_LITERALS / len).max(1);
        let mut parts = Vec::new();
        while let Some((_, count)) = self.runs.front() {
            // A long run is a part by itself, and other parts end in front of it.
            let mut samples = *count;
            if samples <= most {
                samples = 0;
                for (_, count) in &self.runs {
                    if samples + count > most {
                        break;
                    }
                    samples += count;
                }
            }
            let rest = self.split_off(samples);
            parts.push(std::mem::replace(&mut self, rest));
        }
        parts
    }

    /// The samples as numbers of a parameter; none if there are none, or too many that differ.
    pub fn literals(&self) -> Option<Literals> {
        let numbers = |value: &Value| {
            let elements = (0..value.kind().len).map(|index| value.element(index));
            elements.collect::<Vec<_>>()
        };
        match self.runs.len() {
            1 => {
                let value = &self.runs[0].0;
                let own = bytes(value);
                // One number for all is never written out.
                let mut each = own.chunks(own.len() / value.kind().len);
                let first = each.next()?;
                let alike = each.all(|other| other == first);
                let mut numbers = numbers(value);
                numbers.truncate(if alike { 1 } else { numbers.len() });
                Literals::new(numbers)
            }
            _ if self.len() > MAX_LITERALS => None,
            _ => Literals::new(self.iter().flat_map(numbers).collect()),
        }
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs of few values, zeros of both signs among them, and the same one by one.
    fn samples() -> impl Strategy<Value = (InitialSamples, Vec<f32>)> {
        proptest::collection::vec((0..3usize, 1..5usize), 0..6).prop_map(|runs| {
            let mut made = InitialSamples::default();
            let mut plain = Vec::new();
            for (value, count) in runs {
                let value = [0.0f32, -0.0, 1.5][value];
                made.append(InitialSamples::alike(value.into(), count));
                plain.extend(std::iter::repeat_n(value, count));
            }
            (made, plain)
        })
    }

    fn bits(samples: &InitialSamples) -> Vec<Vec<u8>> {
        samples.iter().map(bytes).collect()
    }

    fn plain_bits(samples: &[f32]) -> Vec<Vec<u8>> {
        samples.iter().map(|&value| bytes(&value.into())).collect()
    }

    proptest! {
        #[test]
        fn runs_are_the_same_as_samples_one_by_one(
            (made, plain) in samples(), (other, other_plain) in samples(), at in 0..20usize,
        ) {
            prop_assert_eq!(made.len(), plain.len());
            prop_assert_eq!(bits(&made), plain_bits(&plain));
            let at = at.min(plain.len());
            let mut first = made.clone();
            let rest = first.split_off(at);
            prop_assert_eq!(bits(&first), plain_bits(&plain[..at]));
            prop_assert_eq!(bits(&rest), plain_bits(&plain[at..]));
            let (own, others) = (plain_bits(&plain), plain_bits(&other_plain));
            let both = own.iter().rev().zip(others.iter().rev());
            let common = both.take_while(|(own, other)| own == other).count();
            prop_assert_eq!(InitialSamples::common_end(&[made.clone(), other]), common);
            prop_assert_eq!(InitialSamples::common_end(&[made]), plain.len());
        }
    }

    #[test]
    fn parts_are_all_samples_and_each_can_be_given() {
        let mut made = InitialSamples::each([1.0f32, 2.0].map(Value::from));
        made.append(InitialSamples::alike(3.0f32.into(), MAX_LITERALS + 1));
        made.append(InitialSamples::alike(4.0f32.into(), 5));
        made.append(InitialSamples::each([6.0f32].map(Value::from)));
        let parts = made.clone().parts();
        let counts: Vec<usize> = parts.iter().map(InitialSamples::len).collect();
        assert_eq!(counts, [2, MAX_LITERALS + 1, 6]);
        assert!(parts.iter().all(|part| part.literals().is_some()));
        assert!(made.literals().is_none());
        assert!(parts.iter().flat_map(InitialSamples::iter).eq(made.iter()));
        assert!(InitialSamples::default().parts().is_empty());
    }
}
