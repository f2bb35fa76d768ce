//! A run as its page sees it, from before its begin on.

use std::sync::{Arc, Mutex, OnceLock};

use karoo_flow::run::{Handle, Moment, Shape};
use katcp::reading::unix_now;
use live::Site;
use prometheus::TextEncoder;
use prometheus::proto::MetricType;

use super::page::FlowPage;
use crate::metrics::scrape::family;

/// A peer that is waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// The port of the graph, or the option, that waits.
    pub port: String,
    /// The same and what it waits for, as a sentence.
    pub text: String,
    /// UNIX time of its begin.
    pub since: f64,
}

/// A run: what it waits for, and a hold on it once it begins. Clones are of one run.
#[derive(Clone, Default)]
pub struct RunWatch {
    handle: Arc<OnceLock<Handle>>,
    waits: Arc<Mutex<Vec<Wait>>>,
}

/// Keeps a wait among those of its run until it is dropped.
pub struct Waiting {
    wait: Wait,
    run: RunWatch,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits = ground::lock(&self.run.waits);
        if let Some(at) = waits.iter().position(|wait| *wait == self.wait) {
            waits.remove(at);
        }
    }
}

impl RunWatch {
    /// The run begins.
    pub fn begin(&self, handle: Handle) {
        let _ = self.handle.set(handle);
    }

    /// A hold on the run, if it has begun.
    pub fn handle(&self) -> Option<&Handle> {
        self.handle.get()
    }

    /// A port or an option waits from now on, as the text says.
    #[must_use]
    pub fn wait(&self, port: &str, text: &str) -> Waiting {
        let wait = Wait {
            port: port.to_owned(),
            text: text.to_owned(),
            since: unix_now(),
        };
        ground::lock(&self.waits).push(wait.clone());
        let run = self.clone();
        Waiting { wait, run }
    }

    /// What is waited for now.
    pub fn waits(&self) -> Vec<Wait> {
        ground::lock(&self.waits).clone()
    }

    /// The run at this moment; nothing is done before its begin.
    pub fn moment(&self) -> Moment {
        self.handle().map(Handle::moment).unwrap_or_default()
    }

    /// A site of the page of a run with this name and shape, and of its counts for Prometheus.
    pub fn site(&self, name: &str, shape: Shape) -> Site {
        let run = self.clone();
        let metrics = move || run.to_prometheus().map_err(|error| error.to_string());
        let page = FlowPage::new(name, shape, self.clone());
        Site::default().metrics(metrics).source(page)
    }

    fn to_prometheus(&self) -> Result<String, prometheus::Error> {
        let waits = self.waits().into_iter();
        let waits = waits.map(|wait| (vec![("port", wait.port)], 1.0));
        let what = "Whether a port waits for its peer.";
        let families = family(
            "flow_waiting_for_peer",
            what,
            MetricType::GAUGE,
            waits.collect(),
        );
        let waits = TextEncoder::new().encode_to_string(families.as_slice())?;
        Ok(self.moment().telemetry.to_prometheus() + &waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_told_until_the_peer_has_come() {
        let run = RunWatch::default();
        let first = run.wait("x", "x waits for a reader");
        let second = run.wait("y", "y waits for a reader");
        let told = run.to_prometheus().unwrap();
        assert!(
            told.contains("flow_waiting_for_peer{port=\"x\"} 1"),
            "{told}"
        );
        drop(first);
        let left: Vec<String> = run.waits().into_iter().map(|wait| wait.port).collect();
        assert_eq!(left, ["y"]);
        drop(second);
        let told = run.to_prometheus().unwrap();
        assert!(!told.contains("flow_waiting_for_peer"), "{told}");
    }
}
