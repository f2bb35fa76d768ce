//! Links of ports: whether they are up, and how often they went down.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dpdk::Port;

use super::interface::Interface;

/// Ports under watch; a cheap handle.
#[derive(Clone, Debug)]
pub struct Links {
    watched: Arc<[Watched]>,
    /// Whether what changes is logged.
    says: bool,
}

/// One of them.
#[derive(Debug)]
struct Watched {
    port: Port,
    /// Where the kernel tells of its interface: DPDK's AF_PACKET driver takes every link to be up.
    folder: Option<String>,
    /// What the kernel had counted at the start.
    before: u64,
    up: AtomicBool,
    downs: AtomicU64,
}

impl Watched {
    /// Whether it is up, and how often it went down as far as anybody counts.
    fn look(&self) -> (bool, Option<u64>) {
        let Some(folder) = &self.folder else {
            // Drivers that cannot tell are believed to be up.
            return (self.port.link().map_or(true, |link| link.up), None);
        };
        // Without a carrier to speak of, as when it is shut, there is nothing to read.
        (
            number(folder, "carrier") == Some(1),
            number(folder, "carrier_down_count"),
        )
    }
}

fn number(folder: &str, file: &str) -> Option<u64> {
    fs::read_to_string(format!("{folder}/{file}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

impl Links {
    /// Watches ports without interfaces, such as rings, of which nothing is logged.
    pub fn without_interfaces(ports: impl IntoIterator<Item = Port>) -> Self {
        let watched = ports.into_iter().map(|port| Watched {
            port,
            folder: None,
            before: 0,
            up: AtomicBool::new(true),
            downs: AtomicU64::new(0),
        });
        Self {
            watched: watched.collect(),
            says: false,
        }
    }

    /// Watches ports and their interfaces, which are taken to be up.
    pub fn new<'a>(ports: impl IntoIterator<Item = (Port, &'a Interface)>) -> Self {
        let watched = ports.into_iter().map(|(port, interface)| {
            let of_kernel = interface.driver.leaves_to_kernel();
            let folder = of_kernel.then(|| format!("/sys/class/net/{}", interface.name));
            let count = |folder: &String| number(folder, "carrier_down_count");
            Watched {
                before: folder.as_ref().and_then(count).unwrap_or(0),
                port,
                folder,
                up: AtomicBool::new(true),
                downs: AtomicU64::new(0),
            }
        });
        Self {
            watched: watched.collect(),
            says: true,
        }
    }

    /// The same, where others say what changes.
    #[must_use]
    pub fn silent(self) -> Self {
        Self {
            says: false,
            ..self
        }
    }

    /// Looks at all of them, and logs what has changed, unless others do. Tells each port as well:
    /// without a link it holds up nobody. To be called now and then, by any thread.
    pub fn look(&self) {
        for watched in self.watched.iter() {
            let (up, counted) = watched.look();
            let was = watched.up.swap(up, Ordering::Relaxed);
            watched.port.note_link(up);
            let downs = watched.downs.load(Ordering::Relaxed);
            let counted = match counted {
                Some(counted) => counted.saturating_sub(watched.before),
                None => downs + u64::from(was && !up),
            };
            let before = watched.downs.fetch_max(counted, Ordering::Relaxed);
            let port = watched.port.name();
            match (was, up) {
                _ if !self.says => {}
                (true, false) => {
                    tracing::warn!(port, "link is down: packets are lost until it is up again");
                }
                (false, true) => tracing::info!(port, "link is up again"),
                (true, true) if counted > before => {
                    tracing::warn!(port, "link was down for a moment");
                }
                _ => {}
            }
        }
    }

    /// Each port, whether it was up when it was looked at, and how often it went down.
    pub fn states(&self) -> impl Iterator<Item = (&Port, bool, u64)> {
        self.watched.iter().map(|watched| {
            let up = watched.up.load(Ordering::Relaxed);
            (&watched.port, up, watched.downs.load(Ordering::Relaxed))
        })
    }
}
