//! Bytes in UDP datagrams through DPDK ports: the outside of a graph where the kernel's sockets are
//! too slow.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use ground::{Idle, IdlePolicy};
use karoo_flow::adapters::{Stop, TakenDatagrams};

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
        taken: TakenDatagrams::default(),
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
    taken: TakenDatagrams,
    idle: Option<Duration>,
    stop: Stop,
}

impl PortReader {
    /// The same, of which only some datagrams are taken.
    pub fn taking(self, taken: TakenDatagrams) -> PortReader {
        PortReader { taken, ..self }
    }
}

impl Read for PortReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.bytes.len() {
            self.read = 0;
            self.bytes.clear();
            let (receiver, taken) = (&mut self.receiver, &mut self.taken);
            let receive = |bytes: &mut Vec<u8>| {
                receiver.receive(|payload| {
                    if taken.takes(payload.len()) {
                        bytes.extend_from_slice(payload);
                    }
                })
            };
            await_payload(receive, &mut self.bytes, self.idle, &self.stop);
        }
        let count = buffer.len().min(self.bytes.len() - self.read);
        buffer[..count].copy_from_slice(&self.bytes[self.read..][..count]);
        self.read += count;
        Ok(count)
    }
}

/// Receives bursts, of which each call says how many packets it has, until there are bytes. There
/// are none after so long without any, or once all is to stop: also where packets to others come
/// without end.
fn await_payload(
    mut receive: impl FnMut(&mut Vec<u8>) -> usize,
    bytes: &mut Vec<u8>,
    idle: Option<Duration>,
    stop: &Stop,
) {
    let (begin, mut rest) = (Instant::now(), Idle::new(IdlePolicy::Share));
    loop {
        let packets = receive(bytes);
        let silent = idle.is_some_and(|idle| begin.elapsed() >= idle);
        if !bytes.is_empty() || silent || stop.is_set() {
            return;
        }
        match packets {
            0 => rest.wait(),
            _ => rest.reset(),
        }
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
        let begin = Instant::now();
        while !self.sender.push(&self.payload) {
            self.hand_over()?;
            // A port that is stuck may keep all buffers.
            self.check_stop(begin)?;
            idle.wait();
        }
        self.payload.clear();
        Ok(())
    }

    /// Hands the batch to the port, as fast as that takes it.
    fn hand_over(&mut self) -> io::Result<()> {
        let mut idle = Idle::new(IdlePolicy::Share);
        let mut begin = Instant::now();
        while self.sender.waiting() > 0 {
            if self.sender.hand_over() > 0 {
                idle.reset();
                begin = Instant::now();
                continue;
            }
            self.check_stop(begin)?;
            idle.wait();
        }
        Ok(())
    }

    /// Fails if all is to stop, and the port has taken nothing for a second.
    fn check_stop(&self, begin: Instant) -> io::Result<()> {
        match self.stop.is_set() && begin.elapsed() > Duration::from_secs(1) {
            true => Err(io::Error::other(
                "the port takes no packets, and all is to stop",
            )),
            false => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(60);

    /// What is received where bursts never end that have nothing for us.
    fn among_others(idle: Option<Duration>, stop: &Stop) -> Vec<u8> {
        let (begin, mut bytes) = (Instant::now(), Vec::new());
        let receive = |_: &mut Vec<u8>| {
            assert!(begin.elapsed() < LONG, "the input does not end");
            32
        };
        await_payload(receive, &mut bytes, idle, stop);
        bytes
    }

    #[test]
    fn packets_to_others_do_not_keep_an_input_from_its_end() {
        let idle = Duration::from_millis(50);
        assert!(among_others(Some(idle), &Stop::new()).is_empty());
        let stop = Stop::new();
        stop.set();
        assert!(among_others(None, &stop).is_empty());
    }

    #[test]
    fn what_has_come_is_given_before_the_end() {
        let stop = Stop::new();
        stop.set();
        let mut bytes = Vec::new();
        let receive = |bytes: &mut Vec<u8>| {
            bytes.extend(b"samples");
            1
        };
        await_payload(receive, &mut bytes, None, &stop);
        assert_eq!(bytes, b"samples");
    }
}
