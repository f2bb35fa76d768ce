//! Bytes in UDP datagrams through DPDK ports: the outside of a graph where the kernel's sockets are
//! too slow.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use ground::{Idle, IdlePolicy};
use karoo_flow::adapters::Stop;

use crate::ports::{
    DatagramError, DatagramReceiver, DatagramSender, DatagramSettings, KeptPorts, PortAddress,
    open_datagrams,
};

/// Opened ports. To be kept as long as their ends are used.
pub struct OpenPorts {
    /// One for each input, in their order.
    pub readers: Vec<PortReader>,
    /// One for each output.
    pub writers: Vec<PortWriter>,
    /// What keeps the ports.
    pub kept: KeptPorts,
}

/// Opens the ports of inputs and outputs.
pub fn open(
    inputs: &[PortAddress],
    outputs: &[PortAddress],
    stop: &Stop,
) -> Result<OpenPorts, DatagramError> {
    let ports = open_datagrams(inputs, outputs, &DatagramSettings::default())?;
    let reader = |(receiver, address): (_, &PortAddress)| PortReader {
        receiver,
        bytes: Vec::new(),
        read: 0,
        idle: address.idle,
        stop: stop.clone(),
    };
    let writer = |(sender, address): (_, &PortAddress)| PortWriter {
        sender,
        payload: Vec::with_capacity(address.bytes),
        bytes: address.bytes,
        stop: stop.clone(),
    };
    Ok(OpenPorts {
        readers: ports
            .receivers
            .into_iter()
            .zip(inputs)
            .map(reader)
            .collect(),
        writers: ports.senders.into_iter().zip(outputs).map(writer).collect(),
        kept: ports.kept,
    })
}

/// Payloads of datagrams to one group, one behind the other.
pub struct PortReader {
    receiver: DatagramReceiver,
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
            let bytes = &mut self.bytes;
            let keep = |payload: &[u8]| bytes.extend_from_slice(payload);
            if self.receiver.receive(keep) == 0 {
                let silent = self.idle.is_some_and(|idle| begin.elapsed() >= idle);
                if silent || self.stop.is_set() {
                    return Ok(0);
                }
                idle.wait();
            }
        }
        let count = buffer.len().min(self.bytes.len() - self.read);
        buffer[..count].copy_from_slice(&self.bytes[self.read..][..count]);
        self.read += count;
        Ok(count)
    }
}

/// Cuts bytes into datagrams to one group.
pub struct PortWriter {
    sender: DatagramSender,
    payload: Vec<u8>,
    bytes: usize,
    stop: Stop,
}

impl PortWriter {
    /// Puts the payload into a datagram, and waits for a buffer if there is none.
    fn datagram(&mut self) -> io::Result<()> {
        let mut idle = Idle::new(IdlePolicy::Share);
        while !self.sender.push(&self.payload) {
            self.hand_over()?;
            idle.wait();
        }
        self.payload.clear();
        Ok(())
    }

    /// Hands the batch to the port, as fast as that takes it.
    fn hand_over(&mut self) -> io::Result<()> {
        let mut idle = Idle::new(IdlePolicy::Share);
        let begin = Instant::now();
        while self.sender.waiting() > 0 {
            if self.sender.hand_over() > 0 {
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
            self.datagram()?;
        }
        Ok(count)
    }

    /// Sends what is left, as a shorter datagram.
    fn flush(&mut self) -> io::Result<()> {
        if !self.payload.is_empty() {
            self.datagram()?;
        }
        self.hand_over()
    }
}
