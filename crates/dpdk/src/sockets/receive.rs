//! Receive queues out of sockets.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use super::messages::{Messages, Received};
use super::options::{ask_receive_buffer, udp};
use super::{
    DESTINATION, DESTINATION_PORT, HEADERS, SOURCE, SOURCE_PORT, SocketCounts, TTL, add, wait,
};
use crate::error::DpdkError;
use crate::{BURST, MbufBatch, MbufPool};

/// Memberships that a socket may have unless the system was told otherwise
/// (`net.ipv4.igmp_max_memberships`).
const GROUPS: usize = 20;
/// Bytes that the headers of IPv4 and UDP have in a datagram.
const IP_AND_UDP: usize = 28;

/// A socket that receives for a queue.
#[derive(Debug)]
pub(super) struct Listener {
    pub socket: Arc<Socket>,
    pub port: u16,
    /// Groups that it is to be a member of.
    pub groups: Vec<Ipv4Addr>,
}

/// Sockets that receive what is sent to these destinations, with room for `bytes` in all. They are
/// members of no group yet.
pub(super) fn listen(
    destinations: &[SocketAddrV4],
    interface: u32,
    bytes: usize,
) -> Result<Vec<Listener>, DpdkError> {
    let mut wanted: Vec<(SocketAddrV4, Vec<Ipv4Addr>)> = Vec::new();
    for destination in destinations {
        let (ip, port) = (*destination.ip(), destination.port());
        if !ip.is_multicast() {
            wanted.push((*destination, Vec::new()));
            continue;
        }
        // Any number of groups of one port come to one socket.
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let socket = wanted
            .iter_mut()
            .find(|(address, groups)| *address == any && groups.len() < GROUPS);
        match socket {
            Some((_, groups)) => groups.push(ip),
            None => wanted.push((any, vec![ip])),
        }
    }
    let share = bytes.div_ceil(wanted.len().max(1));
    let listener = |(address, groups): (SocketAddrV4, Vec<Ipv4Addr>)| {
        let socket = open(address, share).map_err(|source| DpdkError::Socket {
            what: format!("receive on {address} of interface {interface}"),
            source,
        })?;
        Ok(Listener {
            socket: Arc::new(socket),
            port: address.port(),
            groups,
        })
    };
    wanted.into_iter().map(listener).collect()
}

fn open(address: SocketAddrV4, bytes: usize) -> io::Result<Socket> {
    let socket = udp()?;
    ask_receive_buffer(&socket, bytes)?;
    // Only the groups that it joins itself, on the interface on which it joins them.
    socket.set_multicast_all_v4(false)?;
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Ipv4PacketInfo, &true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveSockets {
    listeners: Vec<Listener>,
    /// Which of the listeners is asked first.
    next: usize,
    /// Mbufs for what comes next, each as long as its room. They go before their pool does.
    empty: MbufBatch,
    pool: MbufPool,
    messages: Box<Messages>,
    counts: Arc<SocketCounts>,
}

impl ReceiveSockets {
    pub(super) fn new(pool: MbufPool, listeners: Vec<Listener>, counts: Arc<SocketCounts>) -> Self {
        Self {
            listeners,
            next: 0,
            empty: MbufBatch::new(),
            pool,
            messages: Messages::new(),
            counts,
        }
    }

    /// Receives behind the packets in the batch, as many as it has room for; returns how many.
    pub(crate) fn rx_burst<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        let before = batch.len();
        for _ in 0..self.listeners.len() {
            if batch.room() == 0 {
                break;
            }
            self.receive(self.next, batch);
            self.next = (self.next + 1) % self.listeners.len();
        }
        batch.len() - before
    }

    /// Whether there are sockets, to wake who waits.
    pub(crate) fn wakes(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Waits until a datagram comes to one of the sockets, for so long at most.
    pub(crate) fn wait(&self, most: Duration) {
        let sockets = self.listeners.iter();
        wait(sockets.map(|listener| listener.socket.as_fd()), most);
    }

    /// Receives from one of the sockets.
    fn receive<const N: usize>(&mut self, listener: usize, batch: &mut MbufBatch<N>) {
        let wanted = self.refill(batch.room().min(BURST));
        if wanted == 0 {
            return;
        }
        let listener = &self.listeners[listener];
        let mut told = [None; BURST];
        // From the last mbuf on, so that the first datagram is in the one that is taken first.
        let mut mbufs = self.empty.as_mut_slice().iter_mut().rev();
        let mut rooms: [IoSliceMut<'_>; BURST] = std::array::from_fn(|_| {
            let data = mbufs.next().map(|mbuf| mbuf.data_mut());
            IoSliceMut::new(
                data.and_then(|data| data.get_mut(HEADERS..))
                    .unwrap_or_default(),
            )
        });
        let rooms = &mut rooms[..wanted];
        let received = self
            .messages
            .receive(&listener.socket, rooms, |i, message| {
                told[i] = Some(message)
            });
        match received {
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => add(&self.counts.rx_errors, 1),
        }
        let (mut packets, mut bytes) = (0, 0);
        for message in told.into_iter().map_while(|message| message) {
            let Some(mut mbuf) = self.empty.pop() else {
                break;
            };
            if message.cut {
                add(&self.counts.rx_errors, 1);
                continue;
            }
            mbuf.shorten(HEADERS + message.bytes);
            if let Some(headers) = mbuf.data_mut().first_chunk_mut() {
                *headers = headers_of(&message, listener.port);
            }
            packets += 1;
            bytes += HEADERS + message.bytes;
            // There is room.
            let _ = batch.push(mbuf);
        }
        add(&self.counts.rx_packets, packets);
        add(&self.counts.rx_bytes, bytes);
    }

    /// Sees to so many empty mbufs, or to as many as the pool has; returns how many there are of
    /// them.
    fn refill(&mut self, wanted: usize) -> usize {
        while self.empty.len() < wanted
            && let Some(mut mbuf) = self.pool.alloc()
        {
            let room = mbuf.append(self.pool.config().data_room).is_some();
            debug_assert!(room, "an mbuf has its pool's data room");
            // There is room.
            let _ = self.empty.push(mbuf);
        }
        self.empty.len().min(wanted)
    }
}

/// Headers of a frame as whoever sent the datagram might have made it. Checksums are left out.
fn headers_of(message: &Received, port: u16) -> [u8; HEADERS] {
    const VERSION: usize = 14;
    const TOTAL_LENGTH: usize = 16;
    const FLAGS: usize = 20;
    const PROTOCOL: usize = 23;
    const UDP_LENGTH: usize = 38;
    let mut headers = [0; HEADERS];
    let mut put = |at: usize, bytes: &[u8]| headers[at..at + bytes.len()].copy_from_slice(bytes);
    let [_, b, c, d] = message.destination.octets();
    if message.destination.is_multicast() {
        put(0, &[0x01, 0x00, 0x5e, b & 0x7f, c, d]);
    }
    put(12, &[0x08, 0x00]);
    put(VERSION, &[0x45]);
    // A datagram has at most 65535 bytes with its headers.
    let total = (IP_AND_UDP + message.bytes) as u16;
    put(TOTAL_LENGTH, &total.to_be_bytes());
    put(FLAGS, &[0x40, 0x00]);
    put(TTL, &[1]);
    put(PROTOCOL, &[17]);
    put(SOURCE.start, &message.source.ip().octets());
    put(DESTINATION.start, &message.destination.octets());
    put(SOURCE_PORT.start, &message.source.port().to_be_bytes());
    put(DESTINATION_PORT.start, &port.to_be_bytes());
    put(UDP_LENGTH, &(total - 20).to_be_bytes());
    headers
}
