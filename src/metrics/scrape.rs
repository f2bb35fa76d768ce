//! What Prometheus is told, in its text format: what all commands that serve metrics have in
//! common.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ground::N_POL;
use live::Site;
use prometheus::TextEncoder;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// Something that Prometheus can scrape.
pub trait Scrape: Send + Sync + 'static {
    /// The text of a scrape (version 0.0.4 of the format), or why there is none.
    fn scrape(&self) -> Result<String, prometheus::Error>;
}

/// A site of metrics alone.
pub fn site(metrics: Arc<dyn Scrape>) -> Site {
    Site::default().metrics(move || metrics.scrape().map_err(|error| error.to_string()))
}

/// The samples of one metric: labels and value.
pub type Samples = Vec<(Vec<(&'static str, String)>, f64)>;

/// Families as text, with those of this process.
pub fn text(mut families: Vec<MetricFamily>) -> Result<String, prometheus::Error> {
    families.extend(ProcessCollector::for_self().collect());
    TextEncoder::new().encode_to_string(&families)
}

/// Adds a counter, with the time since when it counts.
pub fn counter(
    families: &mut Vec<MetricFamily>,
    started: SystemTime,
    name: &str,
    help: &str,
    samples: Samples,
) {
    let started = started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64();
    let created = samples
        .iter()
        .map(|(labels, _)| (labels.clone(), started))
        .collect();
    let total = format!("{name}_total");
    families.extend(family(&total, help, MetricType::COUNTER, samples));
    families.extend(family(
        &format!("{name}_created"),
        help,
        MetricType::GAUGE,
        created,
    ));
}

/// One sample without labels.
pub fn plain(value: u64) -> Samples {
    vec![(Vec::new(), value as f64)]
}

/// One sample per polarisation.
pub fn by_pol(values: [f64; N_POL]) -> Samples {
    let label = |pol: usize| vec![("pol", pol.to_string())];
    let values = values.into_iter().enumerate();
    values.map(|(pol, value)| (label(pol), value)).collect()
}

/// One metric; none without samples, which the format cannot write.
pub fn family(name: &str, help: &str, kind: MetricType, samples: Samples) -> Option<MetricFamily> {
    let metric = |(labels, value): (Vec<(&'static str, String)>, f64)| {
        let mut metric = Metric::default();
        metric.set_label(label_pairs(labels));
        if kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        metric
    };
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(samples.into_iter().map(metric).collect());
    (!family.get_metric().is_empty()).then_some(family)
}

/// Labels as the format has them.
pub fn label_pairs(labels: Vec<(&'static str, String)>) -> Vec<LabelPair> {
    let pair = |(name, value): (&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    };
    labels.into_iter().map(pair).collect()
}
