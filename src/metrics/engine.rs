//! Metrics for Prometheus: katgpucbf's by name, and Karoo's own under `karoo_`.
//!
//! Everything is read from counters that the data threads write anyway, at the time of the scrape;
//! they never wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use dpdk::{ExtPool, Port, PortStats};
use ground::stats::latency::{BOUNDS, Latency};
use ground::{KAROO_VERSION, N_POL, Timestamp, karoo_commit};
use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};

use super::EngineState;
use super::scrape::{Samples, Scrape, by_pol, counter, family, label_pairs, plain, text};
use crate::assembly::{EngineReadings, RunningEngine, Threads};
use crate::config::{EngineConfig, OutputConfig};
use crate::engine::OutputStats;
use crate::memory::OutputMemory;
use crate::ports::Links;
use crate::recv::{DropCause, InputStats, RxStats};

/// What is scraped of one engine.
pub struct EngineMetrics {
    /// Configuration of the engine.
    pub config: EngineConfig,
    /// Counters of each rx lcore, and of a capture's reader if there is one.
    pub rx: Vec<Arc<RxStats>>,
    /// Counters of the input.
    pub input: Arc<InputStats>,
    /// Counters of each output, in the order of the configuration.
    pub outputs: Vec<Arc<OutputStats>>,
    /// What else is read of the running engine.
    pub readings: EngineReadings,
    /// When the engine was started.
    pub started: SystemTime,
    /// State of the engine, beside what is counted.
    pub state: EngineState,
}

impl Scrape for EngineMetrics {
    fn scrape(&self) -> Result<String, prometheus::Error> {
        let mut families = Vec::new();
        self.add_input(&mut families);
        self.add_outputs(&mut families);
        self.add_datagrams(&mut families);
        self.add_times(&mut families);
        self.add_chunks(&mut families);
        add_build(&mut families);
        self.state.add(&mut families, &self.config, self.started);
        ports(&mut families, self.started, &self.readings.links);
        text(families)
    }
}

impl EngineMetrics {
    /// Those of `engine` behind these ports, and of a capture's reader if there is one.
    pub fn of(
        config: &EngineConfig,
        engine: &RunningEngine,
        capture: Option<&Arc<RxStats>>,
        links: &Links,
        threads: &Threads,
        state: EngineState,
    ) -> Self {
        let stages = &engine.stages;
        let mut rx = stages.rx_stats().to_vec();
        rx.extend(capture.cloned());
        Self {
            config: config.clone(),
            rx,
            input: stages.input_stats().clone(),
            outputs: stages.output_stats().to_vec(),
            readings: EngineReadings::of(engine, links, threads),
            started: SystemTime::now(),
            state,
        }
    }

    /// A counter, with the time since when it counts.
    fn counter(&self, families: &mut Vec<MetricFamily>, name: &str, help: &str, samples: Samples) {
        counter(families, self.started, name, help, samples);
    }

    fn add_input(&self, families: &mut Vec<MetricFamily>) {
        let mut add = |name: &str, help: &str, samples| {
            self.counter(families, &format!("fgpu_input_{name}"), help, samples);
        };
        let recv = &self.config.recv;
        let (samples, bytes) = (recv.packet_samples as u64, recv.heap_bytes() as u64);
        let heaps = self.input.heaps();
        add("heaps", "digitiser heaps received", counts_by_pol(heaps));
        add(
            "chunks",
            "receive chunks with any heaps",
            plain(self.input.chunks()),
        );
        add(
            "samples",
            "digitiser samples received",
            counts_by_pol(heaps.map(|heaps| heaps * samples)),
        );
        add(
            "bytes",
            "bytes of digitiser samples received",
            counts_by_pol(heaps.map(|heaps| heaps * bytes)),
        );
        let missing = self.input.missing_heaps();
        add(
            "missing_heaps",
            "digitiser heaps that never came",
            counts_by_pol(missing),
        );
        let clipped = self.input.clipped_samples();
        add(
            "clipped_samples",
            "samples that the digitiser flagged as saturated",
            counts_by_pol(clipped),
        );
        let dropped = |causes: &[DropCause]| {
            let of = |rx: &Arc<RxStats>| causes.iter().map(|&cause| rx.drops(cause)).sum::<u64>();
            plain(self.rx.iter().map(of).sum())
        };
        add(
            "too_old_heaps",
            "heaps that came too late",
            dropped(&[DropCause::TooOld]),
        );
        let metadata = [DropCause::WrongHeapLength, DropCause::NoTimestamp];
        add(
            "metadata_heaps",
            "heaps of another length, or without timestamp",
            dropped(&metadata),
        );
        let bad = [DropCause::BadTimestamp];
        add(
            "bad_timestamp_heaps",
            "heaps whose timestamp is not a multiple of their samples",
            dropped(&bad),
        );
    }

    fn add_outputs(&self, families: &mut Vec<MetricFamily>) {
        let counts: Vec<_> = self.outputs.iter().map(|output| output.counts()).collect();
        let stream = |name: &str| vec![("stream", name.to_owned())];
        let mut add = |name: &str, help: &str, values: Vec<u64>| {
            let samples = counts
                .iter()
                .zip(values)
                .map(|(count, value)| (stream(&count.name), value as f64));
            self.counter(
                families,
                &format!("fgpu_output_{name}"),
                help,
                samples.collect(),
            );
        };
        let outputs = || counts.iter().zip(&self.config.outputs);
        add(
            "heaps",
            "heaps sent",
            counts.iter().map(|count| count.heaps).collect(),
        );
        add(
            "bytes",
            "payload bytes sent",
            counts.iter().map(|count| count.bytes).collect(),
        );
        let samples = outputs()
            .map(|(count, output)| count.batches * output.jones_per_batch as u64 * N_POL as u64);
        add("samples", "complex samples sent", samples.collect());
        let skipped = self.outputs.iter().map(|output| output.not_sent_heaps());
        add(
            "skipped_heaps",
            "heaps not sent because input was missing",
            skipped.collect(),
        );
        let clipped = counts.iter().flat_map(|count| {
            count
                .clipped_samples
                .into_iter()
                .enumerate()
                .map(|(pol, clipped)| {
                    let mut labels = stream(&count.name);
                    labels.push(("pol", pol.to_string()));
                    (labels, clipped as f64)
                })
        });
        let help = "complex samples sent that quantisation clamped";
        self.counter(
            families,
            "fgpu_output_clipped_samples",
            help,
            clipped.collect(),
        );
    }

    /// Datagrams by receive queue, and those that were not placed.
    fn add_datagrams(&self, families: &mut Vec<MetricFamily>) {
        let queue = |queue: usize| ("queue", queue.to_string());
        let datagrams = self
            .rx
            .iter()
            .enumerate()
            .map(|(n, rx)| (vec![queue(n)], rx.datagrams() as f64));
        let help = "datagrams looked at, by receive queue";
        self.counter(families, "karoo_input_datagrams", help, datagrams.collect());
        let drops = DropCause::ALL.iter().map(|&cause| {
            let drops: u64 = self.rx.iter().map(|rx| rx.drops(cause)).sum();
            (vec![("cause", cause.name().to_owned())], drops as f64)
        });
        self.counter(
            families,
            "karoo_input_drops",
            "datagrams not placed",
            drops.collect(),
        );
    }

    /// Time of each lcore and of the GPU, and the age of data when it left.
    fn add_times(&self, families: &mut Vec<MetricFamily>) {
        let reports = self
            .readings
            .times
            .iter()
            .map(|times| times.report(self.readings.clock));
        let seconds = reports.flat_map(|report| {
            let cpu = report.core.map_or(String::new(), |core| core.to_string());
            report.phases.into_iter().map(move |(phase, seconds)| {
                let labels = vec![
                    ("lcore", report.name.clone()),
                    ("cpu", cpu.clone()),
                    ("phase", phase),
                ];
                (labels, seconds)
            })
        });
        let help = "time of each lcore, by what it did";
        self.counter(families, "karoo_lcore_seconds", help, seconds.collect());

        let busy = self.readings.busy.iter().map(|(stage, busy)| {
            (
                vec![("stage", stage.clone())],
                busy.load(Ordering::Relaxed) as f64 * 1e-9,
            )
        });
        let help = "time that a GPU was busy, by what with";
        self.counter(families, "karoo_gpu_busy_seconds", help, busy.collect());
        families.push(self.latency());
    }

    /// How far receive chunks are, and how many chunks are free.
    fn add_chunks(&self, families: &mut Vec<MetricFamily>) {
        let mut gauge = |name: &str, help: &str, samples| {
            families.extend(family(name, help, MetricType::GAUGE, samples));
        };
        let ends = self.input.ends().map(|end| match end {
            Some(end) => Timestamp(end).unix(self.config.clock),
            None => f64::NAN,
        });
        gauge(
            "karoo_input_last_timestamp_seconds",
            "UNIX time of the end of the last heap in receive chunks, by its timestamp",
            by_pol(ends),
        );
        gauge(
            "karoo_receive_chunks",
            "receive chunks",
            plain(self.readings.memory.all_chunks() as u64),
        );
        let free = self.readings.memory.free_chunks() as u64;
        gauge(
            "karoo_receive_chunks_free",
            "receive chunks that nothing is in",
            plain(free),
        );
        let kinds = self.readings.memory.bytes_by_kind().into_iter();
        let bytes = kinds.map(|(kind, bytes)| (vec![("kind", kind.to_string())], bytes as f64));
        let bytes = bytes.collect();
        gauge(
            "karoo_receive_memory_bytes",
            "memory of receive chunks, by kind",
            bytes,
        );
        let chunks = |value: fn(&ExtPool<OutputMemory>) -> usize| {
            let pools = self.readings.pools.iter();
            let chunks =
                pools.map(|(name, pool)| (vec![("stream", name.clone())], value(pool) as f64));
            chunks.collect()
        };
        gauge(
            "karoo_output_chunks_free",
            "output chunks that nothing is in",
            chunks(ExtPool::available),
        );
        gauge(
            "karoo_output_chunks",
            "output chunks",
            chunks(ExtPool::capacity),
        );
    }

    fn latency(&self) -> MetricFamily {
        let metric = |(latency, output): (&Arc<Latency>, &OutputConfig)| {
            let (cumulative, count, sum) = latency.read();
            let bucket = |(bound, count)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                bucket
            };
            let mut histogram = Histogram::default();
            histogram.set_bucket(BOUNDS.into_iter().zip(cumulative).map(bucket).collect());
            histogram.set_sample_count(count);
            histogram.set_sample_sum(sum);
            let mut metric = Metric::default();
            metric.set_label(label_pairs(vec![("stream", output.name.clone())]));
            metric.set_histogram(histogram);
            metric
        };
        let mut family = MetricFamily::default();
        family.set_name("karoo_output_latency_seconds".to_owned());
        family.set_help(
            "age of output chunks that were sent when their last packet left, by timestamps and this host's clock"
                .to_owned(),
        );
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(
            self.readings
                .latencies
                .iter()
                .zip(&self.config.outputs)
                .map(metric)
                .collect(),
        );
        family
    }
}

/// Adds which version runs, of which commit.
fn add_build(families: &mut Vec<MetricFamily>) {
    let labels = vec![
        ("version", KAROO_VERSION.to_owned()),
        ("commit", karoo_commit().to_owned()),
    ];
    families.extend(family(
        "karoo_build_info",
        "version that runs, and the commit of its sources",
        MetricType::GAUGE,
        vec![(labels, 1.0)],
    ));
}

/// Adds the counters of ports, and the state of their links.
pub fn ports(families: &mut Vec<MetricFamily>, started: SystemTime, links: &Links) {
    links.look();
    let label = |port: &Port| vec![("port", port.name().to_owned())];
    let states = links.states();
    let up = states.map(|(port, up, _)| (label(port), f64::from(u8::from(up))));
    let help = "whether the port's link is up";
    families.extend(family(
        "karoo_port_link_up",
        help,
        MetricType::GAUGE,
        up.collect(),
    ));
    let downs = links
        .states()
        .map(|(port, _, downs)| (label(port), downs as f64));
    let help = "how often the port's link went down";
    counter(
        families,
        started,
        "karoo_port_link_downs",
        help,
        downs.collect(),
    );
    let stats: Vec<_> = links
        .states()
        .filter_map(|(port, ..)| Some((port.name(), port.stats().ok()?)))
        .collect();
    let mut add = |name: &str, help: &str, value: fn(&PortStats) -> u64| {
        let of =
            |(port, stats): &(&str, _)| (vec![("port", (*port).to_owned())], value(stats) as f64);
        let samples = stats.iter().map(of).collect();
        counter(
            families,
            started,
            &format!("karoo_port_{name}"),
            help,
            samples,
        );
    };
    add("rx_packets", "packets received", |stats| stats.rx_packets);
    add("rx_bytes", "bytes received", |stats| stats.rx_bytes);
    add(
        "rx_missed",
        "packets dropped because no descriptor was free",
        |stats| stats.rx_missed,
    );
    add("rx_errors", "packets received with errors", |stats| {
        stats.rx_errors
    });
    add(
        "rx_no_mbuf",
        "failures to get a buffer to receive into",
        |stats| stats.rx_no_mbuf,
    );
    add("tx_packets", "packets sent", |stats| stats.tx_packets);
    add("tx_bytes", "bytes sent", |stats| stats.tx_bytes);
    add("tx_errors", "packets that could not be sent", |stats| {
        stats.tx_errors
    });
}

fn counts_by_pol(values: [u64; N_POL]) -> Samples {
    by_pol(values.map(|value| value as f64))
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
