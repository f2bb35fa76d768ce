//! Who looks: pages that are open, and scrapes, over HTTP.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ground::StopFlag;
use ground::os::run_on;
use schemars::JsonSchema;
use serde::Serialize;

/// How long a connection and a scrape may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a scrape, at most.
const SCRAPE: u64 = 64 << 20;
/// How soon one that waits for its next scrape heeds that it is to end.
const HEED: Duration = Duration::from_millis(100);

/// What viewers and scrapers got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LookCounts {
    /// Documents that came to open pages.
    pub documents: u64,
    /// Scrapes that were answered.
    pub scrapes: u64,
    /// Bytes of all that came.
    pub bytes: u64,
    /// Connections that were refused or broke.
    pub failed: u64,
    /// Longest time from a scrape's beginning to its last byte, in seconds.
    pub slowest_scrape: f64,
}

impl LookCounts {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.documents += other.documents;
        self.scrapes += other.scrapes;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.slowest_scrape = self.slowest_scrape.max(other.slowest_scrape);
    }
}

/// Threads that look, until they are closed or dropped.
pub struct Clients {
    stop: StopFlag,
    /// Viewers that have had a document, or never will.
    settled: Arc<AtomicUsize>,
    viewers: usize,
    threads: Vec<JoinHandle<LookCounts>>,
}

impl Clients {
    /// Opens so many pages at each address, and begins to scrape each so many times a second, on
    /// these CPUs if there are any.
    pub fn open(
        addresses: &[SocketAddr],
        viewers: usize,
        scrapes: f64,
        cpus: &[usize],
    ) -> std::io::Result<Self> {
        let mut clients = Self {
            stop: StopFlag::default(),
            settled: Arc::default(),
            viewers: viewers * addresses.len(),
            threads: Vec::new(),
        };
        for &address in addresses {
            for _ in 0..viewers {
                let (stop, settled) = (clients.stop.clone(), clients.settled.clone());
                clients.spawn(cpus, move || view(address, &stop, &settled))?;
            }
            if scrapes > 0.0 {
                let (stop, every) = (clients.stop.clone(), Duration::from_secs_f64(1.0 / scrapes));
                clients.spawn(cpus, move || scrape(address, every, &stop))?;
            }
        }
        Ok(clients)
    }

    fn spawn(
        &mut self,
        cpus: &[usize],
        look: impl FnOnce() -> LookCounts + Send + 'static,
    ) -> std::io::Result<()> {
        let cpus = cpus.to_vec();
        let look = move || {
            if !cpus.is_empty()
                && let Err(error) = run_on(cpus)
            {
                tracing::debug!(%error, "who looks has the main thread's CPU");
            }
            look()
        };
        let thread = thread::Builder::new().name("looks".to_owned());
        self.threads.push(thread.spawn(look)?);
        Ok(())
    }

    /// Whether every page is open, or has failed to.
    pub fn are_open(&self) -> bool {
        self.settled.load(Ordering::Relaxed) >= self.viewers
    }

    /// Closes all, within the time between two documents. Returns what they got.
    pub fn close(mut self) -> LookCounts {
        self.stop.set();
        let mut counts = LookCounts::default();
        for thread in self.threads.drain(..) {
            counts.add(&thread.join().unwrap_or(LookCounts {
                failed: 1,
                ..LookCounts::default()
            }));
        }
        counts
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// Takes documents in until it is told to stop.
fn view(address: SocketAddr, stop: &StopFlag, settled: &AtomicUsize) -> LookCounts {
    let mut counts = LookCounts::default();
    let outcome = take_documents(address, stop, settled, &mut counts);
    if let Err(error) = outcome {
        tracing::warn!(%error, "a page");
        counts.failed += 1;
    }
    if counts.documents == 0 {
        settled.fetch_add(1, Ordering::Relaxed);
    }
    counts
}

fn take_documents(
    address: SocketAddr,
    stop: &StopFlag,
    settled: &AtomicUsize,
    counts: &mut LookCounts,
) -> Result<(), ureq::Error> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .proxy(None)
        .build()
        .into();
    let events = agent.get(format!("http://{address}/events")).call()?;
    let mut lines = BufReader::new(events.into_body().into_reader());
    let mut line = Vec::new();
    while !stop.is_set() {
        line.clear();
        let bytes = lines.read_until(b'\n', &mut line)?;
        if bytes == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        counts.bytes += bytes as u64;
        if line.starts_with(b"data: ") {
            if counts.documents == 0 {
                settled.fetch_add(1, Ordering::Relaxed);
            }
            counts.documents += 1;
        }
    }
    Ok(())
}

/// Scrapes at even times until it is told to stop.
fn scrape(address: SocketAddr, every: Duration, stop: &StopFlag) -> LookCounts {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .proxy(None)
        .build()
        .into();
    let url = format!("http://{address}/metrics");
    let get = || {
        let mut answer = agent.get(&url).call()?;
        let body = answer.body_mut().with_config().limit(SCRAPE);
        body.read_to_vec()
    };
    let mut counts = LookCounts::default();
    let mut due = Instant::now();
    while !stop.is_set() {
        let begun = Instant::now();
        match get() {
            Ok(text) => {
                counts.scrapes += 1;
                counts.bytes += text.len() as u64;
                let took = begun.elapsed().as_secs_f64();
                counts.slowest_scrape = counts.slowest_scrape.max(took);
            }
            Err(error) => {
                tracing::warn!(%error, "a scrape");
                counts.failed += 1;
            }
        }
        // One that is late does not make the next ones hurry.
        due = (due + every).max(Instant::now());
        while !stop.is_set() && Instant::now() < due {
            thread::sleep(due.saturating_duration_since(Instant::now()).min(HEED));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// One that scrapes each fortnight.
    #[test]
    fn who_waits_for_the_next_scrape_ends_when_told_to() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let clients = Clients::open(&[address], 0, 1e-6, &[]).unwrap();
        // It has begun, and is turned away.
        drop(listener.accept().unwrap());
        let counts = clients.close();
        assert_eq!((counts.scrapes, counts.failed), (0, 1));
    }
}
