//! How an engine is, beside what its threads count: identity, levels, statistics, clock, losses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ground::N_POL;
use katcp::reading::DEVICE_STATUS;
use katcp::{SensorReading, SensorStatus, Sensors, Value, ValueType};
use prometheus::proto::{MetricFamily, MetricType};

use super::scrape::{Samples, by_pol, counter, family, plain};
use crate::assembly::EnergyMeter;
use crate::config::{EngineConfig, OutputConfig};
use crate::engine::OutputStatistics;
use crate::engine::steer::Published;
use crate::losses::{Cause, LossRecord, LossTotal, Severity, old_level};
use crate::net::format_endpoints;

/// What tells how an engine is.
pub struct EngineState {
    /// What computes: `cuda` or `cpu`.
    pub backend: &'static str,
    /// Name and PCI address of the GPU; empty if none computes.
    pub gpu: String,
    /// What its devices take.
    pub energy: Arc<EnergyMeter>,
    /// What it publishes.
    pub published: Arc<Published>,
    /// What clients of its control see.
    pub sensors: Sensors,
    /// What it has lost.
    pub losses: Arc<LossRecord>,
}

impl EngineState {
    /// Adds its metrics. What is not known yet is NaN, so that every series is there from the
    /// start.
    pub(super) fn add(
        &self,
        families: &mut Vec<MetricFamily>,
        config: &EngineConfig,
        started: SystemTime,
    ) {
        let mut gauge = |name: &str, help: &str, samples| {
            families.extend(family(name, help, MetricType::GAUGE, samples));
        };
        self.add_identity(&mut gauge, config);
        self.add_levels(&mut gauge, config);
        self.add_clock(&mut gauge);
        self.add_losses(families, started);
        let energy = self.energy.read().into_iter();
        let energy = energy.map(|of| (vec![("device", of.device)], of.joules));
        counter(
            families,
            started,
            "karoo_energy_joules",
            "energy that devices took, whoever used them",
            energy.collect(),
        );
    }

    /// Who the engine is, what its outputs are, and the rate of its input.
    fn add_identity(&self, gauge: &mut impl FnMut(&str, &str, Samples), config: &EngineConfig) {
        let engine = vec![
            ("feng_id", config.feng_id.to_string()),
            ("array_size", config.array_size.to_string()),
            ("backend", self.backend.to_owned()),
            ("gpu", self.gpu.clone()),
        ];
        gauge(
            "karoo_engine_info",
            "who this engine is",
            vec![(engine, 1.0)],
        );
        let streams = config.outputs.iter();
        let streams =
            streams.map(|output| (stream_labels(output, config.clock.adc_sample_rate), 1.0));
        gauge(
            "karoo_stream_info",
            "what each output is",
            streams.collect(),
        );
        let one = |value: f64| vec![(Vec::new(), value)];
        gauge(
            "karoo_input_sample_rate_hertz",
            "samples a second that each polarisation should have",
            one(config.clock.adc_sample_rate),
        );
    }

    /// Levels of input and outputs, test patterns, and the status that follows.
    fn add_levels(&self, gauge: &mut impl FnMut(&str, &str, Samples), config: &EngineConfig) {
        gauge(
            "karoo_input_power_dbfs",
            "power of the last second of samples that was whole, relative to a sine of full scale",
            by_pol(power_dbfs(self.published.level(), old_level(config))),
        );
        let input = self.published.statistics().input();
        let share = |pol: usize| input.as_ref()?.full_scale_share(pol);
        gauge(
            "karoo_input_full_scale_share",
            "share of samples at full scale in the last statistics",
            by_pol([0, 1].map(|pol| share(pol).unwrap_or(f64::NAN))),
        );
        gauge(
            "karoo_output_power",
            "mean |x|² of all channels before quantisation in the last statistics, in squared counts",
            self.of_outputs(config, |of, pol, _| Some(of.mean_power(pol))),
        );
        gauge(
            "karoo_output_clipped_share",
            "share of complex samples that quantisation clamped in the last statistics",
            self.of_outputs(config, |of, pol, _| Some(of.clipped_share(pol))),
        );
        gauge(
            "karoo_output_kurtosis_flagged_share",
            "share of channels with something else than noise in the last statistics, by kurtosis",
            self.of_outputs(config, |of, pol, output| {
                Some(of.kurtosis_flags(pol, output)?.share())
            }),
        );
        let tests = config.outputs.iter().enumerate().map(|(index, of)| {
            let on = self.published.has_test(index);
            (vec![("stream", of.name.clone())], number(on))
        });
        gauge(
            "karoo_output_test_pattern",
            "whether known values are sent in place of spectra",
            tests.collect(),
        );
        gauge(
            "karoo_device_status",
            "1 for the present value of the sensor device-status",
            self.device_status(),
        );
    }

    fn add_clock(&self, gauge: &mut impl FnMut(&str, &str, Samples)) {
        let one = |value: f64| vec![(Vec::new(), value)];
        let synchronised = self.sensor("time.synchronised");
        let synchronised = synchronised.map(|reading| reading.value == Value::Boolean(true));
        gauge(
            "karoo_clock_synchronised",
            "whether this host's clock is synchronised, by the sensor time.synchronised",
            one(number(synchronised)),
        );
        for (name, sensor, help) in [
            (
                "karoo_clock_estimated_error_seconds",
                "time.esterror",
                "estimated error of this host's clock",
            ),
            (
                "karoo_clock_maximum_error_seconds",
                "time.maxerror",
                "greatest possible error of this host's clock",
            ),
        ] {
            gauge(name, help, one(self.float(sensor)));
        }
    }

    fn add_losses(&self, families: &mut Vec<MetricFamily>, started: SystemTime) {
        let totals = self.losses.totals();
        let cause = |value: fn(bool, &LossTotal) -> f64| {
            let samples = totals.iter().map(|(cause, active, total)| {
                (labelled("cause", cause.name()), value(*active, total))
            });
            samples.collect::<Samples>()
        };
        families.extend(family(
            "karoo_loss_active",
            "whether a loss for this cause goes on",
            MetricType::GAUGE,
            cause(|active, _| f64::from(u8::from(active))),
        ));
        let places: BTreeMap<_, _> = self
            .losses
            .active()
            .iter()
            .map(|of| of.cause)
            .zip(1u32..)
            .collect();
        let place = |(cause, ..): &(Cause, bool, LossTotal)| {
            let place = places.get(cause).copied().unwrap_or(0);
            (labelled("cause", cause.name()), f64::from(place))
        };
        families.extend(family(
            "karoo_loss_rank",
            "place of this cause among those at work, 1 for the top cause, 0 if it is not at work",
            MetricType::GAUGE,
            totals.iter().map(place).collect(),
        ));
        let mut counter = |name: &str, help: &str, samples| {
            counter(families, started, name, help, samples);
        };
        // By warnings nothing is lost: second copies of heaps, values that were clipped.
        let lost = totals.iter().map(|(cause, _, total)| {
            let loses = cause.severity() == Severity::Loss;
            let count = if loses { total.count } else { 0 };
            (labelled("cause", cause.name()), count as f64)
        });
        counter(
            "karoo_losses",
            "datagrams, heaps or packets lost for this cause, but for what a start costs",
            lost.collect(),
        );
        counter(
            "karoo_losses_begun",
            "how often a loss for this cause began",
            cause(|_, total| total.begun as f64),
        );
        let unexplained = self.losses.unexplained();
        counter(
            "karoo_input_unexplained_missing_heaps",
            "digitiser heaps that are missing and were not lost on this host",
            plain(unexplained.missing),
        );
        counter(
            "karoo_output_unexplained_not_sent_heaps",
            "heaps not sent although their input is not missing",
            plain(unexplained.not_sent),
        );
    }

    /// A sensor that has been read.
    fn sensor(&self, name: &str) -> Option<SensorReading> {
        let sensor = self.sensors.find(name).ok()?;
        let reading = self.sensors.reading(sensor);
        let unknown = [
            SensorStatus::Unknown,
            SensorStatus::Failure,
            SensorStatus::Inactive,
        ];
        (!unknown.contains(&reading.status)).then_some(reading)
    }

    fn float(&self, name: &str) -> f64 {
        match self.sensor(name).map(|reading| reading.value) {
            Some(Value::Float(value)) => value,
            _ => f64::NAN,
        }
    }

    fn device_status(&self) -> Samples {
        let ValueType::Discrete(statuses) = DEVICE_STATUS else {
            return Vec::new();
        };
        let now = self.sensor("device-status").map(|reading| reading.value);
        let is = |status: &&'static str| now == Some(Value::Discrete(status));
        let sample = |status| {
            let is = f64::from(u8::from(is(status)));
            (labelled("status", status), is)
        };
        statuses.iter().map(sample).collect()
    }

    /// What the last statistics come to, of each output and polarisation.
    fn of_outputs(
        &self,
        config: &EngineConfig,
        value: impl Fn(&OutputStatistics, usize, &OutputConfig) -> Option<f64>,
    ) -> Samples {
        let outputs = config.outputs.iter().enumerate();
        let samples = outputs.flat_map(|(index, output)| {
            let statistics = self.published.statistics().output(index);
            let statistics = statistics.filter(|statistics| statistics.spectra > 0);
            let value = &value;
            (0..N_POL).map(move |pol| {
                let value = statistics
                    .as_ref()
                    .and_then(|statistics| value(statistics, pol, output));
                let labels = vec![("stream", output.name.clone()), ("pol", pol.to_string())];
                (labels, value.unwrap_or(f64::NAN))
            })
        });
        samples.collect()
    }
}

/// Decibels of a level with its age; not known of a level that is old.
fn power_dbfs(level: Option<([f64; N_POL], Duration)>, old: Duration) -> [f64; N_POL] {
    match level.filter(|(_, age)| *age <= old) {
        // No power at all.
        Some((dbfs, _)) => dbfs.map(|dbfs| {
            if dbfs == f64::MIN {
                f64::NEG_INFINITY
            } else {
                dbfs
            }
        }),
        None => [f64::NAN; N_POL],
    }
}

fn labelled(name: &'static str, value: &str) -> Vec<(&'static str, String)> {
    vec![(name, value.to_owned())]
}

/// 1 and 0; NaN if it is not known.
fn number(is: Option<bool>) -> f64 {
    is.map_or(f64::NAN, |is| f64::from(u8::from(is)))
}

fn stream_labels(output: &OutputConfig, adc_sample_rate: f64) -> Vec<(&'static str, String)> {
    let band = output.band(adc_sample_rate);
    let kind = output.option().trim_start_matches("--");
    vec![
        ("stream", output.name.clone()),
        ("kind", kind.to_owned()),
        ("channels", output.channels.to_string()),
        ("from_hertz", band.start.to_string()),
        ("to_hertz", band.end.to_string()),
        ("substreams", output.dst.len().to_string()),
        ("dst", format_endpoints(&output.dst)),
        ("spectra_per_heap", output.spectra_per_heap().to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use ground::Timestamp;
    use katcp::SensorInfo;

    use super::*;
    use crate::engine::steer::{EngineEvent, PowerLevel};
    use crate::engine::{ChannelSums, InputStatistics};
    use crate::losses::{UnexplainedCounts, Words};
    use crate::metrics::scrape::text;
    use crate::recv::DropCause;

    const OUTPUTS: &str = "name=w,channels=64,dst=239.10.1.0+3,jones_per_batch=2048";

    fn scrape(state: &EngineState) -> String {
        let config = crate::config::tests::engine(OUTPUTS, |_| {});
        let mut families = Vec::new();
        state.add(&mut families, &config, SystemTime::UNIX_EPOCH);
        text(families).unwrap()
    }

    fn state() -> EngineState {
        EngineState {
            backend: "cpu",
            gpu: String::new(),
            energy: Arc::default(),
            published: Arc::new(Published::new(1)),
            sensors: Sensors::default(),
            losses: Arc::default(),
        }
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|other| other == *line), "{line}\n{text}");
        }
    }

    #[test]
    fn an_old_level_is_not_known() {
        let old = old_level(&crate::config::tests::engine(OUTPUTS, |_| {}));
        assert_eq!(old, Duration::from_secs(5));
        let at = |age| power_dbfs(Some(([-12.5, -13.0], age)), old);
        assert_eq!(at(old), [-12.5, -13.0]);
        assert!(
            at(old + Duration::from_nanos(1))
                .iter()
                .all(|dbfs| dbfs.is_nan())
        );
    }

    #[test]
    fn what_is_not_known_yet_is_there() {
        let lines = [
            r#"karoo_input_power_dbfs{pol="1"} NaN"#,
            r#"karoo_input_full_scale_share{pol="0"} NaN"#,
            r#"karoo_output_power{stream="w",pol="1"} NaN"#,
            r#"karoo_output_kurtosis_flagged_share{stream="w",pol="0"} NaN"#,
            r#"karoo_output_test_pattern{stream="w"} 0"#,
            "karoo_clock_synchronised NaN",
            r#"karoo_device_status{status="ok"} 0"#,
            r#"karoo_loss_active{cause="no-input"} 0"#,
            r#"karoo_losses_total{cause="duplicate"} 0"#,
            r#"karoo_losses_begun_total{cause="tx-errors"} 0"#,
            "karoo_input_unexplained_missing_heaps_total 0",
            "karoo_output_unexplained_not_sent_heaps_total 0",
        ];
        let text = scrape(&state());
        has(&text, &lines);
        for cause in Cause::all() {
            assert!(text.contains(&format!(r#"{{cause="{}"}}"#, cause.name())));
        }
        let info = text
            .lines()
            .find(|line| line.starts_with("karoo_stream_info"));
        let info = info.unwrap();
        for label in [
            r#"kind="wideband""#,
            r#"channels="64""#,
            r#"substreams="4""#,
            r#"dst="239.10.1.0+3:7148""#,
        ] {
            assert!(info.contains(label), "{info}");
        }
    }

    #[test]
    fn levels_statistics_sensors_and_losses_are_told() {
        let state = state();
        let board = state.published.statistics();
        // Samples of two bits, a quarter of them at full scale.
        board.publish_input(Arc::new(InputStatistics {
            start: Timestamp(0),
            end: Timestamp(4),
            histogram: [vec![0, 0, 3, 1], vec![0, 0, 4, 0]],
            snapshot_start: Timestamp(0),
            snapshot: Default::default(),
        }));
        let sums = ChannelSums {
            power: [40.0, 80.0],
            power_squared: [160.0, 640.0],
            clipped: [1, 5],
            ..ChannelSums::default()
        };
        let statistics = OutputStatistics {
            start: Timestamp(0),
            end: Timestamp(1),
            spectra: 10,
            channels: vec![sums; 64],
        };
        board.publish_output(0, Arc::new(statistics));
        let add = |name: &str, kind, value| {
            let info = SensorInfo::new(name, "", "", kind);
            state.sensors.add(info, SensorReading::now(value));
        };
        add(
            "time.synchronised",
            ValueType::Boolean,
            Value::Boolean(true),
        );
        add("time.esterror", ValueType::Float, Value::Float(0.25));
        add("device-status", DEVICE_STATUS, Value::Discrete("degraded"));
        let words = Words {
            what: "lost".to_owned(),
            mends: String::new(),
        };
        state
            .losses
            .update(1.0, [(Cause::NotSent, 3, &words)].into_iter(), &[]);
        state.losses.update(2.0, std::iter::empty(), &[]);
        let again = [
            (Cause::NoInput, 0, &words),
            (Cause::NotSent, 4, &words),
            (Cause::Dropped(DropCause::Duplicate), 9, &words),
        ];
        state.losses.update(3.0, again.into_iter(), &[]);
        state.losses.note_unexplained(UnexplainedCounts {
            missing: 6,
            not_sent: 2,
        });
        // What was not whole has no level, and the last whole second keeps its own.
        for dbfs in [Some([-12.5, f64::MIN]), None] {
            let end = Timestamp(4);
            let level = PowerLevel { end, dbfs };
            state.published.tell(EngineEvent::Power(level));
        }
        let lines = [
            r#"karoo_input_full_scale_share{pol="0"} 0.25"#,
            r#"karoo_input_full_scale_share{pol="1"} 0"#,
            r#"karoo_output_power{stream="w",pol="0"} 4"#,
            r#"karoo_output_power{stream="w",pol="1"} 8"#,
            r#"karoo_output_clipped_share{stream="w",pol="1"} 0.5"#,
            r#"karoo_input_power_dbfs{pol="0"} -12.5"#,
            r#"karoo_input_power_dbfs{pol="1"} -inf"#,
            "karoo_clock_synchronised 1",
            "karoo_clock_estimated_error_seconds 0.25",
            "karoo_clock_maximum_error_seconds NaN",
            r#"karoo_device_status{status="ok"} 0"#,
            r#"karoo_device_status{status="degraded"} 1"#,
            r#"karoo_loss_active{cause="not-sent"} 1"#,
            r#"karoo_loss_active{cause="no-input"} 1"#,
            r#"karoo_losses_total{cause="not-sent"} 7"#,
            r#"karoo_losses_begun_total{cause="not-sent"} 2"#,
            r#"karoo_losses_begun_total{cause="no-input"} 1"#,
            r#"karoo_losses_total{cause="no-input"} 0"#,
            // The first copy counts, so that nothing is lost.
            r#"karoo_loss_active{cause="duplicate"} 1"#,
            r#"karoo_losses_total{cause="duplicate"} 0"#,
            r#"karoo_losses_begun_total{cause="duplicate"} 1"#,
            // As the verdict has them.
            r#"karoo_loss_rank{cause="no-input"} 1"#,
            r#"karoo_loss_rank{cause="not-sent"} 2"#,
            r#"karoo_loss_rank{cause="duplicate"} 3"#,
            r#"karoo_loss_rank{cause="link-down"} 0"#,
            "karoo_input_unexplained_missing_heaps_total 6",
            "karoo_output_unexplained_not_sent_heaps_total 2",
        ];
        has(&scrape(&state), &lines);
    }
}
