//! Ethernet, IPv4 and UDP.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Byte ranges, each from the start of its own header.
mod field {
    use std::ops::Range;

    pub mod ethernet {
        use super::Range;
        pub const DST: Range<usize> = 0..6;
        pub const SRC: Range<usize> = 6..12;
        pub const TYPE: Range<usize> = 12..14;
        pub const LEN: usize = 14;
        /// Bytes that a VLAN tag adds before the type.
        pub const VLAN: usize = 4;
    }
    pub mod ipv4 {
        use super::Range;
        pub const VERSION_IHL: usize = 0;
        pub const TOTAL_LENGTH: Range<usize> = 2..4;
        pub const FRAGMENT: Range<usize> = 6..8;
        pub const TTL: usize = 8;
        pub const PROTOCOL: usize = 9;
        pub const CHECKSUM: Range<usize> = 10..12;
        pub const SRC: Range<usize> = 12..16;
        pub const DST: Range<usize> = 16..20;
        pub const LEN: usize = 20;
    }
    pub mod udp {
        use super::Range;
        pub const SRC: Range<usize> = 0..2;
        pub const DST: Range<usize> = 2..4;
        pub const LENGTH: Range<usize> = 4..6;
        pub const CHECKSUM: Range<usize> = 6..8;
        pub const LEN: usize = 8;
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// More-fragments flag and fragment offset.
const FRAGMENT_MASK: u16 = 0x3fff;

/// Bytes of the three headers, without VLAN tag.
pub const HEADERS_LEN: usize = field::ethernet::LEN + field::ipv4::LEN + field::udp::LEN;

/// Largest UDP payload over IPv4.
pub const MAX_UDP_PAYLOAD: usize = 65535 - field::ipv4::LEN - field::udp::LEN;

/// Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Address of an IPv4 multicast group: 01:00:5e and the low 23 bits (RFC 1112).
    pub fn multicast(group: Ipv4Addr) -> Option<Self> {
        let [_, b, c, d] = group.octets();
        group
            .is_multicast()
            .then_some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Why a frame is not a UDP datagram that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The headers, or the lengths in them, run past the bytes at hand.
    #[error("frame of {len} bytes is cut off in or after its headers")]
    Cut {
        /// Bytes in the frame.
        len: usize,
    },
    /// Another EtherType.
    #[error("EtherType {0:#06x} is not IPv4")]
    NotIpv4(u16),
    /// Version or lengths of the IPv4 header contradict one another.
    #[error("IPv4 header is malformed")]
    BadIpv4,
    /// Header of more than 20 bytes.
    #[error("IPv4 header has options")]
    Ipv4Options,
    /// A part of a datagram.
    #[error("datagram is fragmented; let the sender's packets fit the MTU")]
    Fragment,
    /// Another protocol.
    #[error("IP protocol {0} is not UDP")]
    NotUdp(u8),
    /// The UDP length disagrees with the IPv4 length.
    #[error("UDP length {udp} does not fit the {room} bytes of its IPv4 packet")]
    UdpLength {
        /// Length in the UDP header.
        udp: usize,
        /// Bytes after the IPv4 header.
        room: usize,
    },
}

/// A UDP datagram in an Ethernet frame.
///
/// Checksums are not verified: frames recorded on the sending host often carry none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    src: SocketAddrV4,
    dst: SocketAddrV4,
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Checks a frame; VLAN tags before, and padding after, the datagram are tolerated.
    pub fn new_checked(frame: &'a [u8]) -> Result<Self, FrameError> {
        use field::{ethernet, ipv4, udp};
        let cut = FrameError::Cut { len: frame.len() };
        let mut rest = frame;
        let mut ethertype = u16_at(rest, ethernet::TYPE).ok_or(cut)?;
        while ETHERTYPE_VLAN.contains(&ethertype) {
            rest = rest.get(ethernet::VLAN..).ok_or(cut)?;
            ethertype = u16_at(rest, ethernet::TYPE).ok_or(cut)?;
        }
        if ethertype != ETHERTYPE_IPV4 {
            return Err(FrameError::NotIpv4(ethertype));
        }
        let ip = &rest[ethernet::LEN..];
        let header = ip.get(..ipv4::LEN).ok_or(cut)?;
        if !matches!(header[ipv4::VERSION_IHL], 0x45..=0x4f) {
            return Err(FrameError::BadIpv4);
        }
        // Before options: IGMP has some.
        if header[ipv4::PROTOCOL] != PROTOCOL_UDP {
            return Err(FrameError::NotUdp(header[ipv4::PROTOCOL]));
        }
        if header[ipv4::VERSION_IHL] != 0x45 {
            return Err(FrameError::Ipv4Options);
        }
        if u16_at(header, ipv4::FRAGMENT).ok_or(cut)? & FRAGMENT_MASK != 0 {
            return Err(FrameError::Fragment);
        }
        let total = usize::from(u16_at(header, ipv4::TOTAL_LENGTH).ok_or(cut)?);
        if total < ipv4::LEN {
            return Err(FrameError::BadIpv4);
        }
        let datagram = ip.get(ipv4::LEN..total).ok_or(cut)?;
        let room = datagram.len();
        let length = u16_at(datagram, udp::LENGTH).ok_or(FrameError::UdpLength { udp: 0, room })?;
        if usize::from(length) != room || room < udp::LEN {
            return Err(FrameError::UdpLength {
                udp: length.into(),
                room,
            });
        }
        let address = |range| header.get(range).and_then(|b: &[u8]| b.first_chunk());
        let endpoint = |ip: Option<&[u8; 4]>, port: Option<u16>| {
            Some(SocketAddrV4::new(Ipv4Addr::from(*ip?), port?))
        };
        Ok(Self {
            src: endpoint(address(ipv4::SRC), u16_at(datagram, udp::SRC)).ok_or(cut)?,
            dst: endpoint(address(ipv4::DST), u16_at(datagram, udp::DST)).ok_or(cut)?,
            payload: &datagram[udp::LEN..],
        })
    }

    /// Source.
    pub fn src(&self) -> SocketAddrV4 {
        self.src
    }

    /// Destination.
    pub fn dst(&self) -> SocketAddrV4 {
        self.dst
    }

    /// UDP payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

fn u16_at(bytes: &[u8], range: std::ops::Range<usize>) -> Option<u16> {
    let pair = bytes.get(range)?.first_chunk()?;
    Some(u16::from_be_bytes(*pair))
}

/// Headers of all frames from one source to one destination; lengths and checksums are filled in
/// per frame.
#[derive(Clone, Debug)]
pub struct HeaderTemplate {
    bytes: [u8; HEADERS_LEN],
    /// One's-complement sum of the IPv4 header without its length.
    sum: u32,
}

impl HeaderTemplate {
    /// Frames to a multicast group; `None` where `dst` is not one.
    pub fn multicast(
        src_mac: MacAddr,
        src: SocketAddrV4,
        dst: SocketAddrV4,
        ttl: u8,
    ) -> Option<Self> {
        Some(Self::new(
            src_mac,
            MacAddr::multicast(*dst.ip())?,
            src,
            dst,
            ttl,
        ))
    }

    /// Frames to any destination.
    pub fn new(
        src_mac: MacAddr,
        dst_mac: MacAddr,
        src: SocketAddrV4,
        dst: SocketAddrV4,
        ttl: u8,
    ) -> Self {
        use field::{ethernet, ipv4, udp};
        let mut bytes = [0; HEADERS_LEN];
        let (eth, rest) = bytes.split_at_mut(ethernet::LEN);
        let (ip, datagram) = rest.split_at_mut(ipv4::LEN);
        eth[ethernet::DST].copy_from_slice(&dst_mac.0);
        eth[ethernet::SRC].copy_from_slice(&src_mac.0);
        eth[ethernet::TYPE].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        ip[ipv4::VERSION_IHL] = 0x45;
        // Atomic datagrams: no identification is needed (RFC 6864).
        ip[ipv4::FRAGMENT].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        ip[ipv4::TTL] = ttl;
        ip[ipv4::PROTOCOL] = PROTOCOL_UDP;
        ip[ipv4::SRC].copy_from_slice(&src.ip().octets());
        ip[ipv4::DST].copy_from_slice(&dst.ip().octets());
        datagram[udp::SRC].copy_from_slice(&src.port().to_be_bytes());
        datagram[udp::DST].copy_from_slice(&dst.port().to_be_bytes());
        let sum = sum_words(0, ip);
        Self { bytes, sum }
    }

    /// Writes the headers of a frame with `payload` bytes after them, without UDP checksum.
    ///
    /// # Panics
    ///
    /// If `payload` is more than [`MAX_UDP_PAYLOAD`].
    #[inline]
    pub fn emit(&self, payload: usize, headers: &mut [u8; HEADERS_LEN]) {
        use field::{ethernet, ipv4, udp};
        assert!(payload <= MAX_UDP_PAYLOAD, "UDP payload of {payload} bytes");
        *headers = self.bytes;
        let (ip, datagram) = headers[ethernet::LEN..].split_at_mut(ipv4::LEN);
        let udp_length = (udp::LEN + payload) as u16;
        let total = udp_length + ipv4::LEN as u16;
        ip[ipv4::TOTAL_LENGTH].copy_from_slice(&total.to_be_bytes());
        let checksum = !fold(self.sum + u32::from(total));
        ip[ipv4::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        datagram[udp::LENGTH].copy_from_slice(&udp_length.to_be_bytes());
    }

    /// As [`emit`](Self::emit), with the UDP checksum over a payload given in parts, each of even
    /// length but the last.
    pub fn emit_checksummed(&self, payload: &[&[u8]], headers: &mut [u8; HEADERS_LEN]) {
        use field::{ethernet, ipv4, udp};
        self.emit(payload.iter().map(|part| part.len()).sum(), headers);
        let (ip, datagram) = headers[ethernet::LEN..].split_at_mut(ipv4::LEN);
        let pseudo =
            u32::from(PROTOCOL_UDP) + u32::from(u16_at(datagram, udp::LENGTH).unwrap_or(0));
        let mut sum = sum_words(pseudo, &ip[ipv4::SRC.start..ipv4::DST.end]);
        sum = sum_words(sum, datagram);
        for part in payload {
            sum = sum_words(sum, part);
        }
        // Zero would mean that there is none (RFC 768).
        let checksum = match !fold(sum) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[udp::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// One's-complement sum of big-endian words, an odd last byte padded with zero (RFC 1071).
pub(super) fn sum_words(sum: u32, bytes: &[u8]) -> u32 {
    let (words, odd) = bytes.as_chunks::<2>();
    let mut sum = u64::from(sum);
    sum += words
        .iter()
        .map(|w| u64::from(u16::from_be_bytes(*w)))
        .sum::<u64>();
    sum += odd.first().map_or(0, |b| u64::from(*b) << 8);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}

/// The sum in 16 bits.
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template() -> HeaderTemplate {
        HeaderTemplate::multicast(
            MacAddr([2, 0, 0, 0, 0, 1]),
            "10.0.0.1:5000".parse().unwrap(),
            "239.202.1.64:7148".parse().unwrap(),
            4,
        )
        .unwrap()
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADERS_LEN];
        template().emit(payload.len(), frame.first_chunk_mut().unwrap());
        frame.extend_from_slice(payload);
        frame
    }

    /// The example of RFC 1071's method in wide use: a header whose checksum is b861.
    #[test]
    fn checksum_of_a_known_header() {
        let header: [u8; 20] = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(!fold(sum_words(0, &header)), 0xb861);
        let template = HeaderTemplate::new(
            MacAddr::default(),
            MacAddr::default(),
            "192.168.0.1:1".parse().unwrap(),
            "192.168.0.199:2".parse().unwrap(),
            64,
        );
        let mut bytes = [0; HEADERS_LEN];
        template.emit(0x73 - 28, &mut bytes);
        assert_eq!(bytes[14..24], header[..10]);
        assert_eq!(bytes[24..26], [0xb8, 0x61]);
    }

    #[test]
    fn multicast_addresses_keep_23_bits() {
        let mac = |ip: &str| MacAddr::multicast(ip.parse().unwrap()).map(|mac| mac.to_string());
        assert_eq!(mac("239.202.1.64").as_deref(), Some("01:00:5e:4a:01:40"));
        assert_eq!(mac("224.0.0.251").as_deref(), Some("01:00:5e:00:00:fb"));
        assert_eq!(mac("10.0.0.1"), None);
    }

    #[test]
    fn frames_are_read_back() {
        let bytes = frame(b"voltages");
        let datagram = Datagram::new_checked(&bytes).unwrap();
        assert_eq!(datagram.src().to_string(), "10.0.0.1:5000");
        assert_eq!(datagram.dst().to_string(), "239.202.1.64:7148");
        assert_eq!(datagram.payload(), b"voltages");

        let mut padded = bytes.clone();
        padded.extend([0; 10]);
        assert_eq!(Datagram::new_checked(&padded), Ok(datagram));

        let mut tagged = bytes[..12].to_vec();
        tagged.extend([0x88, 0xa8, 0, 1, 0x81, 0, 0, 2]);
        tagged.extend(&bytes[12..]);
        assert_eq!(Datagram::new_checked(&tagged), Ok(datagram));
    }

    #[test]
    fn every_refusal_has_its_error() {
        let error = |at: usize, value: u8| {
            let mut bytes = frame(b"voltages");
            bytes[at] = value;
            Datagram::new_checked(&bytes).unwrap_err()
        };
        let length = |udp, room| FrameError::UdpLength { udp, room };
        assert_eq!(error(12, 0x86), FrameError::NotIpv4(0x8600));
        assert_eq!(error(14, 0x46), FrameError::Ipv4Options);
        assert_eq!(error(14, 0x44), FrameError::BadIpv4);
        assert_eq!(error(14, 0x65), FrameError::BadIpv4);
        assert_eq!(error(17, 19), FrameError::BadIpv4);
        assert_eq!(error(17, 20), length(0, 0));
        assert_eq!(error(17, 37), FrameError::Cut { len: 50 });
        assert_eq!(error(17, 35), length(16, 15));
        assert_eq!(error(17, 25), length(0, 5));
        assert_eq!(error(20, 0x20), FrameError::Fragment);
        assert_eq!(error(21, 0x01), FrameError::Fragment);
        assert_eq!(error(23, 6), FrameError::NotUdp(6));
        let mut igmp = frame(b"router alert");
        (igmp[14], igmp[23]) = (0x46, 2);
        assert_eq!(Datagram::new_checked(&igmp), Err(FrameError::NotUdp(2)));
        assert_eq!(error(39, 15), length(15, 16));
        let bytes = frame(b"voltages");
        for len in 0..bytes.len() {
            let cut = Err(FrameError::Cut { len });
            assert_eq!(Datagram::new_checked(&bytes[..len]), cut);
        }
    }

    /// RFC 1071, word by word.
    fn sum(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0u16, |sum, word| {
            let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
            let (sum, carry) = sum.overflowing_add(word);
            sum + u16::from(carry)
        })
    }

    proptest! {
        #[test]
        fn sums_are_those_of_all_words(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(fold(sum_words(0, &bytes)), sum(&bytes));
        }

        #[test]
        fn every_ipv4_header_adds_up(
            addresses: [[u8; 4]; 2],
            ttl: u8,
            payload in 0..=MAX_UDP_PAYLOAD,
        ) {
            let [src, dst] = addresses.map(|address| SocketAddrV4::new(address.into(), 7148));
            let template =
                HeaderTemplate::new(MacAddr::default(), MacAddr::default(), src, dst, ttl);
            let mut headers = [0; HEADERS_LEN];
            template.emit(payload, &mut headers);
            prop_assert_eq!(sum(&headers[14..34]), 0xffff);
        }

        /// A receiver's check: the sum over the pseudo header and the datagram is all ones.
        #[test]
        fn udp_checksum_verifies(payload in proptest::collection::vec(any::<u8>(), 0..100), cut in 0..50usize) {
            let (a, b) = payload.split_at((2 * cut).min(payload.len()));
            let mut headers = [0; HEADERS_LEN];
            template().emit_checksummed(&[a, b], &mut headers);
            let mut whole = headers[26..34].to_vec();
            whole.extend([0, 17]);
            whole.extend(&headers[38..40]);
            whole.extend(&headers[34..]);
            whole.extend(&payload);
            prop_assert_eq!(sum(&whole), 0xffff);
        }

        #[test]
        fn damage_never_panics(
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            damage in proptest::collection::vec((0..HEADERS_LEN, any::<u8>()), 0..4),
            len in 0..100usize,
        ) {
            let mut bytes = frame(&payload);
            for (at, value) in damage {
                bytes[at] = value;
            }
            bytes.truncate(len);
            if let Ok(datagram) = Datagram::new_checked(&bytes) {
                prop_assert!(datagram.payload().len() <= bytes.len());
            }
        }
    }
}
