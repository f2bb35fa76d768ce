//! A server on a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::device::Device;
use crate::limits::ServerLimits;
use crate::sensor::Sensors;
use crate::server::{BindError, ReservedAddress, Server, ServerEnd};

/// A server thread cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerThreadError {
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system gives no thread, or no means to wait for sockets.
    #[error(
        "the KATCP server's thread cannot start: {0}; the host lacks threads or file descriptors"
    )]
    Thread(#[from] io::Error),
}

/// A KATCP server on a thread of its own, for programs that do not use tokio.
///
/// The server ends when a client asks for `?halt`, and when the `ServerThread` is dropped. In both
/// cases clients get `#disconnect`, and have [`ServerLimits::farewell`] to read it.
///
/// ```
/// use katcp::{Client, Sensors, ServerThread, SimpleDevice};
///
/// let device = SimpleDevice::new("dish-1.0", "dish-1.0.0");
/// let server = ServerThread::start(([127, 0, 0, 1], 0).into(), device, Sensors::default())?;
///
/// let mut client = Client::connect(server.address())?;
/// client.request("watchdog", &[])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ServerThread {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<ServerEnd>>,
}

impl ServerThread {
    /// Starts a server on an address of this host, with the default limits. Clients can connect as
    /// soon as this function returns. Port 0 stands for a free port of the system's choice.
    pub fn start(
        address: SocketAddr,
        device: impl Device,
        sensors: Sensors,
    ) -> Result<Self, ServerThreadError> {
        let address = ReservedAddress::bind(address)?;
        Self::start_with(address, device, sensors, ServerLimits::default())
    }

    /// Starts a server on an address that was reserved before, with limits of one's own.
    pub fn start_with(
        address: ReservedAddress,
        device: impl Device,
        sensors: Sensors,
        limits: ServerLimits,
    ) -> Result<Self, ServerThreadError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let server = {
            let _guard = runtime.enter();
            Server::listen(address, Arc::new(device), sensors, limits)?
        };
        let address = server.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("katcp".to_owned());
        // A sender that is dropped is a stop as well.
        let serve = move || runtime.block_on(server.run(async { _ = stopped.await }));
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread.spawn(serve)?),
        })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until a client asks for `?halt` and all clients are disconnected.
    ///
    /// Passes on a panic of the server's thread. A device that panics is none: the server only
    /// disconnects the client of the request.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            resume_unwind(panic);
        }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The panic, if there was one, has been printed.
            let _ = thread.join();
        }
    }
}
