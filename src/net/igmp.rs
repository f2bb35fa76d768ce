//! Membership in multicast groups where no kernel sees to it: IGMPv3 (RFC 3376), and versions 2 and
//! 1 (RFC 2236, RFC 1112) as long as a querier speaks no other.
//!
//! [`Message`] reads what comes, [`Host`] decides what is to be said and when. Neither has a clock
//! or a socket.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::frame::{MacAddr, fold, sum_words};

/// Byte ranges, each from the start of its own header.
mod field {
    use std::ops::Range;

    pub const ETHERNET_TYPE: Range<usize> = 12..14;
    pub const ETHERNET: usize = 14;
    pub const VLAN: usize = 4;
    pub const IP_LENGTH: Range<usize> = 2..4;
    pub const IP_FRAGMENT: Range<usize> = 6..8;
    pub const IP_PROTOCOL: usize = 9;
    pub const IP: usize = 20;
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const GROUP: Range<usize> = 4..8;
    /// Length of all messages but those of version 3.
    pub const SHORT: usize = 8;
    /// Shortest query of version 3.
    pub const QUERY: usize = 12;
    pub const QUERY_SOURCES: Range<usize> = 10..12;
}

const PROTOCOL_IGMP: u8 = 2;
const QUERY: u8 = 0x11;
const V1_REPORT: u8 = 0x12;
const V2_REPORT: u8 = 0x16;
const V2_LEAVE: u8 = 0x17;
const V3_REPORT: u8 = 0x22;
/// Records of version 3: the state as it is, and as it becomes.
const MODE_IS_EXCLUDE: u8 = 2;
const CHANGE_TO_INCLUDE: u8 = 3;
const CHANGE_TO_EXCLUDE: u8 = 4;
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// How often what changes is said.
const ROBUSTNESS: u8 = 2;
/// Until it is said again, at most.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a querier of an older version is remembered: two query intervals and a response
/// interval.
const OLDER_QUERIER: Duration = Duration::from_secs(260);
/// How often memberships are reported unasked, in case queries do not get through to us.
const UNASKED: Duration = Duration::from_secs(60);
/// Records in one report of version 3.
const RECORDS: usize = 128;

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// RFC 1112.
    V1,
    /// RFC 2236.
    V2,
    /// RFC 3376.
    V3,
}

/// A message of a querier or of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who is a member?
    Query {
        /// As its length and response time tell.
        version: Version,
        /// Of this group; of any if `None`.
        group: Option<Ipv4Addr>,
        /// When answers are to be there at the latest.
        within: Duration,
    },
    /// Another host's business.
    Other(u8),
}

/// Why a frame is no message that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IgmpError {
    /// Another protocol.
    #[error("not IGMP over IPv4")]
    NotIgmp,
    /// The headers, or the lengths in them, run past the bytes at hand.
    #[error("message is cut off")]
    Cut,
    /// Bits got lost.
    #[error("message has a wrong checksum")]
    Checksum,
    /// A question about something that is no group.
    #[error("query is for {0}, which is no multicast group")]
    NoGroup(Ipv4Addr),
}

impl Message {
    /// Reads an Ethernet frame; VLAN tags are tolerated.
    pub fn parse(frame: &[u8]) -> Result<Self, IgmpError> {
        let message = igmp_of(frame)?;
        if fold(sum_words(0, message)) != 0xffff {
            return Err(IgmpError::Checksum);
        }
        let kind = message[field::TYPE];
        if kind != QUERY {
            return Ok(Self::Other(kind));
        }
        let code = message[field::CODE];
        let (version, tenths) = match message.len() {
            field::SHORT if code == 0 => (Version::V1, 100),
            field::SHORT => (Version::V2, u64::from(code)),
            length => {
                let sources = u16_at(message, field::QUERY_SOURCES).ok_or(IgmpError::Cut)?;
                if length < field::QUERY + 4 * usize::from(sources) {
                    return Err(IgmpError::Cut);
                }
                (Version::V3, floating(code))
            }
        };
        let octets: [u8; 4] = message[field::GROUP]
            .try_into()
            .map_err(|_| IgmpError::Cut)?;
        let group = match Ipv4Addr::from(octets) {
            Ipv4Addr::UNSPECIFIED => None,
            group if group.is_multicast() => Some(group),
            other => return Err(IgmpError::NoGroup(other)),
        };
        Ok(Self::Query {
            version,
            group,
            within: Duration::from_millis(100 * tenths),
        })
    }
}

/// The message in a frame, of at least eight bytes.
fn igmp_of(frame: &[u8]) -> Result<&[u8], IgmpError> {
    let mut rest = frame;
    let mut kind = u16_at(rest, field::ETHERNET_TYPE).ok_or(IgmpError::Cut)?;
    while matches!(kind, 0x8100 | 0x88a8) {
        rest = rest.get(field::VLAN..).ok_or(IgmpError::Cut)?;
        kind = u16_at(rest, field::ETHERNET_TYPE).ok_or(IgmpError::Cut)?;
    }
    let ip = rest.get(field::ETHERNET..).ok_or(IgmpError::Cut)?;
    let first = ip.first().copied().unwrap_or(0);
    if kind != 0x0800 || first >> 4 != 4 {
        return Err(IgmpError::NotIgmp);
    }
    let header = 4 * usize::from(first & 0xf);
    if ip.len() < header.max(field::IP) {
        return Err(IgmpError::Cut);
    }
    let fragment = u16_at(ip, field::IP_FRAGMENT).ok_or(IgmpError::Cut)?;
    if ip[field::IP_PROTOCOL] != PROTOCOL_IGMP || fragment & 0x3fff != 0 {
        return Err(IgmpError::NotIgmp);
    }
    let total = u16_at(ip, field::IP_LENGTH).ok_or(IgmpError::Cut)?;
    let message = ip
        .get(header.max(field::IP)..usize::from(total))
        .ok_or(IgmpError::Cut)?;
    if message.len() < field::SHORT {
        return Err(IgmpError::Cut);
    }
    Ok(message)
}

/// Tenths of a second of a response code of version 3 (RFC 3376, 4.1.1).
fn floating(code: u8) -> u64 {
    match code {
        ..128 => code.into(),
        _ => u64::from(code & 0xf | 0x10) << ((code >> 4 & 7) + 3),
    }
}

fn u16_at(bytes: &[u8], range: std::ops::Range<usize>) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(range)?.first_chunk()?))
}

/// What is yet to be said of a group.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Whether we are a member.
    member: bool,
    /// How often the change is still to be said, and when next.
    changes: (u8, Duration),
    /// When a query is to be answered.
    answer: Option<Duration>,
}

/// One host's memberships on one interface. Times are since any start.
#[derive(Debug)]
pub struct Host {
    mac: MacAddr,
    ip: Ipv4Addr,
    groups: BTreeMap<Ipv4Addr, Group>,
    /// When all are to be reported, because of a query.
    answer_all: Option<Duration>,
    /// When all are to be reported unasked.
    unasked: Duration,
    /// Until when it is remembered that a querier speaks version 1, and that one speaks version 2.
    older: [Duration; 2],
}

impl Host {
    /// A member of nothing, with these addresses.
    pub fn new(mac: MacAddr, ip: Ipv4Addr) -> Self {
        Self {
            mac,
            ip,
            groups: BTreeMap::new(),
            answer_all: None,
            unasked: UNASKED,
            older: [Duration::ZERO; 2],
        }
    }

    /// Becomes a member.
    pub fn join(&mut self, group: Ipv4Addr, now: Duration) {
        self.change(group, true, now);
    }

    /// Leaves a group, if it is a member.
    pub fn leave(&mut self, group: Ipv4Addr, now: Duration) {
        if self.groups.get(&group).is_some_and(|group| group.member) {
            self.change(group, false, now);
        }
    }

    /// Leaves all groups. Whoever asked for them is not answered otherwise.
    pub fn leave_all(&mut self, now: Duration) {
        let groups: Vec<_> = self.groups.keys().copied().collect();
        groups.into_iter().for_each(|group| self.leave(group, now));
        self.answer_all = None;
    }

    fn change(&mut self, group: Ipv4Addr, member: bool, now: Duration) {
        if !group.is_multicast() || self.groups.get(&group).is_some_and(|g| g.member == member) {
            return;
        }
        let state = Group {
            member,
            changes: (ROBUSTNESS, now),
            answer: None,
        };
        self.groups.insert(group, state);
    }

    /// Groups of which it is a member.
    pub fn groups(&self) -> impl Iterator<Item = Ipv4Addr> {
        let members = self.groups.iter().filter(|(_, group)| group.member);
        members.map(|(group, _)| *group)
    }

    /// The version that it speaks at `now`.
    pub fn version(&self, now: Duration) -> Version {
        match self.older.map(|until| now < until) {
            [true, _] => Version::V1,
            [false, true] => Version::V2,
            [false, false] => Version::V3,
        }
    }

    /// Takes in a frame; `random`, from 0 to 1, spreads the answers of all hosts.
    pub fn receive(&mut self, frame: &[u8], now: Duration, random: f64) -> Result<(), IgmpError> {
        let Message::Query {
            version,
            group,
            within,
        } = Message::parse(frame)?
        else {
            return Ok(());
        };
        match version {
            Version::V1 => self.older[0] = now + OLDER_QUERIER,
            Version::V2 => self.older[1] = now + OLDER_QUERIER,
            Version::V3 => {}
        }
        let at = now + within.mul_f64(random.clamp(0.0, 1.0));
        let sooner = |before: Option<Duration>| Some(before.map_or(at, |before| before.min(at)));
        match group {
            None => self.answer_all = sooner(self.answer_all),
            Some(group) => {
                if let Some(group) = self.groups.get_mut(&group).filter(|group| group.member) {
                    group.answer = sooner(group.answer);
                }
            }
        }
        Ok(())
    }

    /// When there is something to say next.
    pub fn next(&self) -> Option<Duration> {
        let groups = self.groups.values().flat_map(|group| {
            let change = (group.changes.0 > 0).then_some(group.changes.1);
            change.into_iter().chain(group.answer)
        });
        let unasked = self.groups().next().map(|_| self.unasked);
        groups.chain(self.answer_all).chain(unasked).min()
    }

    /// The frames that are to be sent at `now`; `random`, from 0 to 1, spreads repetitions.
    pub fn poll(&mut self, now: Duration, random: f64) -> Vec<Vec<u8>> {
        let all = self.answer_all.is_some_and(|at| at <= now) || self.unasked <= now;
        if all {
            self.answer_all = None;
        }
        if self.unasked <= now {
            self.unasked = now + UNASKED;
        }
        let mut records = Vec::new();
        for (&address, group) in &mut self.groups {
            let (left, at) = &mut group.changes;
            let answers = group.member && (all || group.answer.is_some_and(|at| at <= now));
            if *left > 0 && *at <= now {
                *left -= 1;
                *at = now + AGAIN.mul_f64(random.clamp(0.0, 1.0));
                let record = if group.member {
                    CHANGE_TO_EXCLUDE
                } else {
                    CHANGE_TO_INCLUDE
                };
                records.push((record, address));
            } else if answers {
                records.push((MODE_IS_EXCLUDE, address));
            }
            if answers {
                group.answer = None;
            }
        }
        self.groups
            .retain(|_, group| group.member || group.changes.0 > 0);
        match self.version(now) {
            Version::V3 => records
                .chunks(RECORDS)
                .map(|some| self.report(some))
                .collect(),
            older => {
                let frame = |record: &(u8, Ipv4Addr)| self.older_report(older, *record);
                records.iter().filter_map(frame).collect()
            }
        }
    }

    /// A report of version 3.
    fn report(&self, records: &[(u8, Ipv4Addr)]) -> Vec<u8> {
        let mut message = vec![V3_REPORT, 0, 0, 0, 0, 0];
        message.extend((records.len() as u16).to_be_bytes());
        for (kind, group) in records {
            message.extend([*kind, 0, 0, 0]);
            message.extend(group.octets());
        }
        self.frame(V3_ROUTERS, message)
    }

    /// A report of an older version, or a leave message; version 1 has none.
    fn older_report(&self, version: Version, (record, group): (u8, Ipv4Addr)) -> Option<Vec<u8>> {
        let (kind, to) = match (version, record) {
            (Version::V1, CHANGE_TO_INCLUDE) => return None,
            (_, CHANGE_TO_INCLUDE) => (V2_LEAVE, ALL_ROUTERS),
            (Version::V1, _) => (V1_REPORT, group),
            _ => (V2_REPORT, group),
        };
        let mut message = vec![kind, 0, 0, 0];
        message.extend(group.octets());
        Some(self.frame(to, message))
    }

    /// A frame around an IGMP message, whose checksum is filled in. The frame has the option that
    /// makes routers look at it (RFC 2113).
    ///
    /// # Panics
    ///
    /// If the message is shorter than the 4 bytes up to the end of its checksum.
    pub fn frame(&self, to: Ipv4Addr, mut message: Vec<u8>) -> Vec<u8> {
        const CHECKSUM: std::ops::Range<usize> = 2..4;
        const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
        const IP_CHECKSUM: std::ops::Range<usize> = 10..12;
        let checksum = !fold(sum_words(0, &message));
        message[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        // Version 3 is internetwork control (RFC 3376, 4).
        let mut ip = vec![0x46, 0xc0];
        ip.extend((24 + message.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 1, PROTOCOL_IGMP, 0, 0]);
        ip.extend(self.ip.octets());
        ip.extend(to.octets());
        ip.extend(ROUTER_ALERT);
        let checksum = !fold(sum_words(0, &ip));
        ip[IP_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        let dst = MacAddr::multicast(to).unwrap_or(MacAddr([0xff; 6]));
        let mut frame = [dst.0, self.mac.0].concat();
        frame.extend([0x08, 0x00]);
        frame.extend(ip);
        frame.extend(message);
        // Shortest frame without its check sequence.
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// A query, as a router sends it: for tests of both ends.
pub fn query(
    version: Version,
    group: Option<Ipv4Addr>,
    tenths: u8,
    from: (MacAddr, Ipv4Addr),
) -> Vec<u8> {
    let code = if version == Version::V1 { 0 } else { tenths };
    let mut message = vec![QUERY, code, 0, 0];
    message.extend(group.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    if version == Version::V3 {
        // Robustness 2, query interval 125 s, no sources.
        message.extend([2, 125, 0, 0]);
    }
    Host::new(from.0, from.1).frame(group.unwrap_or(ALL_HOSTS), message)
}

#[cfg(test)]
#[path = "igmp_tests.rs"]
mod tests;
