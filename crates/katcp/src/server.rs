//! The server: connections, and the limits of what they cost.
//!
//! Each client has a task, which reads the client's requests, has them answered one after the
//! other, and writes the lines that wait for the client. A client that sends or reads too slowly,
//! or wants too much, is disconnected. Clients take no more memory than [`ServerLimits`] allows.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use crate::device::{Device, Refusal, Response};
use crate::limits::ServerLimits;
use crate::lines::{LineError, Lines};
use crate::message::{Message, MessageBuilder, MessageKind};
use crate::outbox::{Backlogs, ClientId, Outbox, SharedLine};
use crate::reading::unix_now;
use crate::requests::{StandardRequests, versions};
use crate::sensor::Sensors;
use crate::sparing::Sparing;

/// Times [`ServerLimits::farewell`] that all clients together have at the end.
const FAREWELLS: u32 = 10;

/// Texts of replies to requests that the server ends before, or in the middle of.
const NOT_BEGUN: &str = "server shutting down: the request was not carried out";
const BEGUN: &str = "server shutting down: the request had begun, and may or may not take effect";

/// A server cannot listen on an address.
#[derive(Debug, thiserror::Error)]
#[error(
    "KATCP cannot listen on {address}: {source}; choose an address of this host and a free port"
)]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// Reason for the end of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// A client asked for it by `?halt`.
    Halted,
    /// The owner of the server asked for it.
    Stopped,
}

/// An address of this host that is reserved, so that no other program takes it.
///
/// Connections are refused until [`Server::listen`]. So a program can reserve its address before it
/// sets its hardware up, and serve it afterwards.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    socket: TcpSocket,
}

impl ReservedAddress {
    /// Reserves an address. Port 0 stands for a free port of the system's choice.
    ///
    /// Fails if another program listens there, or if the address is not one of this host.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let bind = |reuse| {
            let socket = match address.ip() {
                IpAddr::V4(_) => TcpSocket::new_v4()?,
                IpAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.set_reuseaddr(reuse)?;
            // Connections inherit it, so that clients whose host is gone are noticed some time.
            socket.set_keepalive(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        // An address that may be reused can be had by others that say the same, until one listens.
        // It has to be where connections of an earlier server have not quite ended.
        let socket = bind(false).or_else(|_| bind(true));
        let socket = socket.map_err(|source| BindError { address, source })?;
        Ok(Self { address, socket })
    }

    fn listen(self) -> Result<TcpListener, BindError> {
        let Self { address, socket } = self;
        // So that the next server has it at once, whatever connections of this one have not ended.
        let listener = socket
            .set_reuseaddr(true)
            .and_then(|()| socket.listen(1024));
        listener.map_err(|source| BindError { address, source })
    }
}

/// A KATCP server that listens, for programs that use tokio. Others take
/// [`ServerThread`](crate::ServerThread).
pub struct Server<D> {
    listener: TcpListener,
    shared: Arc<Common<D>>,
}

struct Common<D> {
    standard: StandardRequests<D>,
    limits: ServerLimits,
    clients: Mutex<Clients>,
    long_lines: Arc<Semaphore>,
    backlogs: Arc<Backlogs>,
    /// Lines of the log about clients for whom there is no room.
    full: Sparing,
    /// Number of requests of all clients so far.
    requests: AtomicU64,
    halt: Notify,
    /// True once the server ends: requests are refused.
    ending: watch::Sender<bool>,
}

#[derive(Default)]
struct Clients {
    connected: BTreeMap<ClientId, (SocketAddr, Arc<Outbox>)>,
    next: ClientId,
}

impl<D: Device> Server<D> {
    /// Listens on an address. From here on, clients can connect; [`run`](Self::run) serves them.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with I/O and time.
    pub fn listen(
        address: ReservedAddress,
        device: Arc<D>,
        sensors: Sensors,
        limits: ServerLimits,
    ) -> Result<Self, BindError> {
        let limits = limits.with_bounded_times();
        Ok(Self {
            listener: address.listen()?,
            shared: Arc::new(Common {
                standard: StandardRequests::new(device, sensors),
                limits,
                clients: Mutex::default(),
                long_lines: Arc::new(Semaphore::new(limits.long_lines)),
                backlogs: Arc::new(Backlogs::new(limits.backlogs)),
                full: Sparing::default(),
                requests: AtomicU64::new(0),
                halt: Notify::new(),
                ending: watch::Sender::new(false),
            }),
        })
    }

    /// The address that the server listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves clients until one of them asks for `?halt` or `stop` is ready. Then answers requests
    /// that are here, sends `#disconnect` to all clients, and disconnects them.
    pub async fn run(self, stop: impl Future<Output = ()>) -> ServerEnd {
        let Self { listener, shared } = self;
        let mut tasks = JoinSet::new();
        let ended = {
            let sensors = shared.standard.sensors.clone();
            let mut deadlines = pin!(sensors.run());
            let mut stop = pin!(stop);
            let mut again = Instant::now();
            let closed = Sparing::default();
            loop {
                tokio::select! {
                    () = shared.halt.notified() => break ServerEnd::Halted,
                    () = &mut stop => break ServerEnd::Stopped,
                    () = &mut deadlines => {}
                    () = shared.backlogs.over() => shared.relieve(),
                    Some(_) = tasks.join_next() => {}
                    () = tokio::time::sleep_until(again.into()), if Instant::now() < again => {}
                    accepted = listener.accept(), if Instant::now() >= again => match accepted {
                        Ok((stream, address)) => shared.welcome(stream, address, &mut tasks),
                        Err(error) => {
                            // Mostly for lack of file descriptors, which clients that leave free.
                            // Whoever wants to connect waits meanwhile.
                            if let Some(left_out) = closed.line(Instant::now()) {
                                tracing::warn!(%error, left_out, "no client can connect for a second: are too many files open? (`ulimit -n`)");
                            }
                            again = Instant::now() + Duration::from_secs(1);
                        }
                    },
                }
            }
        };
        drop(listener);
        // Each client's task answers what was asked, and sends #disconnect.
        shared.ending.send_replace(true);
        let until = Instant::now() + FAREWELLS * shared.limits.farewell;
        // As long as clients leave, the others have time. Clients that do not read are dropped with
        // the set.
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(Some(_)) = timeout(shared.limits.farewell.min(left()), tasks.join_next()).await
        {
        }
        ended
    }
}

impl<D: Device> Common<D> {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a client, if there is room.
    fn welcome(self: &Arc<Self>, stream: TcpStream, address: SocketAddr, tasks: &mut JoinSet<()>) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let mut clients = self.clients();
        if clients.connected.len() >= self.limits.clients && !self.make_room(&mut clients) {
            if let Some(left_out) = self.full.line(Instant::now()) {
                tracing::warn!(%address, left_out, "too many clients");
            }
            let line = MessageBuilder::new(MessageKind::Inform, "disconnect", None)
                .argument("too many clients");
            // Into an empty socket buffer, or not at all.
            let _ = stream.try_write(&line.finish());
            return;
        }
        let client = clients.next;
        clients.next += 1;
        let outbox = Outbox::new(client, self.limits.backlog, self.backlogs.clone());
        let outbox = Arc::new(outbox);
        let versions = {
            let connect = Message::parse(b"?version-connect").ok().flatten();
            let informs = connect.map(|connect| {
                let mut response = Response::to(&connect);
                versions(&*self.standard.device, &mut response);
                response.into_informs()
            });
            informs.unwrap_or_default()
        };
        outbox.push(versions);
        let news = MessageBuilder::new(MessageKind::Inform, "client-connected", None)
            .argument(address.to_string());
        let news: SharedLine = news.finish().into();
        for (_, other) in clients.connected.values() {
            other.inform(news.clone());
        }
        clients.connected.insert(client, (address, outbox.clone()));
        drop(clients);
        tracing::debug!(%address, client, "client connected");
        tasks.spawn(self.clone().serve(stream, outbox));
    }

    /// Cuts off the client that is missed the least: the newest of those that never asked for
    /// anything, else the client whose last request is the oldest. Clients with subscriptions stay.
    /// Returns whether there was one.
    fn make_room(&self, clients: &mut Clients) -> bool {
        let idle = clients
            .connected
            .values()
            .map(|(_, outbox)| outbox)
            .filter(|outbox| !self.standard.sensors.has_subscribed(outbox.client()));
        let idle = idle.min_by_key(|outbox| (outbox.last_request(), Reverse(outbox.client())));
        let Some(idle) = idle.cloned() else {
            return false;
        };
        idle.cut("others come, and it asks for nothing");
        clients.connected.remove(&idle.client());
        true
    }

    /// Serves a client until it is gone.
    async fn serve(self: Arc<Self>, stream: TcpStream, outbox: Arc<Outbox>) {
        // Answers are written whole.
        let _ = stream.set_nodelay(true);
        let (read, write) = stream.into_split();
        let lines = Lines::new(read, self.limits, self.long_lines.clone());
        let _leaving = Leaving(&self, outbox.client());
        let mut writer = pin!(write_lines(write, &outbox, self.limits.stall));
        tokio::select! {
            () = &mut writer => {}
            () = outbox.is_cut() => {}
            goodbye = self.requests(lines, &outbox) => {
                if let Some(why) = goodbye {
                    let line = MessageBuilder::new(MessageKind::Inform, "disconnect", None);
                    outbox.push(line.argument(why).finish());
                }
                // What was answered is still sent to a client that has said all.
                outbox.close();
                let _ = timeout(self.limits.farewell, writer).await;
            },
        }
    }

    /// Answers a client's requests until the client closes the connection, a line is too long or
    /// too slow, or the server ends. Returns the text of `#disconnect` in the last two cases. At
    /// the end of the server, requests that are here are refused.
    async fn requests(&self, mut lines: Lines, outbox: &Arc<Outbox>) -> Option<String> {
        let mut ending = self.ending.subscribe();
        loop {
            let line = tokio::select! {
                biased;
                () = ended(&mut ending) => lines.received(),
                line = lines.next() => line,
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) if *ending.borrow() => return Some("server shutting down".to_owned()),
                Ok(None) => return None,
                Err(LineError::Io(error)) => {
                    tracing::debug!(client = outbox.client(), %error, "connection lost");
                    return None;
                }
                Err(error) => return Some(error.to_string()),
            };
            match Message::parse(line) {
                Ok(Some(request)) if request.kind() == MessageKind::Request => {
                    outbox.note_request(self.requests.fetch_add(1, Ordering::Relaxed) + 1);
                    self.reply(&request, outbox, &mut ending).await;
                }
                // Replies and informs of clients have no meaning.
                Ok(_) => {}
                Err(error) => {
                    let log = MessageBuilder::new(MessageKind::Inform, "log", None)
                        .argument("error")
                        .argument(crate::number::format_float(unix_now()))
                        .argument("karoo.katcp")
                        .argument(error.to_string());
                    outbox.push(log.finish());
                }
            }
            match lines.forget() {
                None => outbox.is_drained().await,
                Some(until) if timeout_at(until, outbox.is_drained()).await.is_ok() => {}
                Some(_) => return Some("a long line waits until answers are read".to_owned()),
            }
            // Other clients have their turn between two lines, unless all are refused.
            if !*ending.borrow() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Answers a request, or refuses it if the end comes first.
    async fn reply(
        &self,
        request: &Message<'_>,
        outbox: &Arc<Outbox>,
        ending: &mut watch::Receiver<bool>,
    ) {
        let refuse = |why: &str| {
            let refusal = Err(Refusal::Fail(why.to_owned()));
            outbox.push(Response::to(request).finish(refusal));
        };
        let room = async {
            if let Some(room) = self.standard.room(request) {
                room.await;
            }
        };
        tokio::select! {
            biased;
            () = ended(ending) => return refuse(NOT_BEGUN),
            () = room => {}
        }
        let Some(slow) = self.standard.begin(request) else {
            return self.answer(request, outbox);
        };
        tokio::select! {
            biased;
            outcome = slow => {
                let mut response = Response::to(request);
                let outcome = outcome.map(|arguments| {
                    arguments.iter().for_each(|a| response.argument(a));
                });
                outbox.push(response.finish(outcome));
            }
            () = ended(ending) => refuse(BEGUN),
        }
    }

    fn answer(&self, request: &Message<'_>, outbox: &Arc<Outbox>) {
        let addresses = || {
            let clients = self.clients();
            let connected = clients.connected.values();
            connected.map(|(address, _)| address.to_string()).collect()
        };
        let halt = request.name() == "halt" && request.arguments().len() == 0;
        let lines = self.standard.handle(request, outbox, addresses);
        let client = self
            .clients()
            .connected
            .get(&outbox.client())
            .map(|(address, _)| *address);
        if let Some(client) = client {
            self.standard.device.answered(client, request, &lines);
        }
        outbox.push(lines);
        if halt {
            self.halt.notify_one();
        }
    }

    /// Cuts off the clients for which most waits, until the limit for all clients is kept.
    fn relieve(&self) {
        let clients = self.clients();
        let mut outboxes: Vec<_> = clients
            .connected
            .values()
            .map(|(_, outbox)| outbox)
            .collect();
        outboxes.sort_by_cached_key(|outbox| Reverse(outbox.backlog()));
        for outbox in outboxes {
            if !self.backlogs.is_over() {
                break;
            }
            outbox.cut("too much waits for all clients, and most for it");
        }
    }
}

/// Waits for the end of the server.
async fn ended(ending: &mut watch::Receiver<bool>) {
    // An error is a sender that is gone, which is the end as well.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// A connected client. When its task ends, in whatever way, the server forgets it.
struct Leaving<'a, D: Device>(&'a Common<D>, ClientId);

impl<D: Device> Drop for Leaving<'_, D> {
    fn drop(&mut self) {
        let Self(common, client) = *self;
        common.standard.sensors.forget(client);
        common.clients().connected.remove(&client);
        tracing::debug!(client, "client gone");
    }
}

/// Writes the lines that wait for a client, until no more will come or the client reads nothing for
/// `stall`.
async fn write_lines(mut socket: OwnedWriteHalf, outbox: &Outbox, stall: Duration) {
    let mut batch = Vec::new();
    while outbox.take(&mut batch).await {
        let mut slices: Vec<_> = batch.iter().map(|line| IoSlice::new(line)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match timeout(stall, socket.write_vectored(rest)).await {
                Ok(Ok(written)) if written > 0 => {
                    outbox.written(written);
                    IoSlice::advance_slices(&mut rest, written);
                }
                Ok(_) => return,
                Err(_) => return outbox.cut("it reads nothing"),
            }
        }
    }
    let _ = socket.shutdown().await;
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
