//! Worker lcores: pinned threads that EAL made, each running one job at a time.

use std::any::Any;
use std::ffi::{CString, c_int, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::Eal;
use super::error::{DpdkError, Errno};

/// Number of an lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LcoreId(pub u32);

impl fmt::Display for LcoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A worker lcore and the CPU it is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// Number of the lcore.
    pub id: LcoreId,
    /// CPU of the lcore.
    pub cpu: usize,
}

/// A job's panic.
#[derive(Debug, thiserror::Error)]
#[error("lcore {lcore} ({name}) panicked: {message}")]
pub struct LcorePanic {
    /// Where.
    pub lcore: LcoreId,
    /// Name of the job.
    pub name: String,
    /// Panic message.
    pub message: String,
}

/// A running job. Dropping it lets the job run on.
#[derive(Debug)]
pub struct LcoreHandle<T> {
    lcore: LcoreId,
    name: String,
    result: Receiver<std::thread::Result<T>>,
    _eal: Eal,
}

struct Job {
    name: CString,
    run: Box<dyn FnOnce() + Send>,
    _eal: Eal,
}

impl Eal {
    /// Runs `job` on a worker lcore, whose thread is called `name` (the first 15 bytes of it).
    ///
    /// Refuses a busy lcore (`EBUSY`) and one that [`Eal::workers`] does not list.
    pub fn launch<T: Send + 'static>(
        &self,
        lcore: LcoreId,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<LcoreHandle<T>, DpdkError> {
        if !self.workers().iter().any(|worker| worker.id == lcore) {
            return Err(DpdkError::Value {
                what: "lcore",
                value: lcore.to_string(),
                rule: "must be a worker lcore that EAL was started with",
            });
        }
        let (sender, result): (SyncSender<std::thread::Result<T>>, _) = sync_channel(1);
        let run = Box::new(move || {
            // The closure is consumed whether it panics or not, so nobody sees a broken invariant.
            let outcome = catch_unwind(AssertUnwindSafe(job));
            let _ = sender.send(outcome);
        });
        let short: String = name
            .chars()
            .filter(|c| c.is_ascii_graphic())
            .take(15)
            .collect();
        let job = Box::into_raw(Box::new(Job {
            name: CString::new(short).unwrap_or_default(),
            run,
            _eal: self.clone(),
        }));
        let _control = self.control();
        // SAFETY: `job` is an owned allocation which `run_job` takes over; the lcore exists;
        // launches are serialised by the control lock.
        let ret = unsafe { dpdk_sys::rte_eal_remote_launch(Some(run_job), job.cast(), lcore.0) };
        if ret != 0 {
            // SAFETY: the launch failed, so the job is still ours alone.
            drop(unsafe { Box::from_raw(job) });
            return Err(DpdkError::call(
                format!("rte_eal_remote_launch({name}, lcore {lcore})"),
                Errno::from_return(ret),
            ));
        }
        Ok(LcoreHandle {
            lcore,
            name: name.to_owned(),
            result,
            _eal: self.clone(),
        })
    }
}

impl<T> LcoreHandle<T> {
    /// The lcore that the job runs on.
    pub fn lcore(&self) -> LcoreId {
        self.lcore
    }

    /// Waits for the job; the lcore is free again afterwards.
    pub fn join(self) -> Result<T, LcorePanic> {
        let outcome = self.result.recv();
        // The result came from inside the job: it still has to return to EAL's loop, which takes no
        // time. SAFETY: EAL is up and the lcore exists.
        unsafe { dpdk_sys::rte_eal_wait_lcore(self.lcore.0) };
        let message = match outcome {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(panic)) => panic_message(panic.as_ref()),
            Err(_) => "ended without a result".to_owned(),
        };
        Err(LcorePanic {
            lcore: self.lcore,
            name: self.name,
            message,
        })
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

unsafe extern "C" fn run_job(job: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a Box<Job> and gives it up.
    let Job { name, run, _eal } = *unsafe { Box::from_raw(job.cast::<Job>()) };
    // SAFETY: `name` is a C string of at most 15 bytes, and the thread is this one.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
    run();
    0
}
