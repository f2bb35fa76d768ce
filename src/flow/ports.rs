//! Samples in UDP datagrams through DPDK ports: the outside of a graph where the kernel's sockets
//! are too slow.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::str::FromStr;
use std::time::{Duration, Instant};

use dpdk::{
    BURST, DpdkError, Eal, EalConfig, EalError, MbufBatch, MbufPool, PoolConfig, RxQueue, TxQueue,
    memory_mib, pool_bytes, pool_size,
};
use ground::{Idle, IdlePolicy};
use karoo_flow::adapters::{DEFAULT_DATAGRAM, Stop};

use crate::net::frame::{Datagram, HEADERS_LEN};
use crate::net::{FlowTable, HeaderTemplate};
use crate::ports::{
    Interface, InterfaceError, Membership, PortError, PortUse, PresetError, devices,
};

/// Bytes of packets that may wait in a port.
const BUFFER: usize = 8 << 20;
/// Packets between an output and its port.
const QUEUE: usize = 512;
/// The UDP port that datagrams say they come from.
const SOURCE_PORT: u16 = 49152;

/// `dpdk:INTERFACE:GROUP:PORT`, with `size=` and `idle=` as for `udp:`.
#[derive(Clone, Debug, PartialEq)]
pub struct PortAddress {
    /// The interface, as `karoo fgpu` takes it.
    pub interface: String,
    /// Multicast group and UDP port.
    pub peer: SocketAddrV4,
    /// Bytes of a datagram that is sent.
    pub bytes: usize,
    /// After so long without a datagram an input ends.
    pub idle: Option<Duration>,
}

/// What such an address begins with.
pub const SCHEME: &str = "dpdk:";

impl FromStr for PortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{text}: {what}; write for example dpdk:eth0:239.1.2.3:5000,size=8192")
        };
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| wrong("no dpdk: in front"))?;
        let mut words = rest.split(',');
        let place = words.next().unwrap_or_default();
        let (ends, port) = place.rsplit_once(':').ok_or_else(|| wrong("no port"))?;
        let (interface, group) = ends.rsplit_once(':').ok_or_else(|| wrong("no group"))?;
        let peer = format!("{group}:{port}").parse::<SocketAddrV4>();
        let peer = peer.map_err(|_| wrong("no IPv4 address and port"))?;
        if interface.is_empty() {
            return Err(wrong("no interface"));
        }
        if !peer.ip().is_multicast() {
            return Err(wrong("the address is no multicast group"));
        }
        let (mut bytes, mut idle) = (DEFAULT_DATAGRAM, None);
        for word in words {
            match word.split_once('=') {
                Some(("size", value)) => {
                    let size = value
                        .parse()
                        .ok()
                        .filter(|size| (1..=65_507).contains(size));
                    bytes = size.ok_or_else(|| wrong("size= must be 1 to 65507 bytes"))?;
                }
                Some(("idle", value)) => {
                    let seconds = value
                        .parse()
                        .ok()
                        .and_then(|s| Duration::try_from_secs_f64(s).ok());
                    let seconds = seconds.filter(|time| !time.is_zero());
                    idle = Some(seconds.ok_or_else(|| wrong("idle= must be seconds above 0"))?);
                }
                _ => return Err(wrong("there are size= and idle= alone")),
            }
        }
        let interface = interface.to_owned();
        Ok(Self {
            interface,
            peer,
            bytes,
            idle,
        })
    }
}

impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{SCHEME}{}:{},size={}",
            self.interface, self.peer, self.bytes
        )?;
        self.idle
            .map_or(Ok(()), |idle| write!(f, ",idle={}", idle.as_secs_f64()))
    }
}

/// Ports that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// No such interface, or not with this MTU.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Its driver cannot be set up.
    #[error(transparent)]
    Preset(#[from] PresetError),
    /// DPDK refuses.
    #[error(transparent)]
    Dpdk(#[from] DpdkError),
    /// DPDK does not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// It gives no port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Two inputs, or two outputs, on one interface.
    #[error("{0}: an interface takes one input and one output")]
    Twice(String),
    /// A port without a queue.
    #[error("{0}: the port has no queue")]
    Queue(String),
}

/// Opened ports. To be kept as long as their ends are used.
pub struct OpenPorts {
    /// One for each input, in their order.
    pub readers: Vec<PortReader>,
    /// One for each output.
    pub writers: Vec<PortWriter>,
    /// What keeps the ports.
    pub kept: KeptPorts,
}

/// What keeps ports open.
pub struct KeptPorts {
    _memberships: Vec<Membership>,
    _eal: Eal,
}

/// Opens the ports of inputs and outputs.
pub fn open(
    inputs: &[PortAddress],
    outputs: &[PortAddress],
    stop: &Stop,
) -> Result<OpenPorts, PortsError> {
    let mut interfaces: Vec<(Interface, Option<usize>, Option<usize>)> = Vec::new();
    let ends = inputs
        .iter()
        .enumerate()
        .map(|(at, address)| (address, Some(at), None));
    let ends = ends.chain(
        outputs
            .iter()
            .enumerate()
            .map(|(at, address)| (address, None, Some(at))),
    );
    for (address, input, output) in ends {
        let interface = Interface::find(&address.interface)?;
        if output.is_some() {
            interface.check_mtu(address.bytes, "size=")?;
        }
        match interfaces
            .iter_mut()
            .find(|known| known.0.name == interface.name)
        {
            None => interfaces.push((interface, input, output)),
            Some(known) => {
                if known.1.is_some() && input.is_some() || known.2.is_some() && output.is_some() {
                    return Err(PortsError::Twice(address.to_string()));
                }
                (known.1, known.2) = (known.1.or(input), known.2.or(output));
            }
        }
    }
    let uses: Vec<PortUse> = interfaces
        .iter()
        .map(|(_, input, output)| PortUse {
            rx_queues: usize::from(input.is_some()),
            rx_bytes: BUFFER,
            tx: output.is_some(),
            tx_bytes: BUFFER,
            ..PortUse::default()
        })
        .collect();
    let mbufs = pool_size(QUEUE, 2 * BURST);
    let room = |address: &PortAddress| HEADERS_LEN + address.bytes;
    let pools: usize = outputs
        .iter()
        .map(|address| pool_bytes(mbufs, room(address)))
        .sum();
    let ports = interfaces
        .iter()
        .zip(&uses)
        .map(|(known, port)| port.mbuf_bytes(&known.0));
    let bytes = pools + ports.sum::<usize>();
    let (pci, huge_pages) = devices(interfaces.iter().map(|known| &known.0))?;
    let eal = Eal::init(&EalConfig {
        devices: pci,
        huge_pages,
        memory_mib: memory_mib(bytes),
        ..EalConfig::default()
    })?;
    let mut readers: Vec<Option<PortReader>> = inputs.iter().map(|_| None).collect();
    let mut writers: Vec<Option<PortWriter>> = outputs.iter().map(|_| None).collect();
    let mut memberships = Vec::new();
    for ((interface, input, output), port_use) in interfaces.iter().zip(&uses) {
        let groups: Vec<SocketAddrV4> = input.iter().map(|&at| inputs[at].peer).collect();
        let table = match groups.is_empty() {
            true => FlowTable::default(),
            false => FlowTable::from_sources(&groups, 1),
        };
        let mut port = port_use.open(&eal, interface, &table)?;
        let missing = || PortsError::Queue(interface.name.clone());
        if let Some(at) = *input {
            port.membership.join(&groups, interface)?;
            readers[at] = Some(PortReader {
                queue: port.rx.pop().ok_or_else(missing)?,
                batch: MbufBatch::new(),
                peer: inputs[at].peer,
                bytes: Vec::new(),
                read: 0,
                idle: inputs[at].idle,
                stop: stop.clone(),
            });
        }
        if let Some(at) = *output {
            let address = &outputs[at];
            let pool = PoolConfig {
                mbufs,
                cache: 0,
                data_room: room(address),
                socket: None,
            };
            let source = SocketAddrV4::new(interface.ip, SOURCE_PORT);
            let template = HeaderTemplate::multicast(port.mac, source, address.peer, 1);
            writers[at] = Some(PortWriter {
                queue: port.tx.pop().ok_or_else(missing)?,
                pool: MbufPool::new(&eal, &format!("flow_{at}"), pool)?,
                template: template.ok_or_else(missing)?,
                batch: MbufBatch::new(),
                payload: Vec::with_capacity(address.bytes),
                bytes: address.bytes,
                stop: stop.clone(),
            });
        }
        memberships.push(std::mem::take(&mut port.membership));
    }
    Ok(OpenPorts {
        readers: readers.into_iter().flatten().collect(),
        writers: writers.into_iter().flatten().collect(),
        kept: KeptPorts {
            _memberships: memberships,
            _eal: eal,
        },
    })
}

/// Payloads of datagrams to one group, one behind the other.
pub struct PortReader {
    queue: RxQueue,
    batch: MbufBatch,
    peer: SocketAddrV4,
    /// Payloads of a burst, and how far they are read.
    bytes: Vec<u8>,
    read: usize,
    idle: Option<Duration>,
    stop: Stop,
}

impl Read for PortReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (begin, mut idle) = (Instant::now(), Idle::new(IdlePolicy::Share));
        while self.read == self.bytes.len() {
            self.read = 0;
            self.bytes.clear();
            if self.queue.rx_burst(&mut self.batch) == 0 {
                let silent = self.idle.is_some_and(|idle| begin.elapsed() >= idle);
                if silent || self.stop.is_set() {
                    return Ok(0);
                }
                idle.wait();
                continue;
            }
            for mbuf in self.batch.iter() {
                if let Ok(datagram) = Datagram::new_checked(mbuf.data())
                    && datagram.dst() == self.peer
                {
                    self.bytes.extend_from_slice(datagram.payload());
                }
            }
            self.batch.clear();
        }
        let count = buffer.len().min(self.bytes.len() - self.read);
        buffer[..count].copy_from_slice(&self.bytes[self.read..][..count]);
        self.read += count;
        Ok(count)
    }
}

/// Cuts bytes into datagrams to one group.
pub struct PortWriter {
    queue: TxQueue,
    pool: MbufPool,
    template: HeaderTemplate,
    batch: MbufBatch,
    payload: Vec<u8>,
    bytes: usize,
    stop: Stop,
}

impl PortWriter {
    /// Puts the payload into a frame, and waits for a buffer if there is none.
    fn frame(&mut self) -> io::Result<()> {
        let mut idle = Idle::new(IdlePolicy::Share);
        let mut mbuf = loop {
            if let Some(mbuf) = self.pool.alloc() {
                break mbuf;
            }
            self.hand_over()?;
            idle.wait();
        };
        let bytes = self.payload.len();
        let data = mbuf
            .append(HEADERS_LEN + bytes)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        if let Some((headers, rest)) = data.split_first_chunk_mut::<HEADERS_LEN>() {
            self.template.emit(bytes, headers);
            rest.copy_from_slice(&self.payload);
        }
        self.payload.clear();
        // There is room: a full batch is handed over.
        let _ = self.batch.push(mbuf);
        if self.batch.room() == 0 {
            self.hand_over()
        } else {
            Ok(())
        }
    }

    /// Hands the batch to the port, as fast as that takes it.
    fn hand_over(&mut self) -> io::Result<()> {
        let mut idle = Idle::new(IdlePolicy::Share);
        let begin = Instant::now();
        while !self.batch.is_empty() {
            if self.queue.tx_burst(&mut self.batch) > 0 {
                idle.reset();
                continue;
            }
            if self.stop.is_set() && begin.elapsed() > Duration::from_secs(1) {
                return Err(io::Error::other(
                    "the port takes no packets, and all is to stop",
                ));
            }
            idle.wait();
        }
        Ok(())
    }
}

impl Write for PortWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.bytes - self.payload.len());
        self.payload.extend_from_slice(&bytes[..count]);
        if self.payload.len() == self.bytes {
            self.frame()?;
        }
        Ok(count)
    }

    /// Sends what is left, as a shorter datagram.
    fn flush(&mut self) -> io::Result<()> {
        if !self.payload.is_empty() {
            self.frame()?;
        }
        self.hand_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_what_they_write_and_mistakes_are_named() {
        let text = "dpdk:af_packet:veth0:239.1.2.3:5000,size=8192,idle=0.5";
        let address: PortAddress = text.parse().unwrap();
        assert_eq!(address.interface, "af_packet:veth0");
        assert_eq!(address.to_string(), text);
        for (text, wanted) in [
            ("dpdk:eth0", "no port"),
            ("dpdk:eth0:5000", "no group"),
            ("dpdk:eth0:10.0.0.1:5000", "no multicast group"),
            ("dpdk:eth0:239.1.2.3:5000,size=0", "1 to 65507"),
            ("dpdk:eth0:239.1.2.3:5000,fast", "alone"),
        ] {
            let error = text.parse::<PortAddress>().unwrap_err();
            assert!(
                error.contains(wanted) && error.contains("for example"),
                "{error}"
            );
        }
    }
}
