//! What a command that runs for long listens to: signals, on one thread; scrapes by Prometheus and
//! browsers on another, so that signals are heard while that waits, as for who reads the log.

use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, process};

use karoo_flow::adapters::Stop;
use live::Site;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::Failure;
use super::frame::StopReason;
use super::log::LogLevel;
use crate::metrics::{Scrape, site};

/// How long a signal waits until what is said of it has been written.
const SAID: Duration = Duration::from_millis(200);
/// The same signal within this time is the same wish: `timeout` sends each twice, to the process
/// and to its group.
const SAME: Duration = Duration::from_millis(100);

/// Sockets that are bound before anything starts, so that a port in use is known at once.
pub struct Sockets {
    metrics: Option<TcpListener>,
}

impl Sockets {
    /// Binds them.
    /// `option` is the one that gives the port.
    pub fn bind(option: &str, port: Option<u16>) -> Result<Self, Failure> {
        let bind = |port| {
            let refused = |error: io::Error| {
                let way_out = way_out(error.kind());
                Failure::usage(format!("{option} {port}: {error}; {way_out}"))
            };
            live::bind_all(port).map_err(refused)
        };
        let metrics = port.map(bind).transpose()?;
        Ok(Self { metrics })
    }
}

/// What can be done about a port that cannot be had for this reason.
fn way_out(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "give one from 1024 on, which takes no rights",
        _ => "give another, or end what listens there",
    }
}

/// The threads at work.
pub struct Serving {
    ends: (SyncSender<StopReason>, Receiver<StopReason>),
    site: Option<oneshot::Sender<Site>>,
    told: Stop,
    /// Set once a signal ends the process.
    over: Arc<AtomicBool>,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Serving {
    /// Listens to signals from now on, and for scrapes and viewers once there is something to
    /// [`scrape`](Self::scrape) or to [`show`](Self::show). The threads are on the CPUs of the
    /// caller.
    pub fn start(sockets: Sockets, level: LogLevel) -> Result<Self, Failure> {
        let (sender, receiver) = sync_channel(8);
        let (site, shown) = oneshot::channel();
        let told = Stop::new();
        let runtime = runtime()?;
        let signals = {
            let _guard = runtime.enter();
            Signals::listen().map_err(Failure::data)?
        };
        let over = Arc::new(AtomicBool::new(false));
        let signals = signals.handle(sender.clone(), level, told.clone(), over.clone());
        // It stays as long as the process: what it listens to has no other effect any more.
        thread("signals", move || runtime.block_on(signals))?;
        let serving = |listener| -> Result<_, Failure> {
            let (runtime, ends) = (self::runtime()?, sender.clone());
            let (stop, stopped) = oneshot::channel();
            let served = async {
                if let Ok(site) = shown.await {
                    serve(listener, site, ends).await;
                }
            };
            let work = async {
                tokio::select! {
                    () = served => {}
                    _ = stopped => {}
                }
            };
            let server = thread("serve", move || runtime.block_on(work))?;
            Ok((stop, server))
        };
        let server = sockets.metrics.map(serving).transpose()?;
        Ok(Self {
            ends: (sender, receiver),
            site: Some(site),
            told,
            over,
            server,
        })
    }

    /// Lets `metrics` be scraped from now on.
    pub fn scrape(&mut self, metrics: Arc<dyn Scrape>) {
        self.show(site(metrics));
    }

    /// Lets a site be seen from now on.
    pub fn show(&mut self, site: Site) {
        if let Some(waiting) = self.site.take() {
            let _ = waiting.send(site);
        }
    }

    /// Reason for which the command is to end, if there is one by now.
    pub fn told_to_end(&self) -> Option<StopReason> {
        self.ends.1.try_recv().ok()
    }

    /// Set by the first signal, for those who wait where nobody looks for reasons.
    pub fn told(&self) -> &Stop {
        &self.told
    }

    /// Sender of reasons to end, for other threads.
    pub(super) fn reasons_sender(&self) -> SyncSender<StopReason> {
        self.ends.0.clone()
    }

    /// Receiver of the reasons to end, for the main thread.
    pub(super) fn reasons_receiver(&self) -> &Receiver<StopReason> {
        &self.ends.1
    }

    /// Ends it; a signal then ends the process.
    pub fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some((stop, server)) = self.server {
            let _ = stop.send(());
            if server.join().is_err() {
                tracing::error!("the thread that serves metrics panicked");
            }
        }
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().map_err(Failure::data)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(Failure::data)
}

/// The signals that mean something.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Of a terminal that is closed; `None` where whoever started this has it ignored, as nohup
    /// does.
    hangup: Option<Signal>,
    user2: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match ground::os::ignores_hangup() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// The first SIGINT, SIGTERM or SIGHUP asks for the end, the second is the end; SIGUSR2 changes
    /// the log level to debug and back. Once it is `over`, the first is the end. Never returns.
    async fn handle(
        mut self,
        ends: SyncSender<StopReason>,
        level: LogLevel,
        told: Stop,
        over: Arc<AtomicBool>,
    ) {
        let mut on = false;
        let mut heard: Option<(&str, Instant)> = None;
        loop {
            let (name, code) = tokio::select! {
                () = received(&mut self.hangup) => ("SIGHUP", 129),
                _ = self.interrupt.recv() => ("SIGINT", 130),
                _ = self.terminate.recv() => ("SIGTERM", 143),
                _ = self.user2.recv() => {
                    on = !on;
                    level.debug(on);
                    say(move || tracing::info!(on, "debug messages"));
                    continue;
                }
            };
            match heard {
                Some((first, time)) if is_same((first, name), time.elapsed()) => continue,
                Some(_) => {
                    say(move || tracing::warn!(signal = name, "the second signal: ending at once"));
                    process::exit(code);
                }
                None if over.load(Ordering::Relaxed) => process::exit(code),
                None => heard = Some((name, Instant::now())),
            }
            // The reason first: who ends as it is told finds it.
            let _ = ends.try_send(StopReason::Signal(name));
            told.set();
        }
    }
}

/// Whether the second of two signals, so long after the first, is the same wish once more.
fn is_same((first, second): (&str, &str), since: Duration) -> bool {
    first == second && since < SAME
}

/// Says something of a signal on a thread of its own, and does not wait for it for long: where
/// standard error takes nothing, as of a terminal that is paused, signals are heard all the same.
fn say(text: impl FnOnce() + Send + 'static) {
    let (sender, said) = sync_channel(1);
    let work = move || {
        text();
        let _ = sender.send(());
    };
    if thread::Builder::new().spawn(work).is_ok() {
        let _ = said.recv_timeout(SAID);
    }
}

/// Waits for the signal; for ever if there is none.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

async fn serve(listener: TcpListener, site: Site, ends: SyncSender<StopReason>) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "metrics can be scraped");
    }
    if let Err(error) = site.serve(listener).await {
        tracing::error!(%error, "metrics");
        let _ = ends.try_send(StopReason::Failed("the server of metrics".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_takes_rights_is_told_from_one_in_use() {
        assert!(way_out(io::ErrorKind::PermissionDenied).contains("from 1024 on"));
        assert!(way_out(io::ErrorKind::AddrInUse).contains("end what listens there"));
    }

    #[test]
    fn a_signal_that_comes_twice_at_once_is_one_wish() {
        let ms = Duration::from_millis;
        assert!(is_same(("SIGTERM", "SIGTERM"), ms(1)));
        // As when somebody presses Ctrl-C once more.
        assert!(!is_same(("SIGINT", "SIGINT"), ms(150)));
        assert!(!is_same(("SIGINT", "SIGTERM"), ms(1)));
    }
}
