//! Transmit queues out of sockets.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use ground::os::send_groups_through;
use socket2::Socket;

use super::messages::{Messages, Parts};
use super::options::{ask_send_buffer, send_as_ports_do, udp};
use super::{DESTINATION, DESTINATION_PORT, HEADERS, SOURCE_PORT, SocketCounts, TTL, add};
use crate::{BURST, Mbuf, MbufBatch};

/// What the packets of one socket have in common: the UDP port that they come from, and their time
/// to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin {
    port: u16,
    ttl: u8,
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct SendSockets {
    /// Number of the interface.
    interface: u32,
    ip: Ipv4Addr,
    bytes: usize,
    /// Made when they are first needed.
    sockets: Vec<(Origin, Socket)>,
    messages: Box<Messages>,
    counts: Arc<SocketCounts>,
    /// Whether somebody was told why a packet was refused.
    told: bool,
}

impl SendSockets {
    pub(super) fn new(
        interface: u32,
        ip: Ipv4Addr,
        bytes: usize,
        counts: Arc<SocketCounts>,
    ) -> Self {
        Self {
            interface,
            ip,
            bytes,
            sockets: Vec::new(),
            messages: Messages::new(),
            counts,
            told: false,
        }
    }

    /// Sends packets from the front of the batch; returns how many are gone. The others stay.
    pub(crate) fn tx_burst<const N: usize>(&mut self, batch: &mut MbufBatch<N>) -> usize {
        let before = batch.len();
        while !batch.is_empty() {
            match self.send(batch.as_slice()) {
                Ok((packets, bytes)) => {
                    add(&self.counts.tx_packets, packets);
                    add(&self.counts.tx_bytes, bytes);
                    batch.drop_front(packets);
                }
                Err(error) if waits(&error) => break,
                Err(error) => {
                    if !std::mem::replace(&mut self.told, true) {
                        tracing::warn!(%error, "a packet cannot be sent; others like it are only counted");
                    }
                    // Dropped: the kernel would refuse the same packet again.
                    add(&self.counts.tx_errors, 1);
                    batch.drop_front(1);
                }
            }
        }
        before - batch.len()
    }

    /// Sends packets from the front that one socket sends; returns how many, and their bytes.
    fn send(&mut self, packets: &[Mbuf]) -> io::Result<(usize, usize)> {
        let (origin, ..) = split(&packets[0]).ok_or(ErrorKind::InvalidData)?;
        let ours = packets.iter().take(BURST).map_while(|packet| {
            let (its, parts, to) = split(packet)?;
            (its == origin).then_some((parts, to))
        });
        let nothing = || ([IoSlice::new(&[]); 2], SocketAddrV4::new(self.ip, 0));
        let mut datagrams: [_; BURST] = std::array::from_fn(|_| nothing());
        let mut count = 0;
        for datagram in ours {
            datagrams[count] = datagram;
            count += 1;
        }
        let at = self.sockets.iter().position(|(its, _)| *its == origin);
        let at = match at {
            Some(at) => at,
            None => {
                let socket = self.open(origin)?;
                self.sockets.push((origin, socket));
                self.sockets.len() - 1
            }
        };
        let socket = &self.sockets[at].1;
        let sent = self.messages.send(socket, &datagrams[..count])?;
        let bytes = packets[..sent].iter().map(Mbuf::pkt_len).sum();
        Ok((sent, bytes))
    }

    fn open(&self, origin: Origin) -> io::Result<Socket> {
        let socket = udp()?;
        ask_send_buffer(&socket, self.bytes)?;
        send_as_ports_do(&socket)?;
        send_groups_through(&socket, self.interface, self.ip)?;
        socket.set_multicast_ttl_v4(origin.ttl.into())?;
        // To groups alone it may be 0: for programs of this host.
        if origin.ttl > 0 {
            socket.set_ttl_v4(origin.ttl.into())?;
        }
        let from = SocketAddrV4::new(self.ip, origin.port);
        match socket.bind(&from.into()) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                tracing::warn!(%from, "another program has this UDP port: packets come from any");
                socket.bind(&SocketAddrV4::new(self.ip, 0).into())?;
            }
            bound => bound?,
        }
        Ok(socket)
    }
}

/// Whether a packet can be sent later.
fn waits(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Which socket sends a packet, its payload, and where to; `None` if it is no UDP datagram of at
/// most two segments.
fn split(packet: &Mbuf) -> Option<(Origin, Parts<'_>, SocketAddrV4)> {
    const VERSION: usize = 14;
    const PROTOCOL: usize = 23;
    let mut segments = packet.segments();
    let (headers, first) = segments.next()?.split_first_chunk::<HEADERS>()?;
    let second = segments.next().unwrap_or_default();
    let is_udp = (headers[VERSION], headers[PROTOCOL]) == (0x45, 17);
    if !is_udp || segments.next().is_some() {
        return None;
    }
    let port = |range| {
        headers
            .get(range)
            .and_then(|bytes: &[u8]| bytes.first_chunk().copied())
    };
    let ip: [u8; 4] = *headers.get(DESTINATION)?.first_chunk()?;
    let origin = Origin {
        port: u16::from_be_bytes(port(SOURCE_PORT)?),
        ttl: headers[TTL],
    };
    let to = SocketAddrV4::new(ip.into(), u16::from_be_bytes(port(DESTINATION_PORT)?));
    Some((origin, [IoSlice::new(first), IoSlice::new(second)], to))
}
