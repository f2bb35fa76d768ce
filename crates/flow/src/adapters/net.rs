//! TCP and UDP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::stop::{LOOK, Stop};

/// The first address of a name.
fn resolve(peer: &str) -> io::Result<SocketAddr> {
    let none = || io::Error::new(ErrorKind::NotFound, format!("{peer} has no address"));
    peer.to_socket_addrs()?.next().ok_or_else(none)
}

fn stopped(what: &str) -> io::Error {
    io::Error::other(format!("stopped before {what}"))
}

/// One TCP connection.
pub(super) struct Stream {
    stream: TcpStream,
    stop: Stop,
}

impl Stream {
    /// Connects. A peer that does not listen yet is tried again until `stop` is set.
    pub fn connect(peer: &str, stop: &Stop) -> io::Result<Stream> {
        const TRIES: usize = 100;
        let address = resolve(peer)?;
        let mut last = None;
        for _ in 0..TRIES {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => return Stream::of(stream, stop),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => last = Some(error),
                Err(error) => return Err(error),
            }
            if stop.is_set() {
                return Err(stopped("the peer listens"));
            }
            std::thread::sleep(LOOK);
        }
        Err(last.unwrap_or_else(|| ErrorKind::TimedOut.into()))
    }

    /// Waits for one peer.
    pub fn accept(local: &str, stop: &Stop) -> io::Result<Stream> {
        let listener = TcpListener::bind(resolve(local)?)?;
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Stream::of(stream, stop),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if stop.is_set() {
                return Err(stopped("a peer connects"));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn of(stream: TcpStream, stop: &Stop) -> io::Result<Stream> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        Ok(Stream {
            stream,
            stop: stop.clone(),
        })
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if waits(&error) && self.stop.is_set() => return Ok(0),
                Err(error) if waits(&error) => {}
                other => return other,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Datagrams one behind the other.
pub(super) struct Datagrams {
    socket: UdpSocket,
    datagram: Vec<u8>,
    /// What has been read of the datagram, and what there is of it.
    at: usize,
    end: usize,
    idle: Option<Duration>,
    stop: Stop,
}

impl Datagrams {
    pub fn bind(local: &str, idle: Option<Duration>, stop: &Stop) -> io::Result<Datagrams> {
        let address = resolve(local)?;
        let socket = UdpSocket::bind(address)?;
        match address.ip() {
            IpAddr::V4(group) if group.is_multicast() => {
                socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?;
            }
            IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
            _ => {}
        }
        socket.set_read_timeout(Some(LOOK))?;
        Ok(Datagrams {
            socket,
            datagram: vec![0; 1 << 16],
            at: 0,
            end: 0,
            idle,
            stop: stop.clone(),
        })
    }
}

impl Read for Datagrams {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begin = Instant::now();
        while self.at == self.end {
            match self.socket.recv(&mut self.datagram) {
                Ok(bytes) => (self.at, self.end) = (0, bytes),
                Err(error) if waits(&error) => {
                    let idle = self.idle.is_some_and(|idle| begin.elapsed() >= idle);
                    if idle || self.stop.is_set() {
                        return Ok(0);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let count = buffer.len().min(self.end - self.at);
        buffer[..count].copy_from_slice(&self.datagram[self.at..][..count]);
        self.at += count;
        Ok(count)
    }
}

/// Cuts bytes into datagrams.
pub(super) struct Sender {
    socket: UdpSocket,
    datagram: Vec<u8>,
    bytes: usize,
}

impl Sender {
    pub fn connect(peer: &str, bytes: usize) -> io::Result<Sender> {
        let address = resolve(peer)?;
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(address)?;
        Ok(Sender {
            socket,
            datagram: Vec::with_capacity(bytes),
            bytes,
        })
    }

    fn send(&mut self) -> io::Result<()> {
        match self.socket.send(&self.datagram) {
            // Nobody listens: datagrams are lost then, as they are elsewhere.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.datagram.clear();
        Ok(())
    }
}

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.bytes - self.datagram.len());
        self.datagram.extend_from_slice(&bytes[..count]);
        if self.datagram.len() == self.bytes {
            self.send()?;
        }
        Ok(count)
    }

    /// Sends what is left, as a shorter datagram.
    fn flush(&mut self) -> io::Result<()> {
        if self.datagram.is_empty() {
            Ok(())
        } else {
            self.send()
        }
    }
}
