//! What a command that runs for long listens to: signals, and scrapes by Prometheus. All of it on
//! one thread.

use std::collections::VecDeque;
use std::future::pending;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fs, io, process};

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Socket, Type};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Failure;
use super::frame::StopReason;
use super::log::LogLevel;
use crate::metrics::Scrape;

/// Content type of a scrape.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Connections for scrapes at the same time: the oldest makes room for the next.
const CONNECTIONS: usize = 16;
/// How long each has, from the connection to the last byte that it reads.
const SCRAPE: Duration = Duration::from_secs(10);
/// Bytes of a request, at most.
const REQUEST: usize = 16 << 10;

/// Sockets that are bound before anything starts, so that a port in use is known at once.
pub struct Sockets {
    metrics: Option<TcpListener>,
}

impl Sockets {
    /// Binds them.
    pub fn bind(prometheus_port: Option<u16>) -> Result<Self, Failure> {
        let bind = |port| {
            let refused = |error| {
                Failure::usage(format!(
                    "--prometheus-port {port}: {error}; give another, or end what listens there"
                ))
            };
            // All addresses, of IPv6 too if this host has it, whatever its net.ipv6.bindv6only.
            let listener = match listen_on_both(port) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind(("0.0.0.0", port))
                }
                result => result,
            };
            let listener = listener.map_err(refused)?;
            listener.set_nonblocking(true).map_err(Failure::data)?;
            Ok(listener)
        };
        let metrics = prometheus_port.map(bind).transpose()?;
        Ok(Self { metrics })
    }
}

fn listen_on_both(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(false)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

/// The thread at work.
pub struct Serving {
    ends: (SyncSender<StopReason>, Receiver<StopReason>),
    metrics: Option<oneshot::Sender<Arc<dyn Scrape>>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Serving {
    /// Listens to signals from now on, and for scrapes once there is something to
    /// [`scrape`](Self::scrape). The thread is on the CPUs of the caller.
    pub fn start(sockets: Sockets, level: LogLevel) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::data)?;
        let (sender, receiver) = sync_channel(8);
        let (stop, stopped) = oneshot::channel();
        let (metrics, scraped) = oneshot::channel();
        let signals = {
            let _guard = runtime.enter();
            Signals::listen().map_err(Failure::data)?
        };
        let ends = sender.clone();
        let work = move || {
            runtime.block_on(async {
                if let Some(listener) = sockets.metrics {
                    let ends = ends.clone();
                    tokio::spawn(async {
                        if let Ok(metrics) = scraped.await {
                            serve(listener, metrics, ends).await;
                        }
                    });
                }
                tokio::select! {
                    () = signals.handle(ends, level) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new()
            .name("serve".to_owned())
            .spawn(work)
            .map_err(Failure::data)?;
        Ok(Self {
            ends: (sender, receiver),
            metrics: Some(metrics),
            stop,
            thread,
        })
    }

    /// Lets `metrics` be scraped from now on.
    pub fn scrape(&mut self, metrics: Arc<dyn Scrape>) {
        if let Some(waiting) = self.metrics.take() {
            let _ = waiting.send(metrics);
        }
    }

    /// Reason for which the command is to end, if there is one by now.
    pub fn told_to_end(&self) -> Option<StopReason> {
        self.ends.1.try_recv().ok()
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
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!("the thread that serves metrics panicked");
        }
    }
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
            hangup: match ignores_hangup() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// The first SIGINT, SIGTERM or SIGHUP asks for the end, the second is the end; SIGUSR2 changes
    /// the log level to debug and back. Never returns.
    async fn handle(mut self, ends: SyncSender<StopReason>, level: LogLevel) {
        let (mut told, mut on) = (false, false);
        loop {
            let (name, code) = tokio::select! {
                () = received(&mut self.hangup) => ("SIGHUP", 129),
                _ = self.interrupt.recv() => ("SIGINT", 130),
                _ = self.terminate.recv() => ("SIGTERM", 143),
                _ = self.user2.recv() => {
                    on = !on;
                    level.debug(on);
                    tracing::info!(on, "debug messages");
                    continue;
                }
            };
            if told {
                tracing::warn!(signal = name, "the second signal: ending at once");
                process::exit(code);
            }
            told = true;
            let _ = ends.try_send(StopReason::Signal(name));
        }
    }
}

/// Whether SIGHUP is ignored: what a process inherits, until it listens itself.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

/// Waits for the signal; for ever if there is none.
async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => pending().await,
    }
}

async fn serve(listener: TcpListener, metrics: Arc<dyn Scrape>, ends: SyncSender<StopReason>) {
    let scrape = move || async move { response(&*metrics) };
    let router = Router::new()
        .route("/", get(scrape.clone()))
        .route("/metrics", get(scrape));
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "metrics");
            let _ = ends.try_send(StopReason::Failed("the server of metrics".to_owned()));
            return;
        }
    };
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "metrics can be scraped");
    }
    let mut open = VecDeque::with_capacity(CONNECTIONS);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, as a rule: connections that end give theirs back.
                tracing::warn!(%error, "no scrape can connect");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        open.retain(|connection: &AbortHandle| !connection.is_finished());
        if open.len() == CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .keep_alive(false)
            .max_buf_size(REQUEST)
            .serve_connection(TokioIo::new(stream), service);
        let connection = async { timeout(SCRAPE, connection).await };
        open.push_back(tokio::spawn(connection).abort_handle());
    }
}

fn response(metrics: &dyn Scrape) -> Response {
    match metrics.scrape() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
