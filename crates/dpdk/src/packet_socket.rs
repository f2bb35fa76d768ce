//! Sockets of the AF_PACKET driver, asked for what the kernel dropped: DPDK 22.11's does not tell.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, mem};

use super::sockets::wait;

/// Sockets of one port, and what they dropped so far.
#[derive(Debug, Default)]
pub(super) struct PacketSockets {
    sockets: Vec<OwnedFd>,
    dropped: AtomicU64,
}

impl PacketSockets {
    /// Those that `make` opens. Whoever else opens such sockets in this process holds the same lock
    /// as the caller.
    pub(super) fn opened_by<T>(make: impl FnOnce() -> T) -> (T, Self) {
        let before = all();
        let made = make();
        let new = all().into_iter().filter(|fd| !before.contains(fd));
        let duplicate = |fd: RawFd| {
            // SAFETY: the driver has just opened it, and closes it with its port, which the caller
            // makes later.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            fd.try_clone_to_owned().ok()
        };
        let sockets = Self {
            sockets: new.filter_map(duplicate).collect(),
            dropped: AtomicU64::new(0),
        };
        (made, sockets)
    }

    /// Whether there are any, to wake who waits.
    pub(super) fn wake(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Waits until a packet comes to one of them, for so long at most.
    pub(super) fn wait(&self, most: Duration) {
        wait(self.sockets.iter().map(OwnedFd::as_fd), most);
    }

    /// Packets that found no room in a ring, since the start.
    pub(super) fn dropped(&self) -> u64 {
        // The kernel's counter starts anew when it is read.
        let new: u64 = self.sockets.iter().map(drops).sum();
        self.dropped.fetch_add(new, Ordering::Relaxed) + new
    }
}

fn drops(socket: &OwnedFd) -> u64 {
    // SAFETY: integers, for which zero is a value.
    let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
    let got = option(
        socket.as_raw_fd(),
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        &mut stats,
    );
    if got { stats.tp_drops.into() } else { 0 }
}

/// All packet sockets of this process.
fn all() -> BTreeSet<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return BTreeSet::new();
    };
    let fds = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    fds.filter(|&fd| {
        let mut domain = 0;
        option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain) && domain == libc::AF_PACKET
    })
    .collect()
}

/// Reads an option of a socket; false if it has none such, or is no socket.
pub(super) fn option<T: Copy>(fd: RawFd, level: i32, name: i32, value: &mut T) -> bool {
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, whose types are made of
    // integers; a descriptor that is none is refused.
    let ret = unsafe {
        libc::getsockopt(
            fd,
            level,
            name,
            std::ptr::from_mut(value).cast(),
            &mut length,
        )
    };
    ret == 0
}
