//! What Prometheus is told of a sink on an interface.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use prometheus::proto::MetricType;

use crate::metrics::scrape::{Samples, counter, family, text};
use crate::metrics::{Scrape, ports};
use crate::ports::Links;
use crate::sink::StreamReport;
use crate::sink::live::{CheckedSpectra, Shown};

/// Picks a count of a stream.
type CountOf = fn(&StreamReport) -> u64;

/// What is scraped.
pub struct SinkMetrics {
    /// What came.
    pub shown: Shown,
    /// What came of the checks.
    pub checked: Arc<Mutex<Vec<CheckedSpectra>>>,
    /// Link of the port.
    pub links: Links,
    /// When all counters were 0.
    pub started: SystemTime,
}

impl SinkMetrics {
    /// Nothing has been checked yet.
    pub fn new(shown: Shown, links: Links) -> Self {
        Self {
            shown,
            checked: Arc::default(),
            links,
            started: SystemTime::now(),
        }
    }
}

impl Scrape for SinkMetrics {
    fn scrape(&self) -> Result<String, prometheus::Error> {
        let seen = self.shown.get();
        let checked = self.checked.lock().map(|c| c.clone()).unwrap_or_default();
        let mut families = Vec::new();
        let label = |stream: &StreamReport| vec![("stream", stream.name.clone())];
        let mut add = |name: &str, help: &str, value: CountOf| {
            let of = |stream: &StreamReport| (label(stream), value(stream) as f64);
            let samples = seen.streams.iter().map(of).collect();
            counter(
                &mut families,
                self.started,
                &format!("karoo_sink_{name}"),
                help,
                samples,
            );
        };
        add("heaps", "whole heaps", |s| s.heaps);
        add("bytes", "bytes of payload", |s| s.bytes);
        add("incomplete_heaps", "heaps that lack packets", |s| {
            s.incomplete_heaps
        });
        add("missing_heaps", "heaps missing of batches that came", |s| {
            s.missing_heaps
        });
        add("batches_not_sent", "batches of which nothing came", |s| {
            s.batches_not_sent
        });
        let packets: [(&str, &str, CountOf); 5] = [
            ("late", "packets that came after four later batches", |s| {
                s.late_packets
            }),
            (
                "after_stop",
                "packets that came after the stop heap of their substream",
                |s| s.packets_after_stop,
            ),
            (
                "bad_timestamp",
                "packets with a timestamp that is no multiple of the batch, or far ahead of all others",
                |s| s.bad_timestamp_packets,
            ),
            (
                "misplaced",
                "packets with an F-engine number, first channel or heap count that is not their \
                 destination's",
                |s| s.misplaced_packets,
            ),
            (
                "wrong_size",
                "packets of heaps of an unknown or wrong size",
                |s| s.wrong_size_packets,
            ),
        ];
        for (name, help, value) in packets {
            add(&format!("{name}_packets"), help, value);
        }
        let both = seen.streams.iter().zip(&checked);
        let wrong: Samples = both.map(|(s, c)| (label(s), c.wrong as f64)).collect();
        let help = "values that do not follow from the signals asked for";
        counter(
            &mut families,
            self.started,
            "karoo_sink_wrong_values",
            help,
            wrong,
        );
        let both = seen.streams.iter().zip(&seen.views);
        let power = both.flat_map(|(stream, view)| {
            let pols = view.power_db.iter().enumerate();
            pols.filter_map(|(pol, db)| {
                Some((
                    [label(stream), vec![("pol", pol.to_string())]].concat(),
                    (*db)?,
                ))
            })
        });
        let help = "mean power of a second, dB relative to one count";
        families.extend(family(
            "karoo_sink_power_db",
            help,
            MetricType::GAUGE,
            power.collect(),
        ));
        ports(&mut families, self.started, &self.links);
        text(families)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::live::{Seen, StreamView};

    #[test]
    fn packets_that_are_of_no_batch_are_told() {
        let seen = Seen {
            streams: vec![StreamReport {
                name: "w".to_owned(),
                late_packets: 1,
                bad_timestamp_packets: 2,
                misplaced_packets: 3,
                wrong_size_packets: 4,
                mean_power_db: [Some(1.0); 2],
                ..StreamReport::default()
            }],
            // As it is now, and not since the beginning.
            views: vec![StreamView {
                power_db: [Some(-3.5), None],
                ..StreamView::default()
            }],
            ..Seen::default()
        };
        let metrics = SinkMetrics::new(Shown::of(seen), Links::new([]));
        let text = metrics.scrape().unwrap();
        for line in [
            "late_packets_total{stream=\"w\"} 1",
            "bad_timestamp_packets_total{stream=\"w\"} 2",
            "misplaced_packets_total{stream=\"w\"} 3",
            "wrong_size_packets_total{stream=\"w\"} 4",
        ] {
            assert!(text.contains(&format!("karoo_sink_{line}")), "{text}");
        }
        let power = text
            .lines()
            .filter(|line| line.starts_with("karoo_sink_power_db"));
        let power: Vec<_> = power.collect();
        assert_eq!(power, [r#"karoo_sink_power_db{stream="w",pol="0"} -3.5"#]);
    }
}
