//! The KATCP server: connections, and what they may cost.
//!
//! One task per client reads its requests, has them answered one after the other, and writes what waits for it.
//! A client that sends or reads too slowly, or wants too much, is cut off; nothing that it does takes more memory than
//! [`ServerLimits`] says.

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
use tokio::time::timeout;

use crate::device::{Device, Refusal, Response};
use crate::lines::{LineError, Lines};
use crate::message::{Message, MessageBuilder, MessageKind};
use crate::outbox::{Backlogs, ClientId, Outbox, SharedLine};
use crate::reading::unix_now;
use crate::requests::{StandardRequests, versions};
use crate::sensor::Sensors;

/// Farewells that all clients together have.
const FAREWELLS: u32 = 10;

/// Replies to requests that the end of the server comes before, or in the middle of.
const NOT_BEGUN: &str = "server shutting down: the request was not carried out";
const BEGUN: &str = "server shutting down: the request had begun, and may or may not take effect";

/// What clients may cost.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Clients at the same time.
    pub clients: usize,
    /// Bytes of a line, without its end.
    pub line: usize,
    /// Lines of more than 64 KiB that are being received at the same time; others wait.
    pub long_lines: usize,
    /// How long a client may take over such a line.
    pub line_time: Duration,
    /// Bytes that may wait for a client when it is to be sent news.
    pub backlog: usize,
    /// Bytes that may wait for all clients; beyond, those for which most waits are cut off.
    pub backlogs: usize,
    /// How long a client may read nothing of what waits for it.
    pub stall: Duration,
    /// How long clients are given at the end to read what waits for them.
    pub farewell: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            clients: 1000,
            line: 16 << 20,
            long_lines: 8,
            line_time: Duration::from_secs(30),
            backlog: 32 << 20,
            backlogs: 256 << 20,
            stall: Duration::from_secs(60),
            farewell: Duration::from_secs(1),
        }
    }
}

/// The server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error(
    "KATCP cannot listen on {address}: {source}; choose an address of this host and a free port"
)]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// Why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// A client said `?halt`.
    Halted,
    /// Its owner told it to.
    Stopped,
}

/// An address that is taken, where nobody listens yet: connections are refused.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    socket: TcpSocket,
}

impl ReservedAddress {
    /// Takes `address`; port 0 takes a free one. Refused if somebody listens there.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let bind = || {
            let socket = match address.ip() {
                IpAddr::V4(_) => TcpSocket::new_v4()?,
                IpAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.set_reuseaddr(true)?;
            // Connections inherit it: clients whose host is gone are noticed some time.
            socket.set_keepalive(true)?;
            socket.bind(address)?;
            Ok(socket)
        };
        let socket = bind().map_err(|source| BindError { address, source })?;
        Ok(Self { address, socket })
    }

    fn listen(self) -> Result<TcpListener, BindError> {
        let Self { address, socket } = self;
        let listener = socket.listen(1024);
        listener.map_err(|source| BindError { address, source })
    }
}

/// A server that listens.
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
    /// Requests of all clients so far.
    requests: AtomicU64,
    halt: Notify,
    /// True from the end on: requests are refused.
    ending: watch::Sender<bool>,
}

#[derive(Default)]
struct Clients {
    connected: BTreeMap<ClientId, (SocketAddr, Arc<Outbox>)>,
    next: ClientId,
}

impl<D: Device> Server<D> {
    /// Listens on an address. Needs a tokio runtime around it.
    pub fn listen(
        address: ReservedAddress,
        device: Arc<D>,
        sensors: Sensors,
        limits: ServerLimits,
    ) -> Result<Self, BindError> {
        Ok(Self {
            listener: address.listen()?,
            shared: Arc::new(Common {
                standard: StandardRequests::new(device, sensors),
                limits,
                clients: Mutex::default(),
                long_lines: Arc::new(Semaphore::new(limits.long_lines)),
                backlogs: Arc::default(),
                requests: AtomicU64::new(0),
                halt: Notify::new(),
                ending: watch::Sender::new(false),
            }),
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves clients until one says `?halt` or `stop` is there; then replies to what they asked, tells them all, and
    /// disconnects them.
    pub async fn run(self, stop: impl Future<Output = ()>) -> ServerEnd {
        let Self { listener, shared } = self;
        let mut tasks = JoinSet::new();
        let ended = {
            let sensors = shared.standard.sensors.clone();
            let mut deadlines = pin!(sensors.run());
            let mut stop = pin!(stop);
            loop {
                tokio::select! {
                    () = shared.halt.notified() => break ServerEnd::Halted,
                    () = &mut stop => break ServerEnd::Stopped,
                    () = &mut deadlines => {}
                    Some(_) = tasks.join_next() => {}
                    accepted = listener.accept() => match accepted {
                        Ok((stream, address)) => shared.welcome(stream, address, &mut tasks),
                        Err(error) => {
                            // Out of descriptors, as a rule: clients that leave give theirs back.
                            tracing::warn!(%error, "no client can connect");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    },
                }
            }
        };
        drop(listener);
        // Each client's task replies to what was asked, and says goodbye.
        shared.ending.send_replace(true);
        let until = Instant::now() + FAREWELLS * shared.limits.farewell;
        // As long as clients come to their end, the others have time. Those who do not read are dropped with the set.
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

    /// Lets a client in, if there is room.
    fn welcome(self: &Arc<Self>, stream: TcpStream, address: SocketAddr, tasks: &mut JoinSet<()>) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let mut clients = self.clients();
        if clients.connected.len() >= self.limits.clients && !self.make_room(&mut clients) {
            tracing::warn!(%address, "too many clients");
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

    /// Cuts off a client that nobody will miss: the newest of those that never asked for anything, so that whoever was
    /// there first stays; else the one whose last request is the oldest. Those with subscriptions stay: they listen.
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

    /// One client, until it is gone.
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

    /// Answers a client's requests until it closes the connection, its lines are too much, or the server ends; in the last
    /// two cases returns what to tell the client. At the end of the server, requests that are here are refused.
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
                // Clients have nothing to reply to or to inform of.
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
            if self.backlogs.bytes() > self.limits.backlogs {
                self.relieve();
            }
            outbox.is_drained().await;
            // Lines that are here already are no reason to let others wait, unless all are refused.
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
        outbox.push(lines);
        if halt {
            self.halt.notify_one();
        }
    }

    /// Cuts off clients for which most waits, until all can be borne.
    fn relieve(&self) {
        let clients = self.clients();
        let mut outboxes: Vec<_> = clients
            .connected
            .values()
            .map(|(_, outbox)| outbox)
            .collect();
        outboxes.sort_by_cached_key(|outbox| Reverse(outbox.backlog()));
        for outbox in outboxes {
            if self.backlogs.bytes() <= self.limits.backlogs {
                break;
            }
            outbox.cut("too much waits for all clients, and most for it");
        }
    }
}

/// Waits for the end of the server.
async fn ended(ending: &mut watch::Receiver<bool>) {
    // Fails without a sender, which is the end as well.
    let _ = ending.wait_for(|ending| *ending).await;
}

/// A client that is forgotten when its task ends, however it does.
struct Leaving<'a, D: Device>(&'a Common<D>, ClientId);

impl<D: Device> Drop for Leaving<'_, D> {
    fn drop(&mut self) {
        let Self(common, client) = *self;
        common.standard.sensors.forget(client);
        common.clients().connected.remove(&client);
        tracing::debug!(client, "client gone");
    }
}

/// Writes what waits for a client, until there is nothing more or it reads nothing for `stall`.
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
