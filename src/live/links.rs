//! Links of ports: whether they are up, and how often they went down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dpdk::Port;

/// Ports under watch; a cheap handle.
#[derive(Clone, Debug)]
pub struct Links(Arc<[Watched]>);

/// One of them.
#[derive(Debug)]
struct Watched {
    port: Port,
    up: AtomicBool,
    downs: AtomicU64,
}

impl Links {
    /// Watches ports, which are taken to be up.
    pub fn new(ports: impl IntoIterator<Item = Port>) -> Self {
        let watched = ports.into_iter().map(|port| Watched {
            port,
            up: AtomicBool::new(true),
            downs: AtomicU64::new(0),
        });
        Self(watched.collect())
    }

    /// Looks at all of them, and logs what has changed. To be called now and then, by any thread.
    pub fn look(&self) {
        for watched in self.0.iter() {
            // Drivers that cannot tell are believed to be up.
            let up = watched.port.link().map_or(true, |link| link.up);
            let was = watched.up.swap(up, Ordering::Relaxed);
            let port = watched.port.name();
            match (was, up) {
                (true, false) => {
                    watched.downs.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(port, "link is down: packets are lost until it is up again");
                }
                (false, true) => tracing::info!(port, "link is up again"),
                _ => {}
            }
        }
    }

    /// Each port, whether it was up when it was looked at, and how often it went down.
    pub fn states(&self) -> impl Iterator<Item = (&Port, bool, u64)> {
        let state = |watched: &'_ Watched| {
            let up = watched.up.load(Ordering::Relaxed);
            (up, watched.downs.load(Ordering::Relaxed))
        };
        self.0.iter().map(move |watched| {
            let (up, downs) = state(watched);
            (&watched.port, up, downs)
        })
    }
}
