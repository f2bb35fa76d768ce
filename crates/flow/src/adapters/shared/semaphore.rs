//! Named semaphores, by which the ends of shared memory find each other.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::ptr::NonNull;

use super::name;

/// Rights of semaphores: the owner's alone, as Laminar's programs give them.
const OWNER: libc::mode_t = 0o700;

/// A named semaphore.
pub(super) struct Semaphore {
    semaphore: NonNull<libc::sem_t>,
    name: CString,
}

// SAFETY: POSIX semaphores are made for use by several threads.
unsafe impl Send for Semaphore {}

impl Semaphore {
    pub(super) fn open(text: String) -> io::Result<Semaphore> {
        let name = name(text)?;
        // SAFETY: the name is a string that ends with 0; a semaphore that is made begins at 0.
        let semaphore = unsafe { libc::sem_open(name.as_ptr(), libc::O_CREAT, OWNER, 0) };
        if semaphore == libc::SEM_FAILED {
            return Err(io::Error::last_os_error());
        }
        let semaphore = NonNull::new(semaphore).ok_or(ErrorKind::Other)?;
        Ok(Semaphore { semaphore, name })
    }

    pub(super) fn post(&self) -> io::Result<()> {
        // SAFETY: the semaphore is open as long as this value lives.
        match unsafe { libc::sem_post(self.semaphore.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes one, if there is one.
    pub(super) fn try_wait(&self) -> bool {
        // SAFETY: the semaphore is open as long as this value lives.
        unsafe { libc::sem_trywait(self.semaphore.as_ptr()) == 0 }
    }

    pub(super) fn unlink(&self) {
        // SAFETY: the name is a string that ends with 0.
        unsafe { libc::sem_unlink(self.name.as_ptr()) };
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        unsafe { libc::sem_close(self.semaphore.as_ptr()) };
    }
}
