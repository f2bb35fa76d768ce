//! The lines about what is wrong, rather than lost: time, lcores, levels.

use std::time::Duration;

use super::counts::{LossCounts, StreamCounts};
use super::levels;
use super::numbers::{grouped, percent, span};
use super::pace::significant;
use super::text::{Line, Words};

impl Line<'_> {
    pub(super) fn wrong_time(&self) -> Words {
        let off = self.times.off();
        let by = Duration::try_from_secs_f64(off.abs()).unwrap_or(Duration::MAX);
        let side = if off < 0.0 { "behind" } else { "ahead of" };
        let sync_time = self.engine.clock.sync_time;
        let (by, name) = (span(by), self.cause.name());
        let what = format!("the heaps' time is {by} {side} this host's clock: {name}");
        if let Some(rate) = self.times.other_rate(self.engine) {
            let what = format!("{what}, {}", self.samples_come(rate));
            return Words::new(what, rate_mends(rate));
        }
        Words::new(
            what,
            format!(
                "`--sync-time {sync_time}` should be about {:.1}, or `--adc-sample-rate` or the host's clock is wrong",
                sync_time - off
            ),
        )
    }

    fn samples_come(&self, rate: f64) -> String {
        let (rate, expected) = (significant(rate), self.engine.clock.adc_sample_rate);
        format!("it goes on by {rate} samples/s, not the {expected} of `--adc-sample-rate`")
    }

    pub(super) fn time_jumped(&self) -> Words {
        let jump = Duration::try_from_secs_f64(self.times.jump()).unwrap_or(Duration::MAX);
        let (name, jump, jumps) = (self.cause.name(), span(jump), self.due.count);
        let again = match jumps {
            0 | 1 => String::new(),
            _ => format!(", the last of {} jumps", grouped(jumps)),
        };
        if let Some(rate) = self.times.other_rate(self.engine) {
            let what = format!(
                "the heaps' time jumped {jump} ahead{again}: {name}, {}",
                self.samples_come(rate)
            );
            return Words::new(what, rate_mends(rate));
        }
        Words::new(
            format!(
                "the heaps' time jumped {jump} ahead{again}: {name}, nothing was sampled for that time, so that no heap of it \
                 is missing"
            ),
            "was a digitiser synchronised or started anew? If it has another sync time now, start the engine again with \
             that `--sync-time`",
        )
    }

    pub(super) fn lcore_without_cpu(&self) -> Words {
        let lcores = self.lcores.without_cpu(self.now, &self.counts.lcores);
        let name = self.cause.name();
        Words::new(
            format!("{lcores}: {name}, something else runs there, or has stopped it"),
            "give lcores CPUs of their own (`--recv-affinity`, `--print-plan`, `karoo tune check`)",
        )
    }

    pub(super) fn busy_lcore(&self) -> Words {
        let lcores = self.lcores.busy(self.now, &self.counts.lcores);
        let name = self.cause.name();
        Words::new(
            format!("{lcores}: {name}, at its limit packets are lost"),
            "more rx lcores, by more entries of `--recv-affinity`",
        )
    }

    pub(super) fn clock_not_synchronised(&self) -> Words {
        let error = self.counts.clock.map_or(0.0, |clock| clock.maximum_error);
        let error = Duration::try_from_secs_f64(error).unwrap_or_default();
        let (error, name) = (span(error), self.cause.name());
        Words::new(
            format!(
                "this host's clock is not synchronised, it may be wrong by {error}: {name}, what is compared with it cannot be \
                 trusted (delays, latency, `wrong-time`)"
            ),
            "does chrony, ntpd or ptp4l run, and has it a server?",
        )
    }

    pub(super) fn input_clipping(&self) -> Words {
        let heap_samples = self.engine.recv.packet_samples as u64;
        let since = |count: fn(&LossCounts, usize) -> u64, pol| {
            count(self.counts, pol).saturating_sub(count(self.from, pol))
        };
        let share = |pol| {
            let all = since(|counts, pol| counts.heaps[pol], pol) * heap_samples;
            let clipped = since(|counts, pol| counts.clipped[pol], pol);
            percent(clipped as f64 / all.max(1) as f64)
        };
        let (zero, one, limit) = (share(0), share(1), percent(levels::INPUT));
        Words::new(
            format!("{zero} of polarisation 0 and {one} of 1, where {limit} is too much"),
            "lower the level in front of the digitiser, or look for interference",
        )
    }

    pub(super) fn output_clipping(&self) -> Words {
        let from = |name: &str| self.from.outputs.iter().find(|output| output.name == name);
        // With the share that the worse polarisation has, of what it may have.
        let of = |output: &StreamCounts| {
            let before = from(&output.name)?;
            let values = output.values.saturating_sub(before.values);
            let share = [0, 1].map(|pol: usize| {
                let clipped = output.clipped[pol].saturating_sub(before.clipped[pol]);
                clipped as f64 / values.max(1) as f64
            });
            let limit = output.clipping_limit();
            let [zero, one] = share.map(percent);
            let (name, too_much) = (&output.name, percent(limit));
            let text = format!(
                "{zero} of polarisation 0 and {one} of 1 of {name}, where {too_much} is too much"
            );
            Some((share[0].max(share[1]) / limit, text))
        };
        let mut outputs: Vec<_> = self.counts.outputs.iter().filter_map(of).collect();
        outputs.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Since it began, what came and went may be little of all: the most is named even so.
        let named = outputs.iter().enumerate();
        let named = named.filter(|(place, (part, _))| *place == 0 || *part > 1.0);
        let named: Vec<_> = named.map(|(_, (_, text))| &text[..]).collect();
        Words::new(
            named.join("; "),
            "lower the gains, with `?karoo-auto-gain`, `?gain` or `--gain`",
        )
    }
}

/// What mends a rate of samples that is another than expected.
fn rate_mends(rate: f64) -> String {
    let rate = significant(rate);
    format!("should it be about {rate}? Then see whether `--sync-time` is right")
}
