//! Which NUMA node memory comes from.

use std::io;

/// Nodes that a mask can name.
const NODES: usize = 1024;

/// Lets memory that this thread, and threads that it starts from now on, touch first come from
/// `node` while it has any.
pub fn prefer_node(node: usize) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask: [libc::c_ulong; NODES / BITS] = [0; NODES / BITS];
    let word = mask
        .get_mut(node / BITS)
        .ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (node % BITS);
    // The kernel reads one bit less than it is told.
    // SAFETY: it reads NODES bits of the mask, which it has, and changes nothing of ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES + 1,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_are_there_are_preferred() {
        // In a thread of its own, whose policy ends with it.
        let outcome =
            std::thread::spawn(|| (prefer_node(0), prefer_node(NODES - 1), prefer_node(NODES)));
        let (first, last, beyond) = outcome.join().unwrap();
        // A kernel without NUMA, or a container that may not, says so.
        if let Err(error) = first {
            let known = [libc::ENOSYS, libc::EPERM];
            assert!(known.contains(&error.raw_os_error().unwrap()), "{error}");
        }
        assert!(last.is_err() && beyond.is_err());
    }
}
