//! Locks on segments. A writer locks its segment as a whole, a reader a range of its own in it:
//! both as long as they live, and neither is in the way of the other.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Rights of segments that their writers lock. Those of Laminar's programs have 0o700.
pub(super) const LOCKED: libc::mode_t = 0o600;

/// Locks a segment as long as the file is open, if nobody else does.
pub(super) fn try_lock(segment: &File, how: libc::c_int) -> bool {
    // SAFETY: the descriptor is open.
    unsafe { libc::flock(segment.as_raw_fd(), how | libc::LOCK_NB) == 0 }
}

/// Whether its writer locks a segment.
pub(super) fn is_of_karoo(segment: &File) -> io::Result<bool> {
    Ok(segment.metadata()?.mode() & 0o777 == LOCKED)
}

/// Whether a segment's writer is gone, and has left it there: it is locked then. Of those that
/// nobody locks this is not known.
pub(super) fn is_left(segment: &File) -> io::Result<bool> {
    Ok(is_of_karoo(segment)? && try_lock(segment, libc::LOCK_SH))
}

/// Does `what` with the range of readers. Says what kind of lock there is then.
fn of_reader(segment: &File, what: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: a structure of numbers, of which each may be 0.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_len = 1;
    // SAFETY: the descriptor is open, and the structure is this function's own.
    match unsafe { libc::fcntl(segment.as_raw_fd(), what, &raw mut range) } {
        0 => Ok(range.l_type.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Locks the range of readers as long as the file is open.
pub(super) fn lock_as_reader(segment: &File) -> io::Result<()> {
    of_reader(segment, libc::F_OFD_SETLK).map(|_| ())
}

/// Whether a reader lives that locks its range. Programs of Laminar's lock nothing.
pub(super) fn has_reader(segment: &File) -> bool {
    let kind = of_reader(segment, libc::F_OFD_GETLK);
    kind.is_ok_and(|kind| kind != libc::F_UNLCK)
}
