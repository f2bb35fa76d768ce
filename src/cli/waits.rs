//! Who waits for a peer, in the log once that lasts.

use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use karoo_flow::adapters::Address;

use super::is_pipe;

/// How long a peer is waited for without a word.
const SILENT: Duration = Duration::from_secs(1);

/// Which way samples go at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They come from there.
    In,
    /// They go there.
    Out,
}

/// Says what a port or an option waits for at its address until there is a peer; `None` where
/// nobody is waited for.
pub fn wait_in_words(port: &str, address: &Address, way: Way) -> Option<String> {
    let peer = match way {
        Way::In => "a writer",
        Way::Out => "a reader",
    };
    Some(match address {
        Address::File(path) if is_pipe(path) => format!("{port} waits for {peer} of {address}"),
        Address::File(_) | Address::Standard | Address::Udp { .. } => return None,
        Address::Connect(_) => format!("{port} waits for a peer that listens at {address}"),
        Address::Listen(_) => format!("{port} waits for a peer that connects to {address}"),
        Address::Shared { .. } => {
            format!("{port} waits for {peer} of {address}, which must say the same size")
        }
    })
}

/// A wait that is told in the log, if it has not been dropped within a second.
pub struct ToldWait {
    /// Its end wakes the thread that would tell.
    _over: Sender<()>,
}

/// The wait begins; `text` is what is told.
#[must_use]
pub fn tell_wait(text: String) -> ToldWait {
    let (over, ended) = channel();
    let tell = move || {
        if ended.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout) {
            tracing::info!("{text}");
        }
    };
    // Without a thread nothing is told, and all else goes on.
    let _ = thread::Builder::new().name("wait".to_owned()).spawn(tell);
    ToldWait { _over: over }
}

/// An output whose first write waits for its peer, as of shared memory: `begin` says so, and what
/// it gives is kept meanwhile.
pub struct FirstWaits<W, F> {
    writer: W,
    begin: Option<F>,
}

impl<W, F> FirstWaits<W, F> {
    /// Nothing has been written yet.
    pub fn new(writer: W, begin: F) -> Self {
        Self {
            writer,
            begin: Some(begin),
        }
    }
}

impl<W: Write, T, F: FnOnce() -> T> Write for FirstWaits<W, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _waits = self.begin.take().map(|begin| begin());
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_where_both_ends_must_say_the_same() {
        let words = |port: &str, text: &str, way| wait_in_words(port, &text.parse().unwrap(), way);
        let out = words("y", "shm:k,size=1024", Way::Out).unwrap();
        assert_eq!(
            out,
            "y waits for a reader of shm:k,size=1024, which must say the same size"
        );
        let listens = words("x", "tcp-listen:127.0.0.1:1", Way::In).unwrap();
        assert!(listens.starts_with("x waits for a peer that connects"));
        assert_eq!(words("x", "udp:127.0.0.1:1", Way::In), None);
        assert_eq!(words("x", "/dev/null", Way::In), None);
    }

    /// Only the first write waits.
    #[test]
    fn a_wait_is_over_with_the_first_write() {
        let (began, ended) = channel();
        let mut writer = FirstWaits::new(Vec::new(), || began.send(()));
        writer.write_all(b"one").unwrap();
        writer.write_all(b"two").unwrap();
        assert_eq!(ended.try_iter().count(), 1);
    }
}
