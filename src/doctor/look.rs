//! The look itself: sockets that see and listen for a while.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

use ground::StopFlag;
use ground::os::{PacketTap, send_groups_through};
use katcp::reading::unix_now;
use nix::net::if_::if_indextoname;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::BindToDevice;
use socket2::{Domain, Protocol, Socket, Type};

use super::asked::Asked;
use super::evidence::{Blind, Evidence, IgmpPath};
use super::finding::Ailment;
use super::host::{Files, Named, since};
use super::listener::Listener;
use super::sight::{PROBED, Sight};
use crate::ports::{Interface, Memberships};

/// Bytes of frames that may wait.
const BUFFER: usize = 4 << 20;
/// Bytes of frames that may wait beside a running engine.
const SMALL_BUFFER: usize = 256 << 10;
/// Longest frame that is looked into: those of offloads have up to 64 KiB.
const FRAME: usize = 66_000;
/// How long a call waits for a frame.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the kernel may take to bring a host's message to itself.
const PROBE: Duration = Duration::from_millis(200);
/// Messages that may wait to be heard, and more.
const QUEUE: usize = 4096;
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// A query of IGMPv3 for [`PROBED`], with the defaults of robustness and interval (RFC 3376, 4.1).
const QUERY: [u8; 12] = {
    let [a, b, c, d] = PROBED.octets();
    [0x11, 1, 0xfc, 0x82, a, b, c, d, 2, 125, 0, 0]
};

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// For how long.
    pub time: Duration,
    /// Beside a running engine: nothing is joined, tried or switched, for the engine has.
    pub beside_engine: bool,
}

/// Looks at interfaces and wire, and returns what there was until `stop` was set, or all.
pub fn look(asked: &Asked, how: Look, stop: &StopFlag) -> io::Result<Evidence> {
    let (receive, send) = (Named::all(&asked.receive), Named::all(&asked.send));
    let mut evidence = Evidence::default();
    for named in receive.iter().chain(&send) {
        let refusal = named.refusal();
        evidence.refused.extend(refusal);
    }
    // An engine has used the others.
    let usable = |code| !how.beside_engine || code == Ailment::InterfaceDown;
    evidence.refused.retain(|(code, _)| usable(*code));
    evidence.refused.sort();
    evidence.refused.dedup();
    let files = Files(Path::new("/"));
    let (before, dropped) = (files.interfaces(), files.reverse_path_drops());
    let interfaces: Vec<_> = receive.iter().filter_map(Named::of_kernel).collect();
    // Listens from before the host is a member, so as to hear the first that comes of it.
    let mut ears = Vec::new();
    let mut memberships = Memberships::default();
    evidence.looked = (unix_now(), unix_now());
    match taps(&interfaces, how) {
        _ if interfaces.is_empty() => evidence.blind = Some(Blind::NotTheKernels),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            evidence.blind = Some(Blind::NoRights);
            let listeners = Listener::all(&asked.endpoints, &interfaces, how, PATIENCE)?;
            let sight = Sight::of(&asked.endpoints);
            listen(&listeners, sight, (how.time, stop), &mut evidence)?;
        }
        Err(error) => return Err(error),
        Ok(taps) => {
            for interface in &interfaces {
                ears.extend(Ear::open(interface).ok());
            }
            for ear in &mut ears {
                let path = match how.beside_engine {
                    true => IgmpPath::Untried,
                    false => ear.probe(),
                };
                evidence.igmp.insert(ear.interface.clone(), path);
            }
            if !how.beside_engine {
                for interface in &interfaces {
                    // What cannot be joined, an engine says.
                    let _ = memberships.join(&asked.endpoints, interface);
                }
            }
            let sight = Sight::of(&asked.endpoints);
            watch(&taps, sight, (how.time, stop), &mut evidence)?;
            evidence.heard = ears.iter_mut().flat_map(Ear::queriers).collect();
        }
    }
    let after = files.interfaces();
    evidence.interfaces = since(&before, after, &receive, &send);
    let now = files.reverse_path_drops();
    evidence.reverse_path_drops = now.zip(dropped).map(|(now, was)| now.saturating_sub(was));
    Ok(evidence)
}

/// Where to look: at all interfaces, for heaps may come to another than they should. Beside a
/// running engine at its own alone, so that others on this host are not touched.
fn taps(interfaces: &[&Interface], how: Look) -> io::Result<Vec<PacketTap>> {
    if how.beside_engine {
        let one = |interface: &&Interface| PacketTap::open(interface.index, SMALL_BUFFER, PATIENCE);
        return interfaces.iter().map(one).collect();
    }
    let tap = PacketTap::open(0, BUFFER, PATIENCE)?;
    for interface in interfaces {
        tap.see_all(interface.index)?;
    }
    Ok(vec![tap])
}

/// Takes datagrams in for a while.
fn listen(
    listeners: &[Listener],
    mut sight: Sight,
    (time, stop): (Duration, &StopFlag),
    evidence: &mut Evidence,
) -> io::Result<()> {
    let mut room = vec![0; FRAME];
    let begun = Instant::now();
    let is_over = || begun.elapsed() >= time;
    let ends = || is_over() || stop.is_set();
    evidence.looked.0 = unix_now();
    for listener in listeners.iter().cycle() {
        if ends() {
            break;
        }
        // As many as one that sends fast may have waiting.
        for _ in 0..QUEUE {
            if ends() || !listener.listen(&mut sight, &mut room, unix_now())? {
                break;
            }
        }
    }
    evidence.looked.1 = unix_now();
    evidence.cut_short_of = (stop.is_set() && !is_over()).then_some(time.as_secs_f64());
    evidence.missed = listeners.iter().map(Listener::missed).sum();
    evidence.wire = sight.into_wire();
    Ok(())
}

/// Takes frames in for a while.
fn watch(
    taps: &[PacketTap],
    mut sight: Sight,
    (time, stop): (Duration, &StopFlag),
    evidence: &mut Evidence,
) -> io::Result<()> {
    let mut names = BTreeMap::new();
    let mut frame = vec![0; FRAME];
    let begun = Instant::now();
    let is_over = || begun.elapsed() >= time;
    evidence.looked.0 = unix_now();
    for tap in taps.iter().cycle() {
        if is_over() || stop.is_set() {
            break;
        }
        let Some(seen) = tap.receive(&mut frame)? else {
            continue;
        };
        let name = names.entry(seen.interface).or_insert_with(|| {
            let name = if_indextoname(seen.interface);
            name.map_or(String::new(), |name| name.to_string_lossy().into_owned())
        });
        sight.note(name, seen.vlan, &frame[..seen.copied], seen.unix);
    }
    evidence.looked.1 = unix_now();
    evidence.cut_short_of = (stop.is_set() && !is_over()).then_some(time.as_secs_f64());
    evidence.missed = taps.iter().map(PacketTap::missed).sum();
    evidence.wire = sight.into_wire();
    Ok(())
}

/// A socket that hears the IGMP that the kernel hears on an interface: behind firewall and reverse
/// path filter.
struct Ear {
    interface: String,
    index: u32,
    ip: Ipv4Addr,
    socket: Socket,
    /// Who has asked.
    queriers: BTreeSet<Ipv4Addr>,
}

impl Ear {
    fn open(interface: &Interface) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(2)))?;
        setsockopt(&socket, BindToDevice, &OsString::from(&interface.name))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            interface: interface.name.clone(),
            index: interface.index,
            ip: interface.ip,
            socket,
            queriers: BTreeSet::new(),
        })
    }

    /// Sends a query to this host alone, and listens for it. Its time to live of 0 keeps it off the
    /// wire (RFC 1112, 6.1).
    fn probe(&mut self) -> IgmpPath {
        let send = || -> io::Result<()> {
            let sender = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(2)))?;
            sender.set_multicast_ttl_v4(0)?;
            sender.set_multicast_loop_v4(true)?;
            send_groups_through(&sender, self.index, self.ip)?;
            sender.send_to(&QUERY, &SocketAddrV4::new(ALL_HOSTS, 0).into())?;
            Ok(())
        };
        match send() {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return IgmpPath::DroppedOut;
            }
            Err(_) => return IgmpPath::Untried,
            Ok(()) => {}
        }
        let begun = Instant::now();
        while begun.elapsed() < PROBE {
            match self.hear() {
                Some((source, message)) if source == self.ip && message.starts_with(&QUERY) => {
                    return IgmpPath::Open;
                }
                _ => {}
            }
        }
        IgmpPath::DroppedIn
    }

    /// A message and its sender.
    fn hear(&mut self) -> Option<(Ipv4Addr, Vec<u8>)> {
        let mut packet = [0; 2048];
        let length = self.socket.read(&mut packet).ok()?;
        let header = usize::from(packet[0] & 0xf) * 4;
        let source: [u8; 4] = packet[12..16].try_into().ok()?;
        let message = packet[..length].get(header..)?;
        if message.first() == Some(&QUERY[0]) {
            self.queriers.insert(source.into());
        }
        Some((source.into(), message.to_vec()))
    }

    /// Who has asked since the start, by interface.
    fn queriers(&mut self) -> Vec<(String, Ipv4Addr)> {
        // Whoever asks without end is heard often enough.
        let _ = self.socket.set_nonblocking(true);
        let _ = (0..QUEUE).take_while(|_| self.hear().is_some()).count();
        let interface = |ip: &Ipv4Addr| (self.interface.clone(), *ip);
        self.queriers.iter().map(interface).collect()
    }
}
