//! The thread on which a KATCP server runs.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use katcp::{BindError, Device, ReservedAddress, Sensors, Server, ServerEnd, ServerLimits};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::oneshot;

use super::host::TimeSensors;

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

/// Why control wants the engine to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlEnd {
    /// A client said `?halt`.
    Halt,
    /// A part of control panicked: clients are disconnected, or would see sensors that stand still.
    Failed,
}

/// A KATCP server at work. It ends when it is dropped.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Serves `device` at `address`, while `work` sets its `sensors`. `on_end` is called at most
    /// once, when no client is left: not if its owner stops it.
    ///
    /// The thread inherits the caller's CPU affinity: call it from a housekeeping core.
    pub fn start<D: Device>(
        address: ReservedAddress,
        device: Arc<D>,
        sensors: Sensors,
        limits: ServerLimits,
        work: impl Future<Output = ()> + Send + 'static,
        on_end: impl FnOnce(ControlEnd) + Send + 'static,
    ) -> Result<Self, ControlError> {
        make_room(limits.clients);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let server = {
            let _guard = runtime.enter();
            Server::listen(address, device, sensors.clone(), limits)?
        };
        let address = server.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(move || {
            let serve = async {
                let mut work = tokio::spawn(work);
                let mut time = tokio::spawn(TimeSensors::add(&sensors).run());
                // An owner that is gone wants it to stop as well.
                let served = server.run(async { _ = stopped.await });
                tokio::select! {
                    ended = served => (ended == ServerEnd::Halted).then_some(ControlEnd::Halt),
                    Err(_) = &mut work => Some(ControlEnd::Failed),
                    Err(_) = &mut time => Some(ControlEnd::Failed),
                }
            };
            // Nothing of it is looked at after a panic.
            let end = catch_unwind(AssertUnwindSafe(|| runtime.block_on(serve)));
            if let Some(end) = end.unwrap_or(Some(ControlEnd::Failed)) {
                on_end(end);
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

/// Raises the limit of file descriptors so that clients leave some for everything else, if the host
/// lets it.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use katcp::{Message, Refusal, RequestHelp, Response};

    struct Nothing;

    impl Device for Nothing {
        fn version(&self) -> &str {
            "nothing-1.0"
        }

        fn build(&self) -> &str {
            "nothing-1"
        }

        fn requests(&self) -> &'static [RequestHelp] {
            &[]
        }

        fn handle(&self, _: &Message<'_>, _: &mut Response) -> Result<(), Refusal> {
            Ok(())
        }
    }

    fn start(
        work: impl Future<Output = ()> + Send + 'static,
    ) -> (Control, impl Fn() -> Option<ControlEnd>) {
        let (ends, ended) = channel();
        let any = ReservedAddress::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let on_end = move |end| ends.send(end).expect("a test that waits");
        let (sensors, limits) = (Sensors::default(), ServerLimits::default());
        let control = Control::start(any, Arc::new(Nothing), sensors, limits, work, on_end);
        (control.expect("it listens"), move || ended.recv().ok())
    }

    #[test]
    fn work_that_panics_is_the_end() {
        let (control, ended) = start(async { panic!("a test's panic") });
        assert_eq!(ended(), Some(ControlEnd::Failed));
        control.stop();
    }

    /// Work that is done is none, and an owner knows that it stopped control.
    #[test]
    fn an_owner_is_not_told_of_its_own_stop() {
        let (control, ended) = start(async {});
        control.stop();
        assert_eq!(ended(), None);
    }
}
