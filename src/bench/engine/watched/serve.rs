//! Metrics and live pages of the engines, each on a thread of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use katcp::reading::unix_now;
use live::{Site, TICK};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::interval;

use crate::losses::{Counters, LossRecord, Moment, Watch, WatchedEngine};
use crate::metrics::{EngineMetrics, site};
use crate::page::{EnginePage, EnginePageParts};

/// What is shown of one engine.
pub struct ShownEngine {
    /// What is scraped.
    pub metrics: EngineMetrics,
    /// What its page is made of.
    pub parts: EnginePageParts,
    /// The same counters as the page's, for who watches for losses.
    pub counters: Counters,
}

/// The servers at work.
pub struct Servers {
    addresses: Vec<SocketAddr>,
    running: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Servers {
    /// Starts one for each engine, on ports of the loopback interface that are free. Their threads
    /// have the CPUs of the caller.
    pub fn start(engines: Vec<ShownEngine>) -> io::Result<Self> {
        let mut servers = Self {
            addresses: Vec::new(),
            running: Vec::new(),
        };
        for engine in engines {
            let listener = live::bind((Ipv4Addr::LOCALHOST, 0).into())?;
            servers.addresses.push(listener.local_addr()?);
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let (stop, stopped) = oneshot::channel();
            let serve = move || runtime.block_on(serve(engine, listener, stopped));
            let thread = thread::Builder::new()
                .name("serve".to_owned())
                .spawn(serve)?;
            servers.running.push((stop, thread));
        }
        Ok(servers)
    }

    /// Where each engine is shown.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends them.
    pub fn stop(self) {
        for (stop, thread) in self.running {
            // One that has ended already has said why.
            let _ = stop.send(());
            if thread.join().is_err() {
                tracing::error!("a thread that serves a page panicked");
            }
        }
    }
}

async fn serve(engine: ShownEngine, listener: TcpListener, stopped: oneshot::Receiver<()>) {
    let record = engine.parts.seen.losses.clone();
    let watched = WatchedEngine {
        recv: engine.parts.config.recv.clone(),
        clock: engine.parts.config.clock,
        source: String::new(),
        // Generators are not waited for, and their time is none.
        interfaces: Vec::new(),
    };
    let page = EnginePage::new(engine.parts);
    let site: Site = site(Arc::new(engine.metrics)).source(page);
    tokio::select! {
        served = site.serve(listener) => {
            if let Err(error) = served {
                tracing::error!(%error, "a page");
            }
        }
        () = watch(engine.counters, watched, record) => {}
        _ = stopped => {}
    }
}

/// Watches for losses as a live engine does. Never returns.
async fn watch(counters: Counters, watched: WatchedEngine, record: Arc<LossRecord>) {
    let mut watch = Watch::new(watched, Instant::now(), counters.read());
    let mut ticks = interval(TICK);
    loop {
        ticks.tick().await;
        let moment = Moment {
            at: Instant::now(),
            unix: unix_now(),
        };
        let events = watch.look(moment, counters.read());
        record.update(moment.unix, watch.active(), &events);
        record.note_unexplained(watch.unexplained());
    }
}
