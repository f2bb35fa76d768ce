//! The thread on which a KATCP server runs.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::oneshot;

use super::host::TimeSensors;
use super::katcp::{BindError, Device, Ended, Limits, Sensors, Server};

/// Control cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The host gives no thread, or what it needs to wait for sockets.
    #[error("the control thread cannot start: {0}; the host lacks threads or file descriptors")]
    Thread(#[from] io::Error),
}

/// A KATCP server at work. It ends when it is dropped.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Serves `device` at `address`, while `work` sets its `sensors`; port 0 takes a free one. `on_halt` is called once if
    /// a client says `?halt`, when all clients have been told.
    ///
    /// The thread inherits the caller's CPU affinity: call it from a housekeeping core.
    pub fn start<D: Device>(
        address: SocketAddr,
        device: Arc<D>,
        sensors: Sensors,
        limits: Limits,
        work: impl Future<Output = ()> + Send + 'static,
        on_halt: impl FnOnce() + Send + 'static,
    ) -> Result<Self, ControlError> {
        make_room(limits.clients);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let server = {
            let _guard = runtime.enter();
            Server::bind(address, device, sensors.clone(), limits)?
        };
        let address = server.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || {
            let ended = runtime.block_on(async {
                let work = tokio::spawn(work);
                let time = tokio::spawn(TimeSensors::add(&sensors).run());
                // An owner that is gone wants it to stop as well.
                let ended = server.run(async { _ = stopped.await }).await;
                work.abort();
                time.abort();
                ended
            });
            if ended == Ended::Halted {
                on_halt();
            }
        })?;
        tracing::info!(%address, "KATCP server listens");
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells all clients, disconnects them, and ends; within about a second.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Gone if a client said ?halt.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }
}

/// Raises the limit of file descriptors so that clients leave some for everything else, if the host lets it.
fn make_room(clients: usize) {
    const OTHERS: u64 = 1024;
    let wanted = clients as u64 + OTHERS;
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft >= wanted {
            return Ok(soft);
        }
        let soft = wanted.min(hard);
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map(|()| soft)
    });
    if !raised.is_ok_and(|limit| limit >= wanted) {
        tracing::warn!(
            wanted,
            "file descriptors may run out when there are many clients: raise the limit (ulimit -n)"
        );
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.end();
    }
}
