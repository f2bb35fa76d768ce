//! TCP and UDP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::net::{Shutdown, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use super::datagrams::{DatagramSender, LostDatagrams, TakenDatagrams};
use super::pipe::unsent;
use super::stop::{LAST, LOOK, Stop, takes_nothing};

/// All addresses of a name, of which there is one at least.
pub fn resolve(peer: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = peer.to_socket_addrs()?.collect();
    match addresses.is_empty() {
        true => Err(io::Error::new(
            ErrorKind::NotFound,
            format!("{peer} has no address"),
        )),
        false => Ok(addresses),
    }
}

/// What opens at the first address at which it does; the error names the last one.
pub fn first<T>(
    addresses: &[SocketAddr],
    mut open: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = ErrorKind::NotFound.into();
    for &address in addresses {
        match open(address) {
            Ok(opened) => return Ok(opened),
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// How long a peer that has all of an output may go on talking.
const TALK: Duration = Duration::from_secs(10);

/// A peer's host that is silent is asked every ten seconds, six times, whether it is there.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(10))
    .with_retries(6);

fn stopped(what: &str) -> io::Error {
    io::Error::other(format!("stopped before {what}"))
}

/// One TCP connection.
pub(super) struct Stream {
    stream: TcpStream,
    /// Whether the output has ended.
    ended: bool,
    stop: Stop,
}

impl Stream {
    /// Connects to the first address of the peer's name that answers. A peer that does not listen
    /// yet is tried again until `stop` is set.
    pub fn connect(peer: &str, stop: &Stop) -> io::Result<Stream> {
        Stream::connect_to(&resolve(peer)?, stop)
    }

    fn connect_to(addresses: &[SocketAddr], stop: &Stop) -> io::Result<Stream> {
        const TRIES: usize = 100;
        let mut tries = 0;
        loop {
            let mut refused = false;
            let connected = first(addresses, |address| {
                TcpStream::connect_timeout(&address, Duration::from_secs(5))
                    .inspect_err(|error| refused |= error.kind() == ErrorKind::ConnectionRefused)
            });
            tries += 1;
            match connected {
                Ok(stream) => return Stream::of(stream, stop),
                Err(_) if stop.is_set() => return Err(stopped("the peer listens")),
                // One that refuses may be about to listen.
                Err(_) if refused && tries < TRIES => std::thread::sleep(LOOK),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for one peer.
    pub fn accept(local: &str, stop: &Stop) -> io::Result<Stream> {
        let listener = first(&resolve(local)?, TcpListener::bind)?;
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
        stream.set_write_timeout(Some(LOOK))?;
        // An input whose peer's host is gone would wait for ever.
        SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
        Ok(Stream {
            stream,
            ended: false,
            stop: stop.clone(),
        })
    }
}

/// Whether there was nothing to read or no room for now. A connection that has timed out, as that
/// to a host that is gone, is an error.
fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
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
        let begin = Instant::now();
        loop {
            match self.stream.write(bytes) {
                Err(error) if waits(&error) => {
                    if self.stop.is_set() && begin.elapsed() > LAST {
                        return Err(takes_nothing());
                    }
                }
                other => return other,
            }
        }
    }

    /// Ends the output; the second time, waits until the peer's host has all of it. What the peer
    /// says is read meanwhile and dropped: a connection that is closed with something unread is
    /// reset, and what has not been taken is lost. Where the peer does not close its end, it has
    /// another second to say something, and ten if it goes on talking.
    fn flush(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.ended, true) {
            return self.stream.shutdown(Shutdown::Write);
        }
        let mut dropped = [0; 4096];
        let (mut last, mut since, mut silent) = (usize::MAX, Instant::now(), Instant::now());
        loop {
            let ended = match self.stream.read(&mut dropped) {
                Ok(0) => true,
                Ok(_) => {
                    silent = Instant::now();
                    false
                }
                // A connection that has timed out is an error here.
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(error) if error.kind() == ErrorKind::Interrupted => false,
                Err(error) => return Err(error),
            };
            // Of a peer that has ended its end, reads no longer tell that it resets the connection.
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            let left = unsent(&self.stream)?;
            if left != last {
                (last, since) = (left, Instant::now());
            }
            let stopped = self.stop.is_set() && since.elapsed() > LAST;
            let quiet = silent.elapsed() > LAST || since.elapsed() > TALK;
            match left {
                0 if ended || stopped || quiet => return Ok(()),
                1.. if stopped => return Err(takes_nothing()),
                _ => {}
            }
            // Nothing more comes that a read would wait for.
            if ended {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
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
    taken: TakenDatagrams,
    stop: Stop,
}

impl Datagrams {
    pub fn bind(
        local: &str,
        idle: Option<Duration>,
        taken: TakenDatagrams,
        stop: &Stop,
    ) -> io::Result<Datagrams> {
        let socket = first(&resolve(local)?, UdpSocket::bind)?;
        match socket.local_addr()?.ip() {
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
            taken,
            stop: stop.clone(),
        })
    }
}

impl Read for Datagrams {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begin = Instant::now();
        while self.at == self.end {
            match self.socket.recv(&mut self.datagram) {
                // An empty one is no sample.
                Ok(bytes) if self.taken.takes(bytes) => (self.at, self.end) = (0, bytes),
                Ok(_) => {}
                Err(error) if waits(&error) => {}
                Err(error) => return Err(error),
            }
            let idle = self.idle.is_some_and(|idle| begin.elapsed() >= idle);
            if self.at == self.end && (idle || self.stop.is_set()) {
                return Ok(0);
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
    sender: DatagramSender,
    datagram: Vec<u8>,
    bytes: usize,
}

impl Sender {
    pub fn connect(peer: &str, bytes: usize, lost: LostDatagrams) -> io::Result<Sender> {
        let socket = first(&resolve(peer)?, |address| {
            let any: IpAddr = match address {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(address)?;
            Ok(socket)
        })?;
        Ok(Sender {
            sender: DatagramSender::new(socket, lost),
            datagram: Vec::with_capacity(bytes),
            bytes,
        })
    }

    fn send(&mut self) -> io::Result<()> {
        self.sender.send(&self.datagram)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An output and its peer.
    fn connected(stop: &Stop) -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let writer = Stream::connect(&to, stop).unwrap();
        (writer, listener.accept().unwrap().0)
    }

    /// Ends an output, and waits.
    fn end(writer: &mut Stream) -> io::Result<()> {
        writer.flush()?;
        writer.flush()
    }

    /// No connection can lose its peer's host here: the kernel does the asking.
    #[test]
    fn a_silent_peer_is_asked_whether_it_is_there() {
        let (writer, peer) = connected(&Stop::new());
        let of_output = SockRef::from(&writer.stream);
        assert!(of_output.keepalive().unwrap());
        assert_eq!(
            of_output.tcp_keepalive_time().unwrap(),
            Duration::from_secs(10)
        );
        assert_eq!(of_output.tcp_keepalive_retries().unwrap(), 6);
        assert!(!SockRef::from(&peer).keepalive().unwrap());
        // What it says of one that is not.
        assert!(!waits(&io::Error::from_raw_os_error(libc::ETIMEDOUT)));
        assert!(waits(&writer.stream.peek(&mut [0]).unwrap_err()));
    }

    /// Addresses of this host at which nobody listens, but for the last.
    fn addresses(listener: &TcpListener) -> Vec<SocketAddr> {
        let listens = listener.local_addr().unwrap();
        let refuses = |last| SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), listens.port());
        vec![refuses(2), refuses(3), listens]
    }

    #[test]
    fn each_address_of_a_name_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = addresses(&listener);
        let mut writer = Stream::connect_to(&addresses, &Stop::new()).unwrap();
        writer.write_all(b"samples").unwrap();
        drop(writer);
        let mut got = String::new();
        let (mut reader, _) = listener.accept().unwrap();
        reader.read_to_string(&mut got).unwrap();
        assert_eq!(got, "samples");
    }

    /// What is closed with something unread is reset, and the peer loses what it has not read.
    #[test]
    fn a_peer_that_has_said_something_gets_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap().to_string();
        let all = vec![7; 8 << 20];
        let (count, (to_peer, told)) = (all.len(), std::sync::mpsc::channel());
        let peer = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            peer.write_all(b"hello").unwrap();
            told.recv().unwrap();
            let mut got = Vec::new();
            peer.read_to_end(&mut got).map(|_| got.len())
        });
        let mut writer = Stream::connect(&to, &Stop::new()).unwrap();
        // What the peer says is there.
        while writer.stream.peek(&mut [0]).is_err() {}
        to_peer.send(()).unwrap();
        writer.write_all(&all).unwrap();
        end(&mut writer).unwrap();
        drop(writer);
        assert_eq!(peer.join().unwrap().unwrap(), count);
    }

    /// It may wait for something else before it ends the connection.
    #[test]
    fn a_peer_that_does_not_close_does_not_keep_an_output_from_its_end() {
        let (mut writer, mut peer) = connected(&Stop::new());
        writer.write_all(b"samples").unwrap();
        end(&mut writer).unwrap();
        drop(writer);
        let mut got = String::new();
        peer.read_to_string(&mut got).unwrap();
        assert_eq!(got, "samples");
    }

    /// Nor does one that goes on talking, once all is to stop.
    #[test]
    fn a_peer_that_talks_without_end_does_not_either() {
        let stop = Stop::new();
        let (mut writer, mut peer) = connected(&stop);
        writer.write_all(b"samples").unwrap();
        let talks = std::thread::spawn(move || {
            let mut got = [0; 7];
            peer.read_exact(&mut got).unwrap();
            stop.set();
            // Until the connection is closed.
            while peer.write_all(b"status").is_ok() {}
            got
        });
        end(&mut writer).unwrap();
        drop(writer);
        assert_eq!(&talks.join().unwrap(), b"samples");
    }

    /// Reads give the end that it has sent, and not that the connection is gone.
    #[test]
    fn a_peer_that_ends_its_end_and_goes_is_told() {
        let (mut writer, peer) = connected(&Stop::new());
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(writer.stream.read(&mut [0]).unwrap(), 0);
        // More than the connection takes while nobody reads.
        while writer.stream.write(&[7; 1 << 16]).is_ok() {}
        let mut same = writer.stream.try_clone().unwrap();
        let (told, flushed) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(end(&mut writer)));
        let ended = |error: io::Error| error.kind() == ErrorKind::BrokenPipe;
        while !same.write(&[7]).is_err_and(ended) {}
        drop(peer);
        let flushed = flushed.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(flushed.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    /// Its data would be lost without a word.
    #[test]
    fn a_peer_that_resets_the_connection_is_told() {
        let (mut writer, peer) = connected(&Stop::new());
        writer.write_all(b"samples").unwrap();
        // Closed with something unread.
        while peer.peek(&mut [0]).unwrap() == 0 {}
        drop(peer);
        let error = end(&mut writer).unwrap_err();
        let kinds = [
            ErrorKind::ConnectionReset,
            ErrorKind::BrokenPipe,
            ErrorKind::NotConnected,
        ];
        assert!(kinds.contains(&error.kind()), "{error}");
    }

    #[test]
    fn datagrams_that_are_not_taken_are_not_read() {
        let (idle, stop) = (Some(Duration::from_millis(100)), Stop::new());
        let taken = TakenDatagrams::of_samples(2, |_, _| {});
        let mut reader = Datagrams::bind("127.0.0.1:0", idle, taken, &stop).unwrap();
        let to = reader.socket.local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for datagram in [&[1, 0, 1, 0][..], &[255], &[1, 0]] {
            socket.send_to(datagram, to).unwrap();
        }
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(got, [1, 0, 1, 0, 1, 0]);
    }

    /// A reader of datagrams would wait for ever if they came faster than it looks whether it is
    /// to end.
    #[test]
    fn empty_datagrams_do_not_keep_an_input_from_its_end() {
        let idle = Some(Duration::from_millis(100));
        let taken = TakenDatagrams::default();
        let mut reader = Datagrams::bind("127.0.0.1:0", idle, taken, &Stop::new()).unwrap();
        let to = reader.socket.local_addr().unwrap();
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(reader.read(&mut [0; 8]).unwrap()));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (begin, long) = (Instant::now(), Duration::from_secs(60));
        let read = loop {
            // Once the reader is gone, nobody listens.
            let _ = socket.send_to(&[], to);
            match end.recv_timeout(Duration::from_micros(100)) {
                Ok(read) => break read,
                Err(_) => assert!(begin.elapsed() < long, "the input does not end"),
            }
        };
        assert_eq!(read, 0);
    }

    #[test]
    fn the_last_address_is_named_if_none_opens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap();
        let error = first(&[taken, taken], TcpListener::bind).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(
            error.to_string().starts_with(&format!("{taken}: ")),
            "{error}"
        );
    }
}
