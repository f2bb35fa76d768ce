//! Ports out of the kernel's UDP sockets, which need no rights: datagrams become frames when they
//! come, and frames become datagrams when they are sent.
//!
//! What the kernel does for sockets holds: firewall, reverse path filter, reassembly of fragments,
//! datagrams of programs on the same host.

mod messages;
mod options;
mod receive;
mod send;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::SocketError;
use socket2::{InterfaceIndexOrAddress, Socket};

pub(super) use self::receive::ReceiveSockets;
pub(super) use self::send::SendSockets;
use super::device::DeviceInfo;
use super::error::DpdkError;
use super::port::{PortStats, StartedPort, socket_queues};
use super::{Eal, MbufPool};

/// Headers of a frame: Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 42;
const TTL: usize = 22;
const SOURCE: Range<usize> = 26..30;
const DESTINATION: Range<usize> = 30..34;
const SOURCE_PORT: Range<usize> = 34..36;
const DESTINATION_PORT: Range<usize> = 36..38;

/// How a port of sockets is set up.
#[derive(Debug)]
pub struct SocketConfig<'a> {
    /// Name of the port.
    pub name: &'a str,
    /// Number of the interface.
    pub interface: u32,
    /// The interface's address, which what is sent comes from.
    pub ip: Ipv4Addr,
    /// A receive queue each: its mbufs, and the destinations whose datagrams come to it.
    pub rx: Vec<(MbufPool, Vec<SocketAddrV4>)>,
    /// Bytes that may wait at each receive queue.
    pub rx_bytes: usize,
    /// Transmit queues.
    pub tx_queues: usize,
    /// Bytes that may wait to be sent.
    pub tx_bytes: usize,
}

/// A started port of sockets.
#[derive(Debug)]
pub struct SocketPort {
    /// The port and its queues.
    pub started: StartedPort,
    /// Its memberships in groups, of which there are none yet.
    pub groups: SocketGroups,
    /// Bytes that may wait at a receive queue, as the kernel grants it: less than was asked for
    /// where `net.core.rmem_max` says so.
    pub rx_bytes: usize,
}

impl SocketPort {
    /// Opens the sockets. What is sent to a group comes once it is [joined](SocketGroups::join).
    pub fn open(eal: &Eal, config: SocketConfig<'_>) -> Result<Self, DpdkError> {
        let counts = Arc::new(SocketCounts::default());
        let (mut queues, mut groups) = (Vec::new(), Vec::new());
        let mut granted = config.rx_bytes;
        for (pool, destinations) in config.rx {
            let listening = receive::listen(&destinations, config.interface, config.rx_bytes)?;
            // What was asked for is shared among the sockets of a queue.
            let room = listening
                .iter()
                .map(|of| options::receive_buffer(&of.socket));
            if !listening.is_empty() {
                granted = granted.min(room.sum());
            }
            for listener in &listening {
                groups.push((Arc::clone(&listener.socket), listener.groups.clone()));
            }
            queues.push(ReceiveSockets::new(pool, listening, Arc::clone(&counts)));
        }
        let sender = |_| {
            let counts = Arc::clone(&counts);
            SendSockets::new(config.interface, config.ip, config.tx_bytes, counts)
        };
        let sockets = Sockets {
            name: config.name.to_owned(),
            counts: Arc::clone(&counts),
            receiving: groups
                .iter()
                .map(|(socket, _)| Receiving::new(Arc::clone(socket)))
                .collect(),
            _eal: eal.clone(),
        };
        let sending = (0..config.tx_queues).map(sender).collect();
        Ok(Self {
            started: socket_queues(sockets, queues, sending),
            groups: SocketGroups {
                interface: config.interface,
                sockets: groups,
            },
            rx_bytes: granted,
        })
    }
}

/// Memberships of a port's receiving sockets, which end with the port.
#[derive(Debug)]
pub struct SocketGroups {
    interface: u32,
    /// Each with the groups whose datagrams it is to have.
    sockets: Vec<(Arc<Socket>, Vec<Ipv4Addr>)>,
}

impl SocketGroups {
    /// Joins a group. Nothing happens if no queue asked for it, or if it has been joined.
    pub fn join(&self, group: Ipv4Addr) -> io::Result<()> {
        let interface = InterfaceIndexOrAddress::Index(self.interface);
        let wanted = |(_, groups): &&(_, Vec<_>)| groups.contains(&group);
        for (socket, _) in self.sockets.iter().filter(wanted) {
            match socket.join_multicast_v4_n(&group, &interface) {
                Err(error) if error.raw_os_error() != Some(libc::EADDRINUSE) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a port of sockets has instead of a device.
#[derive(Debug)]
pub(super) struct Sockets {
    name: String,
    counts: Arc<SocketCounts>,
    receiving: Vec<Receiving>,
    _eal: Eal,
}

impl Sockets {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn info(&self) -> DeviceInfo {
        DeviceInfo {
            driver: "UDP sockets".to_owned(),
            max_rx_queues: u16::MAX,
            max_tx_queues: u16::MAX,
            max_mtu: 65535,
            multi_segment_tx: true,
            // Datagrams with wrong ones are the kernel's to throw away.
            rx_checksum: false,
            rx_timestamp: false,
            tx_timestamp: false,
        }
    }

    pub fn stats(&self) -> PortStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        PortStats {
            rx_packets: load(&counts.rx_packets),
            tx_packets: load(&counts.tx_packets),
            rx_bytes: load(&counts.rx_bytes),
            tx_bytes: load(&counts.tx_bytes),
            rx_missed: self.receiving.iter().map(Receiving::dropped).sum(),
            rx_errors: load(&counts.rx_errors),
            tx_errors: load(&counts.tx_errors),
            // What finds no mbuf stays in its socket, which drops what it has no room for.
            rx_no_mbuf: 0,
        }
    }
}

/// A receiving socket, and what it has dropped.
#[derive(Debug)]
struct Receiving {
    socket: Arc<Socket>,
    dropped: AtomicU64,
}

impl Receiving {
    fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            dropped: AtomicU64::new(0),
        }
    }

    /// Datagrams that the socket has dropped.
    fn dropped(&self) -> u64 {
        let now = options::dropped(&self.socket);
        let before = self
            .dropped
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                Some(unwrapped(before, now))
            });
        unwrapped(before.unwrap_or_else(|before| before), now)
    }
}

/// A count of which the kernel tells 32 bits: the first from `before` on that ends with `now`. What
/// another thread has asked for later, and has counted already, changes nothing.
fn unwrapped(before: u64, now: u32) -> u64 {
    match now.wrapping_sub(before as u32) {
        later if later < 1 << 31 => before + u64::from(later),
        _ => before,
    }
}

/// Counters of all queues.
#[derive(Debug, Default)]
struct SocketCounts {
    rx_packets: AtomicU64,
    tx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_bytes: AtomicU64,
    rx_errors: AtomicU64,
    tx_errors: AtomicU64,
}

/// Waits until one of these sockets has something to read, for so long at most. Does not wait if
/// there are none. A signal ends it early.
pub(super) fn wait<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>, most: Duration) {
    let mut sockets: Vec<_> = sockets
        .map(|socket| PollFd::new(socket, PollFlags::POLLIN))
        .collect();
    if sockets.is_empty() {
        return;
    }
    let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO);
    let ready = poll(&mut sockets, most).unwrap_or(0);
    for socket in sockets.iter().filter(|_| ready > 0) {
        let events = socket.revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLERR) {
            // That a link was down is told until somebody asks: nobody would sleep before.
            let _ = getsockopt(&socket.as_fd(), SocketError);
        }
    }
}

fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::unwrapped;

    #[test]
    fn drops_go_on_past_32_bits() {
        let round = 1u64 << 32;
        let step = round / 3;
        let mut counted = 0;
        for true_count in (0..20).map(|n| n * step) {
            counted = unwrapped(counted, true_count as u32);
            assert_eq!(counted, true_count);
        }
        // Two threads ask: the earlier answer comes later.
        assert_eq!(unwrapped(3 * round + 2, u32::MAX), 3 * round + 2);
        assert_eq!(unwrapped(3 * round + 2, 1), 3 * round + 2);
    }
}
