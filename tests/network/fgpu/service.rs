//! What a service manager hears of an engine.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::rig::{Rig, SUBSTREAMS, TOO_LONG};

/// Period of the watchdog: four looks.
const PERIOD: Duration = Duration::from_secs(2);

/// The socket that an engine tells its state to.
struct Manager(UnixDatagram);

impl Manager {
    /// The next message, if there is one within `time`.
    fn heard(&self, time: Duration) -> Option<String> {
        let mut message = [0; 4096];
        self.0.set_read_timeout(Some(time)).unwrap();
        match self.0.recv(&mut message) {
            Ok(bytes) => Some(String::from_utf8_lossy(&message[..bytes]).into_owned()),
            // Callers look at the clock and ask again; the thread that is traced may interrupt this
            // one.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a message with this line; returns those before it, and it.
    fn wait(&self, line: &str, time: Duration) -> Vec<String> {
        let begun = Instant::now();
        let mut heard: Vec<String> = Vec::new();
        while !heard.last().is_some_and(|message| has(message, line)) {
            assert!(begun.elapsed() < time, "no {line}: {heard:?}");
            heard.extend(self.heard(Duration::from_millis(50)));
        }
        heard
    }

    /// All messages that come within `time`.
    fn all(&self, time: Duration) -> Vec<String> {
        let end = Instant::now() + time;
        let left = || end.checked_duration_since(Instant::now());
        let times = std::iter::from_fn(left).filter(|left| !left.is_zero());
        times.filter_map(|left| self.heard(left)).collect()
    }
}

fn has(message: &str, line: &str) -> bool {
    message.lines().any(|other| other == line)
}

/// Nothing is received all the while: that is no reason to stop feeding.
#[test]
fn the_watchdog_is_fed_while_all_threads_turn() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let period = PERIOD.as_micros().to_string();
    let environment = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", &period),
    ];
    let Some(mut rig) = Rig::starting("service", &[], &environment) else {
        return;
    };
    let before = manager.wait("READY=1", TOO_LONG);
    // Control is the last that starts.
    assert!(rig.log().contains("up"), "{}", rig.log());
    assert!(before[0].starts_with("STATUS=Starting"), "{before:?}");
    assert!(!before.iter().any(|message| has(message, "WATCHDOG=1")));
    for _ in 0..3 {
        manager.wait("WATCHDOG=1", TOO_LONG);
    }

    let stopped = Stopped::asleep(rig.id(), "engine");
    // On a busy machine it may seem to be stuck before, and others too: what is behind the last
    // message counts.
    manager.wait("STATUS=Stuck: engine", TOO_LONG);
    assert!(rig.log().contains("threads=\"engine\""), "{}", rig.log());
    let mut told = manager.all(2 * PERIOD);
    let stuck = |message: &String| has(message, "STATUS=Stuck: engine");
    told.drain(..told.iter().rposition(stuck).unwrap_or(0));
    assert!(
        !told.iter().any(|message| has(message, "WATCHDOG=1")),
        "{told:?}"
    );
    drop(stopped);
    manager.wait("WATCHDOG=1", TOO_LONG);

    rig.signal("TERM");
    let last = manager.wait("STOPPING=1", TOO_LONG);
    let last = last.last().unwrap();
    assert!(has(last, "STATUS=Ending: SIGTERM"));
    // Longer than it may take: the service manager waits for the end of the engine's own choice.
    let extended = last
        .lines()
        .find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC="));
    let extended: u64 = extended.expect(last).parse().unwrap();
    assert!((10_000_000..20_000_000).contains(&extended), "{extended}");
    assert_eq!(rig.ended().code(), Some(0), "{}", rig.log());
    assert_eq!(rig.received.stops, SUBSTREAMS);
    while let Some(message) = manager.heard(Duration::from_millis(1)) {
        assert!(!has(&message, "WATCHDOG=1"), "{message}");
    }
}

/// The engine waits in the middle of its start, for a service manager that takes no message.
#[test]
fn a_signal_ends_an_engine_that_is_not_up_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let other = UnixDatagram::unbound().unwrap();
    other.set_nonblocking(true).unwrap();
    while other.send_to(b"full", &path).is_ok() {}
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let Some(mut rig) = Rig::starting("early", &[], &environment) else {
        return;
    };
    let status = format!("/proc/{}/status", rig.id());
    rig.wait(|_| catches_sigterm(&fs::read_to_string(&status).unwrap_or_default()));
    rig.signal("TERM");
    let heard = thread::scope(|scope| {
        let drain = scope.spawn(|| manager.wait("STOPPING=1", TOO_LONG));
        assert_eq!(rig.died().code(), Some(0), "{}", rig.log());
        drain.join().unwrap()
    });
    assert!(
        !heard.iter().any(|message| has(message, "READY=1")),
        "{heard:?}"
    );
    assert!(
        rig.log().contains("ended before it was up"),
        "{}",
        rig.log()
    );
    assert_eq!((rig.received.descriptors, rig.received.stops), (0, 0));
}

/// Whether a process of this `/proc/PID/status` has a handler for SIGTERM.
fn catches_sigterm(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> 14 & 1 == 1)
}

/// A thread that does not go on until this is dropped.
///
/// A process whose thread is traced cannot be waited for, so it is let go before a rig ends.
pub struct Stopped(Pid);

impl Stopped {
    /// Stops a thread wherever it is.
    pub fn anywhere(process: u32, name: &str) -> Self {
        let thread = thread_of(process, name);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        let stopped = Self(thread);
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        stopped
    }

    /// Stops a thread while it naps or sleeps: there it holds no lock that others wait for.
    fn asleep(process: u32, name: &str) -> Self {
        let thread = thread_of(process, name);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        let stopped = Self(thread);
        let syscall = format!("/proc/{process}/task/{thread}/syscall");
        let sleeps = [nix::libc::SYS_clock_nanosleep, nix::libc::SYS_futex];
        let sleeps = sleeps.map(|call| format!("{call} "));
        let begun = Instant::now();
        loop {
            ptrace::interrupt(thread).unwrap();
            waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
            let call = fs::read_to_string(&syscall).unwrap();
            if sleeps.iter().any(|sleep| call.starts_with(sleep)) {
                return stopped;
            }
            assert!(begun.elapsed() < TOO_LONG, "{name} never sleeps");
            ptrace::cont(thread, None).unwrap();
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// The thread of a process that has this name.
pub fn thread_of(process: u32, name: &str) -> Pid {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let named = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let mut tasks = tasks.map(|task| task.unwrap().path()).filter(named);
    let task = tasks.next().unwrap_or_else(|| panic!("no thread {name}"));
    let id = task.file_name().unwrap().to_str().unwrap();
    Pid::from_raw(id.parse().unwrap())
}
