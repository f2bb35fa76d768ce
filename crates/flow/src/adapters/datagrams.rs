//! Which datagrams are samples, and how datagrams are sent.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;

/// Decides which datagrams of an input are taken. A sample may span datagrams. But where all so far
/// were whole samples, one that is not is another program's, or damaged: all samples behind it
/// would be made of parts of two.
pub struct TakenDatagrams {
    /// Bytes of a sample.
    sample: usize,
    /// Whether any was taken, and all were whole samples.
    whole: Option<bool>,
    left_out: u64,
    tell: Box<dyn FnMut(usize, u64) + Send>,
}

impl TakenDatagrams {
    /// Of an input with samples of so many bytes. For each datagram that is left out `tell` gets
    /// its bytes, and how many have been left out by now.
    pub fn of_samples(
        sample: usize,
        tell: impl FnMut(usize, u64) + Send + 'static,
    ) -> TakenDatagrams {
        TakenDatagrams {
            sample: sample.max(1),
            whole: None,
            left_out: 0,
            tell: Box::new(tell),
        }
    }

    /// Whether a datagram of so many bytes, the next one, is taken.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let whole = bytes.is_multiple_of(self.sample);
        if self.whole == Some(true) && !whole {
            self.left_out += 1;
            (self.tell)(bytes, self.left_out);
            return false;
        }
        // An empty one says nothing of the others.
        if bytes > 0 {
            self.whole = Some(whole && self.whole != Some(false));
        }
        true
    }
}

/// Takes all datagrams: samples of a byte.
impl Default for TakenDatagrams {
    fn default() -> TakenDatagrams {
        TakenDatagrams::of_samples(1, |_, _| {})
    }
}

/// Sends datagrams, and goes on where the way to the peer is gone for a while.
pub struct DatagramSender {
    socket: UdpSocket,
    lost: LostDatagrams,
}

impl DatagramSender {
    /// By a connected socket.
    pub fn new(socket: UdpSocket, lost: LostDatagrams) -> DatagramSender {
        DatagramSender { socket, lost }
    }

    /// Sends a datagram, or loses it. Fails where no datagram ever had a way to the peer.
    pub fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let socket = &self.socket;
        self.lost.sent(|| socket.send(datagram))
    }
}

/// Datagrams that were lost on this host because there was no way to the peer: its interface is
/// down, or no route leads there any more.
pub struct LostDatagrams {
    lost: LostCounts,
    /// Whether there was a way to the peer once.
    had_way: bool,
    tell: Box<TellLost>,
}

type TellLost = dyn FnMut(&io::Error, LostCounts) + Send;

/// How many datagrams were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LostCounts {
    /// Since there last was a way to the peer.
    pub in_a_row: u64,
    /// In all.
    pub all: u64,
}

impl LostDatagrams {
    /// For each datagram that is lost `tell` gets the cause, and how many have been lost by now.
    pub fn telling(tell: impl FnMut(&io::Error, LostCounts) + Send + 'static) -> LostDatagrams {
        LostDatagrams {
            lost: LostCounts::default(),
            had_way: false,
            tell: Box::new(tell),
        }
    }

    /// Sends a datagram. A signal that interrupts this is not told: whoever writes would write
    /// again what is in the datagram already.
    fn sent(&mut self, mut send: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
        let error = loop {
            match send() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nobody listens: datagrams are lost then, as they are elsewhere.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => break None,
                Err(error) => break Some(error),
                Ok(_) => break None,
            }
        };
        match error {
            None => (self.had_way, self.lost.in_a_row) = (true, 0),
            Some(error) if self.had_way && has_no_way(&error) => {
                self.lost.in_a_row += 1;
                self.lost.all += 1;
                (self.tell)(&error, self.lost);
            }
            Some(error) => return Err(error),
        }
        Ok(())
    }
}

/// Tells nobody.
impl Default for LostDatagrams {
    fn default() -> LostDatagrams {
        LostDatagrams::telling(|_, _| {})
    }
}

/// Whether a datagram was not sent for a reason that may pass.
fn has_no_way(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::NetworkDown,
        ErrorKind::NetworkUnreachable,
        ErrorKind::HostUnreachable,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_does_not_end_an_output_of_datagrams() {
        let kinds = [
            ErrorKind::Interrupted,
            ErrorKind::Interrupted,
            ErrorKind::ConnectionRefused,
        ];
        let mut errors = kinds.into_iter();
        let send = || errors.next().map_or(Ok(1), |kind| Err(kind.into()));
        LostDatagrams::default().sent(send).unwrap();
        assert_eq!(errors.next(), None);
    }

    #[test]
    fn a_way_that_was_there_may_be_gone_for_a_while() {
        let (tell, told) = std::sync::mpsc::channel();
        let mut lost = LostDatagrams::telling(move |error, lost| {
            tell.send((error.kind(), lost.in_a_row, lost.all)).unwrap();
        });
        let unreachable = || Err(ErrorKind::NetworkUnreachable.into());
        // To nowhere from the start: somebody has mistaken the address.
        let error = lost.sent(unreachable).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
        lost.sent(|| Ok(1)).unwrap();
        lost.sent(unreachable).unwrap();
        lost.sent(|| Err(ErrorKind::HostUnreachable.into()))
            .unwrap();
        lost.sent(|| Ok(1)).unwrap();
        let full = io::Error::from_raw_os_error(libc::ENOBUFS);
        let kind = full.kind();
        let mut full = Some(full);
        lost.sent(|| Err(full.take().unwrap())).unwrap();
        let expected = [
            (ErrorKind::NetworkUnreachable, 1, 1),
            (ErrorKind::HostUnreachable, 2, 2),
            (kind, 1, 3),
        ];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
        // What will not pass.
        let denied = lost.sent(|| Err(ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }

    fn taken(sample: usize, datagrams: &[usize]) -> Vec<usize> {
        let mut taken = TakenDatagrams::of_samples(sample, |_, _| {});
        let all = datagrams.iter().copied();
        all.filter(|&bytes| taken.takes(bytes)).collect()
    }

    #[test]
    fn among_whole_samples_parts_are_left_out() {
        assert_eq!(taken(4, &[8, 1, 8, 0, 6, 12]), [8, 8, 0, 12]);
        assert_eq!(taken(1, &[8, 1, 7]), [8, 1, 7]);
    }

    #[test]
    fn samples_may_span_datagrams() {
        assert_eq!(taken(8, &[100, 100, 8, 100]), [100, 100, 8, 100]);
    }

    #[test]
    fn each_datagram_that_is_left_out_is_told() {
        let (to, told) = std::sync::mpsc::channel();
        let mut taken = TakenDatagrams::of_samples(2, move |bytes, so_far| {
            to.send((bytes, so_far)).unwrap();
        });
        for bytes in [4, 3, 4, 1] {
            taken.takes(bytes);
        }
        drop(taken);
        assert_eq!(told.iter().collect::<Vec<_>>(), [(3, 1), (1, 2)]);
    }
}
