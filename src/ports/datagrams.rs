//! UDP datagrams through DPDK ports, a queue for each end: for what the kernel's sockets are too
//! slow for, and one queue is enough.

use std::fmt;
use std::net::SocketAddrV4;
use std::str::FromStr;
use std::time::Duration;

use dpdk::{
    BURST, DpdkError, Eal, EalConfig, EalError, Mbuf, MbufBatch, MbufPool, PoolConfig, RxQueue,
    TxQueue, memory_mib, pool_bytes, pool_size,
};
use karoo_flow::adapters::DEFAULT_DATAGRAM;

use super::interface::{Interface, InterfaceError};
use super::port::{Membership, PortUse};
use super::port_error::PortError;
use super::preset::{PresetError, devices};
use crate::net::frame::{Datagram, HEADERS_LEN};
use crate::net::{FlowTable, HeaderTemplate};

/// Packets between a sender and its port.
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
pub const PORT_SCHEME: &str = "dpdk:";

impl FromStr for PortAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{text}: {what}; write for example dpdk:eth0:239.1.2.3:5000,size=8192")
        };
        let rest = text
            .strip_prefix(PORT_SCHEME)
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
                    let rule = "idle= must be above 0 and below 1.8e19 seconds";
                    idle = Some(seconds.ok_or_else(|| wrong(rule))?);
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
            "{PORT_SCHEME}{}:{},size={}",
            self.interface, self.peer, self.bytes
        )?;
        self.idle
            .map_or(Ok(()), |idle| write!(f, ",idle={}", idle.as_secs_f64()))
    }
}

/// Ports for datagrams that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DatagramError {
    /// No such interface, or not with this MTU.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The driver of an interface cannot be set up.
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

/// How ports are opened.
#[derive(Clone, Debug)]
pub struct DatagramSettings {
    /// Bytes of packets that may wait in a port.
    pub buffer: usize,
    /// CPU of each worker lcore.
    pub worker_cpus: Vec<usize>,
}

impl Default for DatagramSettings {
    fn default() -> Self {
        Self {
            buffer: 8 << 20,
            worker_cpus: Vec::new(),
        }
    }
}

/// Opened ports. To be kept as long as their ends are used.
#[derive(Debug)]
pub struct DatagramPorts {
    /// One for each input, in their order.
    pub receivers: Vec<DatagramReceiver>,
    /// One for each output.
    pub senders: Vec<DatagramSender>,
    /// What keeps the ports.
    pub kept: KeptPorts,
}

/// What keeps ports open.
#[derive(Debug)]
pub struct KeptPorts {
    memberships: Vec<Membership>,
    /// DPDK.
    pub eal: Eal,
}

/// An interface, and which input and output it has.
struct Used {
    interface: Interface,
    input: Option<usize>,
    output: Option<usize>,
}

/// The interfaces of all ends.
fn used(inputs: &[PortAddress], outputs: &[PortAddress]) -> Result<Vec<Used>, DatagramError> {
    let mut all: Vec<Used> = Vec::new();
    let received = inputs.iter().enumerate();
    let received = received.map(|(at, address)| (address, Some(at), None));
    let sent = outputs.iter().enumerate();
    let sent = sent.map(|(at, address)| (address, None, Some(at)));
    for (address, input, output) in received.chain(sent) {
        let interface = Interface::find(&address.interface)?;
        if output.is_some() {
            interface.check_mtu(address.bytes, "size=")?;
        }
        match all
            .iter_mut()
            .find(|known| known.interface.name == interface.name)
        {
            None => all.push(Used {
                interface,
                input,
                output,
            }),
            Some(known) => {
                let twice = known.input.is_some() && input.is_some()
                    || known.output.is_some() && output.is_some();
                if twice {
                    return Err(DatagramError::Twice(address.to_string()));
                }
                known.interface.check_driver(&interface)?;
                // What is sent comes from the address that the output names.
                if output.is_some() {
                    known.interface = interface;
                }
                (known.input, known.output) = (known.input.or(input), known.output.or(output));
            }
        }
    }
    Ok(all)
}

/// What its port is for.
fn port_use(known: &Used, settings: &DatagramSettings) -> PortUse {
    PortUse {
        rx_queues: usize::from(known.input.is_some()),
        rx_bytes: settings.buffer,
        tx: known.output.is_some(),
        tx_bytes: settings.buffer,
        ..PortUse::default()
    }
}

/// Buffers for datagrams of `bytes`: drivers may keep as many as their queue holds.
fn pool(known: &Used, bytes: usize, settings: &DatagramSettings) -> PoolConfig {
    let kept = port_use(known, settings).tx_packets(&known.interface);
    PoolConfig {
        mbufs: pool_size(QUEUE + kept, 2 * BURST),
        cache: 0,
        data_room: HEADERS_LEN + bytes,
        socket: None,
    }
}

/// Starts DPDK with memory for all of them.
fn start(
    all: &[Used],
    outputs: &[PortAddress],
    settings: &DatagramSettings,
) -> Result<Eal, DatagramError> {
    let bytes = |known: &Used| {
        let pool = known
            .output
            .map(|at| pool(known, outputs[at].bytes, settings));
        let sent = pool.map_or(0, |pool| pool_bytes(pool.mbufs, pool.data_room));
        sent + port_use(known, settings).mbuf_bytes(&known.interface)
    };
    let (devices, huge_pages) = devices(all.iter().map(|known| &known.interface))?;
    let config = EalConfig {
        devices,
        huge_pages,
        memory_mib: memory_mib(all.iter().map(bytes).sum()),
        worker_cpus: settings.worker_cpus.clone(),
        ..EalConfig::default()
    };
    Ok(Eal::init(&config)?)
}

/// Opens the ports of inputs and outputs.
pub fn open_datagrams(
    inputs: &[PortAddress],
    outputs: &[PortAddress],
    settings: &DatagramSettings,
) -> Result<DatagramPorts, DatagramError> {
    let all = used(inputs, outputs)?;
    let eal = start(&all, outputs, settings)?;
    let mut ports = DatagramPorts {
        receivers: Vec::new(),
        senders: Vec::new(),
        kept: KeptPorts {
            memberships: Vec::new(),
            eal: eal.clone(),
        },
    };
    let (mut receivers, mut senders) = (Vec::new(), Vec::new());
    for known in &all {
        let interface = &known.interface;
        let groups: Vec<SocketAddrV4> = known.input.iter().map(|&at| inputs[at].peer).collect();
        let table = match groups.is_empty() {
            true => FlowTable::default(),
            false => FlowTable::from_sources(&groups, 1),
        };
        let mut port = port_use(known, settings).open(&eal, interface, &table)?;
        let missing = || DatagramError::Queue(interface.name.clone());
        if let Some(at) = known.input {
            port.membership.join(&groups, interface)?;
            let receiver = DatagramReceiver {
                queue: port.rx.pop().ok_or_else(missing)?,
                batch: MbufBatch::new(),
                peer: inputs[at].peer,
            };
            receivers.push((at, receiver));
        }
        if let Some(at) = known.output {
            let config = pool(known, outputs[at].bytes, settings);
            let pool = MbufPool::new(&eal, &format!("datagrams_{at}"), config)?;
            let source = SocketAddrV4::new(interface.ip, SOURCE_PORT);
            let template = HeaderTemplate::multicast(port.mac, source, outputs[at].peer, 1);
            let queue = port.tx.pop().ok_or_else(missing)?;
            queue.keep(pool.clone());
            let template = template.ok_or_else(missing)?;
            let sender = DatagramSender {
                frames: FrameMaker { pool, template },
                queue,
                batch: MbufBatch::new(),
            };
            senders.push((at, sender));
        }
        let membership = std::mem::take(&mut port.membership);
        ports.kept.memberships.push(membership);
    }
    receivers.sort_by_key(|(at, _)| *at);
    senders.sort_by_key(|(at, _)| *at);
    ports.receivers = receivers.into_iter().map(|(_, end)| end).collect();
    ports.senders = senders.into_iter().map(|(_, end)| end).collect();
    Ok(ports)
}

/// Takes the datagrams to one group.
#[derive(Debug)]
pub struct DatagramReceiver {
    queue: RxQueue,
    batch: MbufBatch,
    peer: SocketAddrV4,
}

impl DatagramReceiver {
    /// Takes a burst, and gives the payload of each datagram to the group to `each`. Returns how
    /// many packets came.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        let count = self.queue.rx_burst(&mut self.batch);
        for mbuf in self.batch.iter() {
            if let Ok(datagram) = Datagram::new_checked(mbuf.data())
                && datagram.dst() == self.peer
            {
                each(datagram.payload());
            }
        }
        self.batch.clear();
        count
    }

    /// Packets that found no room in the port so far, if it says.
    pub fn missed(&self) -> Option<u64> {
        let stats = self.queue.port().stats();
        stats.ok().map(|stats| stats.rx_missed)
    }
}

/// Puts payloads into frames to one group.
#[derive(Debug)]
pub struct FrameMaker {
    pool: MbufPool,
    template: HeaderTemplate,
}

impl FrameMaker {
    /// A frame with the payload, which is not larger than the address says; `None` while there is
    /// no buffer.
    pub fn frame(&self, payload: &[u8]) -> Option<Mbuf> {
        let mut mbuf = self.pool.alloc()?;
        let data = mbuf.append(HEADERS_LEN + payload.len())?;
        let (headers, rest) = data.split_first_chunk_mut::<HEADERS_LEN>()?;
        self.template.emit(payload.len(), headers);
        rest.copy_from_slice(payload);
        Some(mbuf)
    }
}

/// Sends datagrams to one group.
#[derive(Debug)]
pub struct DatagramSender {
    frames: FrameMaker,
    queue: TxQueue,
    batch: MbufBatch,
}

impl DatagramSender {
    /// Puts a payload behind those that wait; false, and nothing is done, while there is no buffer
    /// or no room.
    pub fn push(&mut self, payload: &[u8]) -> bool {
        if self.batch.room() == 0 {
            return false;
        }
        let frame = self.frames.frame(payload);
        frame.is_some_and(|frame| self.batch.push(frame).is_ok())
    }

    /// Datagrams that wait.
    pub fn waiting(&self) -> usize {
        self.batch.len()
    }

    /// Hands what waits to the port; returns how many it took.
    pub fn hand_over(&mut self) -> usize {
        self.queue.tx_burst(&mut self.batch)
    }

    /// What makes frames, and what sends them, for two threads.
    pub fn into_parts(self) -> (FrameMaker, TxQueue) {
        (self.frames, self.queue)
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
            ("dpdk:eth0:239.1.2.3:5000,idle=1e300", "below 1.8e19"),
        ] {
            let error = text.parse::<PortAddress>().unwrap_err();
            assert!(
                error.contains(wanted) && error.contains("for example"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_interface_has_one_driver() {
        let used = |input: &str, output: &str| {
            let [input, output] = [input, output].map(|name| {
                let text = format!("dpdk:{name}:239.1.2.3:5000");
                text.parse::<PortAddress>().unwrap()
            });
            used(&[input], &[output])
        };
        for output in ["udp:lo", "udp:127.0.0.1"] {
            let all = used("udp:lo", output).unwrap();
            assert_eq!((all.len(), all[0].output), (1, Some(0)));
        }
        let error = used("udp:lo", "af_packet:lo").err().unwrap().to_string();
        assert!(error.contains("UDP sockets and for AF_PACKET"), "{error}");
    }
}
