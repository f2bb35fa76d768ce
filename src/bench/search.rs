//! The highest rate at which nothing is lost, where the outcome of a trial has its chances.

use schemars::JsonSchema;
use serde::Serialize;

/// A rate, and what came of trials at it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tried {
    /// The rate.
    pub rate: f64,
    /// Trials.
    pub trials: u32,
    /// Those in which nothing was lost.
    pub passed: u32,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FoundRate {
    /// The highest rate that holds; `None` if none does.
    pub rate: Option<f64>,
    /// How sure it is that this rate holds, and the next one tried does not; `None` where the
    /// method does not tell.
    pub confidence: Option<f64>,
    /// Whether it is as sure as was asked for.
    pub sure: bool,
    /// All rates tried, ascending.
    pub tried: Vec<Tried>,
}

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Every trial halves what is known of the rate, by Bayes' rule, as katgpucbf's benchmark does.
    Noisy {
        /// How sure to be.
        confidence: f64,
        /// Chance that a trial says the opposite of what is so.
        error: f64,
        /// Trials at most.
        trials: u32,
    },
    /// A rate holds if so many trials in a row pass; then halves of what is left (RFC 2544, 26.1).
    Rfc2544 {
        /// Trials at each rate.
        repeats: u32,
    },
}

impl Method {
    /// Searches `rates`, which ascend; `trial` tells whether nothing was lost at one of them.
    pub fn search<E>(
        self,
        rates: &[f64],
        mut trial: impl FnMut(f64) -> Result<bool, E>,
    ) -> Result<FoundRate, E> {
        let mut tally = vec![(0, 0); rates.len()];
        let mut one = |index: usize| {
            let passed = trial(rates[index])?;
            tally[index].0 += 1;
            tally[index].1 += u32::from(passed);
            Ok(passed)
        };
        let (holding, confidence, sure) = match self {
            Self::Noisy {
                confidence,
                error,
                trials,
            } => {
                let mut belief = Belief::new(rates.len(), error);
                let mut left = trials;
                while belief.best().1 < confidence && left > 0 {
                    left -= 1;
                    let index = belief.most_telling();
                    let passed = one(index)?;
                    belief.learn(index, passed);
                }
                let (holding, chance) = belief.best();
                (holding, Some(chance), chance >= confidence)
            }
            Self::Rfc2544 { repeats } => {
                let (mut holding, mut end) = (0, rates.len());
                // The highest first, as the standard has it.
                let mut index = rates.len().saturating_sub(1);
                while holding < end {
                    let mut passes = true;
                    for _ in 0..repeats {
                        passes = passes && one(index)?;
                    }
                    if passes {
                        holding = index + 1;
                    } else {
                        end = index;
                    }
                    index = (holding + end) / 2;
                }
                (holding, None, true)
            }
        };
        let tried = rates
            .iter()
            .zip(tally)
            .filter(|(_, (trials, _))| *trials > 0);
        let tried = tried.map(|(&rate, (trials, passed))| Tried {
            rate,
            trials,
            passed,
        });
        Ok(FoundRate {
            rate: holding.checked_sub(1).map(|index| rates[index]),
            confidence,
            sure,
            tried: tried.collect(),
        })
    }
}

/// Not a step between rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a share from 0.001 to 1: try 0.05")]
pub struct StepError;

/// A step for [`ladder`], as an option gives it: with smaller ones there are more rates than a
/// search can try.
pub fn parse_step(text: &str) -> Result<f64, StepError> {
    let step = text.parse::<f64>().ok();
    step.filter(|step| (0.001..=1.0).contains(step))
        .ok_or(StepError)
}

/// Rates from `lowest` to `highest`, each higher than the one before by at most this share.
pub fn ladder(lowest: f64, highest: f64, step: f64) -> Vec<f64> {
    let steps = ((highest / lowest).ln() / step.ln_1p()).ceil().max(0.0);
    let ratio = (highest / lowest).powf(1.0 / steps.max(1.0));
    (0..=steps as i32).map(|i| lowest * ratio.powi(i)).collect()
}

/// How likely it is, for each number of rates, that so many hold.
struct Belief {
    chances: Vec<f64>,
    error: f64,
}

impl Belief {
    fn new(rates: usize, error: f64) -> Self {
        Self {
            chances: vec![1.0 / (rates + 1) as f64; rates + 1],
            error,
        }
    }

    /// Bayes' rule, after a trial of rate `index`.
    fn learn(&mut self, index: usize, passed: bool) {
        for (holding, chance) in self.chances.iter_mut().enumerate() {
            let as_is = (index < holding) == passed;
            *chance *= if as_is { 1.0 - self.error } else { self.error };
        }
        let all: f64 = self.chances.iter().sum();
        self.chances.iter_mut().for_each(|chance| *chance /= all);
    }

    /// The rate that holds as likely as not.
    fn most_telling(&self) -> usize {
        let mut below = 0.0;
        let median = self.chances.iter().position(|chance| {
            below += chance;
            below >= 0.5
        });
        // The median number of rates that hold is decided by the rate on the one or the other side
        // of it.
        let median = median.unwrap_or(0);
        let before: f64 = self.chances[..median].iter().sum();
        let index = if 0.5 - before > before + self.chances[median] - 0.5 {
            median
        } else {
            median.saturating_sub(1)
        };
        index.min(self.chances.len().saturating_sub(2))
    }

    /// The likeliest number of rates that hold, and how likely.
    fn best(&self) -> (usize, f64) {
        let chances = self.chances.iter().copied().enumerate();
        chances.fold(
            (0, 0.0),
            |best, next| if next.1 > best.1 { next } else { best },
        )
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const NOISY: Method = Method::Noisy {
        confidence: 0.95,
        error: 0.1,
        trials: 200,
    };

    fn exact(method: Method, rates: &[f64], limit: f64) -> FoundRate {
        let trial = |rate: f64| Ok::<_, ()>(rate <= limit);
        method.search(rates, trial).unwrap()
    }

    #[test]
    fn without_noise_both_find_the_limit() {
        let rates = ladder(1.0, 16.0, 0.05);
        for method in [NOISY, Method::Rfc2544 { repeats: 2 }] {
            for limit in [0.5, 1.0, 3.3, 7.0, 15.9, 100.0] {
                let found = exact(method, &rates, limit);
                let expected = rates.iter().copied().rfind(|&rate| rate <= limit);
                assert_eq!(found.rate, expected, "{method:?}, {limit}");
                assert!(found.sure && found.tried.is_sorted_by_key(|tried| tried.rate));
            }
        }
    }

    /// Trials that lie one time in ten: as often as it says, the limit is right or the next rate to
    /// it.
    #[test]
    fn with_noise_it_is_as_sure_as_it_says() {
        let rates = ladder(1.0, 16.0, 0.05);
        let mut right = 0;
        for seed in 0..400 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let limit = random.random_range(1.1..15.0);
            let trial = |rate: f64| Ok::<_, ()>((rate <= limit) != random.random_bool(0.1));
            let found = NOISY.search(&rates, trial).unwrap();
            let expected = rates.iter().copied().rfind(|&rate| rate <= limit);
            right += u32::from(found.sure && found.rate == expected);
        }
        // 95 % of 400, less three standard deviations.
        assert!(right >= 367, "{right}");
    }

    #[test]
    fn trials_are_bounded() {
        let rates = ladder(1.0, 16.0, 0.05);
        let method = Method::Noisy {
            confidence: 0.999_999,
            error: 0.4,
            trials: 10,
        };
        let found = exact(method, &rates, 5.0);
        assert!(!found.sure);
        assert_eq!(
            found.tried.iter().map(|tried| tried.trials).sum::<u32>(),
            10
        );
    }

    #[test]
    fn failures_end_the_search() {
        let trial = |_: f64| Err::<bool, _>("no output");
        assert_eq!(NOISY.search(&[1.0, 2.0], trial), Err("no output"));
    }

    #[test]
    fn steps_have_a_range() {
        for text in ["0.001", "0.05", "1"] {
            assert_eq!(parse_step(text), Ok(text.parse().unwrap()));
        }
        for text in ["0", "0.0009", "1.1", "-0.1", "NaN", "inf", ""] {
            assert_eq!(parse_step(text), Err(StepError), "{text}");
        }
    }

    #[test]
    fn ladders_have_even_steps() {
        let rates = ladder(2.0, 4.0, 0.1);
        assert_eq!((rates[0], rates.len()), (2.0, 9));
        assert!((rates[8] - 4.0).abs() < 1e-9);
        assert!(rates.windows(2).all(|w| w[1] / w[0] <= 1.1));
        assert_eq!(ladder(3.0, 3.0, 0.1), [3.0]);
    }
}
