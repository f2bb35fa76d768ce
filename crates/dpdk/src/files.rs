//! File descriptors that DPDK needs.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::eal::EalError;

/// With so many EAL and its ports get along.
pub(super) const FEWEST_FILES: u64 = 64;
/// For so many there is to be room.
const FILES: u64 = 1024;

/// Raises the limit of file descriptors to [`FILES`] if the host lets it. Without any, EAL aborts
/// the process, and leaves files that are not finished.
pub(super) fn make_room_for_files() -> Result<(), EalError> {
    // Where the limit cannot be told, EAL finds it out.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Ok(());
    };
    let wanted = soft.max(FILES.min(hard));
    let limit = match wanted > soft {
        true => setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_or(soft, |()| wanted),
        false => soft,
    };
    match limit < FEWEST_FILES {
        true => Err(EalError::Files { limit }),
        false => Ok(()),
    }
}
