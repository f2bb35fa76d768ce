//! A socket that sees the frames that come to interfaces, as a bystander: nobody else misses what
//! it sees.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Bytes of ancillary data that go with a frame: its time and its VLAN.
const CONTROL: usize = 256;

/// Sees frames that come to one interface, or to all of the network namespace: a packet socket
/// (packet(7)). Needs the capability CAP_NET_RAW.
///
/// The kernel copies frames for it before any firewall looks at them. Frames that find its buffer
/// full are counted, and cost nobody else anything.
#[derive(Debug)]
pub struct PacketTap {
    socket: OwnedFd,
}

/// What is known of a frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TappedFrame {
    /// Index of the interface that it came to.
    pub interface: u32,
    /// Bytes of it that were copied.
    pub copied: usize,
    /// Bytes that it has.
    pub length: usize,
    /// Its VLAN, whose tag the kernel has taken off.
    pub vlan: Option<u16>,
    /// UNIX time at which the kernel got it, in seconds.
    pub unix: f64,
}

impl PacketTap {
    /// Sees what comes to the interface of this index, or to all with 0. `buffer` is how many bytes
    /// may wait; a call of [`receive`](Self::receive) waits as long as `patience`.
    pub fn open(interface: u32, buffer: usize, patience: Duration) -> io::Result<Self> {
        // Without a protocol it sees nothing until it is bound.
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor is new and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let tap = Self { socket };
        let on: libc::c_int = 1;
        let bytes = libc::c_int::try_from(buffer).unwrap_or(libc::c_int::MAX);
        tap.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes)?;
        tap.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        tap.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
        // Kernels before 4.20 have no such option: those frames are left out below.
        let _ = tap.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on);
        let wait = libc::timeval {
            tv_sec: patience.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_usec: patience.subsec_micros().into(),
        };
        tap.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &wait)?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: interface as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address is a whole sockaddr_ll, which the kernel reads.
        check(unsafe {
            libc::bind(
                tap.socket.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                mem::size_of_val(&address) as libc::socklen_t,
            )
        })?;
        Ok(tap)
    }

    /// Has the interface of this index take in frames for others too, as long as this exists.
    pub fn see_all(&self, interface: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: interface as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// The next frame, as much of it as `bytes` holds; `None` if none came in time.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<Option<TappedFrame>> {
        // Headers of ancillary data are aligned as this is.
        let mut control = [0u64; CONTROL / 8];
        // SAFETY: integers, for which zero is a value.
        let mut from: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_name = std::ptr::from_mut(&mut from).cast();
        message.msg_namelen = mem::size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        // SAFETY: all that the message points to lives longer than the call, with the lengths that
        // it names.
        let length =
            unsafe { libc::recvmsg(self.socket.as_raw_fd(), &mut message, libc::MSG_TRUNC) };
        let length = match usize::try_from(length) {
            Ok(length) => length,
            Err(_) => return none_in_time(io::Error::last_os_error()),
        };
        if matches!(
            from.sll_pkttype,
            libc::PACKET_OUTGOING | libc::PACKET_LOOPBACK
        ) {
            return Ok(None);
        }
        let mut frame = TappedFrame {
            interface: from.sll_ifindex as u32,
            copied: length.min(bytes.len()),
            length,
            vlan: None,
            unix: 0.0,
        };
        // SAFETY: the kernel has set the length of the ancillary data that it wrote.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
        // SAFETY: the pointer is null, or that of a whole header within `control`.
        while let Some(found) = unsafe { header.as_ref() } {
            // SAFETY: the data of that header is within `control`; it is read without alignment, as
            // the type that level and kind say.
            unsafe {
                let data = libc::CMSG_DATA(header);
                match (found.cmsg_level, found.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let time = data.cast::<libc::timespec>().read_unaligned();
                        frame.unix = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
                    }
                    (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                        let more = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                        let tagged = more.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
                        frame.vlan = tagged.then_some(more.tp_vlan_tci & 0xfff);
                    }
                    _ => {}
                }
            }
            // SAFETY: as for the first.
            header = unsafe { libc::CMSG_NXTHDR(&message, header) };
        }
        Ok(Some(frame))
    }

    /// How many frames found its buffer full since this was last asked.
    pub fn missed(&self) -> u64 {
        // SAFETY: integers, for which zero is a value.
        let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut length = mem::size_of_val(&stats) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `stats`.
        let ret = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut stats).cast(),
                &mut length,
            )
        };
        if ret == 0 { stats.tp_drops.into() } else { 0 }
    }

    fn set<T>(&self, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the kernel reads the bytes of `value`, which is a plain structure of integers.
        check(unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                mem::size_of::<T>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }
}

fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    match ret {
        -1 => Err(io::Error::last_os_error()),
        ret => Ok(ret),
    }
}

/// What is no failure: nothing came, or a signal did; the interface went down, which the socket
/// outlives.
fn none_in_time(error: io::Error) -> io::Result<Option<TappedFrame>> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
            Ok(None)
        }
        _ if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Instant;

    use super::*;

    /// The loopback interface has index 1 in every network namespace.
    const LO: u32 = 1;

    #[test]
    fn a_tap_sees_what_another_receives() {
        let tap = match PacketTap::open(LO, 1 << 20, Duration::from_millis(50)) {
            Ok(tap) => tap,
            Err(error) => return println!("no packet sockets: {error}"),
        };
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = format!("tapped by {}", std::process::id());
        let to = receiver.local_addr().unwrap();
        receiver.send_to(text.as_bytes(), to).unwrap();
        let begun = Instant::now();
        let mut bytes = [0; 64];
        let (found, head) = loop {
            assert!(begun.elapsed() < Duration::from_secs(60));
            let mut all = [0; 2048];
            let Some(frame) = tap.receive(&mut all).unwrap() else {
                continue;
            };
            if all[..frame.copied].ends_with(text.as_bytes()) {
                bytes.copy_from_slice(&all[..64]);
                break (frame, &bytes[..14]);
            }
        };
        assert_eq!((found.interface, found.vlan), (LO, None));
        assert_eq!(found.length, 14 + 28 + text.len());
        assert_eq!(head[12..14], [8, 0]);
        assert!(found.unix > 1.7e9);
        let mut received = [0; 64];
        let length = receiver.recv(&mut received).unwrap();
        assert_eq!(&received[..length], text.as_bytes());
        assert_eq!(tap.missed(), 0);
    }

    #[test]
    fn a_frame_longer_than_the_buffer_is_cut() {
        let tap = match PacketTap::open(LO, 1 << 20, Duration::from_millis(50)) {
            Ok(tap) => tap,
            Err(error) => return println!("no packet sockets: {error}"),
        };
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .send_to(&[7; 3000], socket.local_addr().unwrap())
            .unwrap();
        let begun = Instant::now();
        let mut bytes = [0; 100];
        let frame = loop {
            assert!(begun.elapsed() < Duration::from_secs(60));
            match tap.receive(&mut bytes).unwrap() {
                Some(frame) if frame.length == 3042 => break frame,
                _ => {}
            }
        };
        assert_eq!(frame.copied, 100);
    }
}
