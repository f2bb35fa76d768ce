//! What a service manager hears of an engine.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::rig::{Cable, Rig, SUBSTREAMS, TOO_LONG};

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
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a message with this line; returns those before it, and it.
    fn wait(&self, line: &str, rig: &Rig) -> Vec<String> {
        let begun = Instant::now();
        let mut heard: Vec<String> = Vec::new();
        while !heard.last().is_some_and(|message| has(message, line)) {
            assert!(begun.elapsed() < TOO_LONG, "{heard:?}\n{}", rig.log());
            heard.extend(self.heard(Duration::from_millis(50)));
        }
        heard
    }
}

fn has(message: &str, line: &str) -> bool {
    message.lines().any(|other| other == line)
}

/// Nothing is received all the while: that is no reason to stop feeding.
#[test]
fn the_watchdog_is_fed_while_all_threads_turn() {
    let Some(cable) = Cable::new("service") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = Manager(UnixDatagram::bind(&path).unwrap());
    let period = PERIOD.as_micros().to_string();
    let environment = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", &period),
    ];
    let options = ["--recv-interface=k0"];
    let mut rig = Rig::start_with(cable, &options, "239.102.0.64+7", &environment);
    let before = manager.wait("READY=1", &rig);
    // Control is the last that starts.
    assert!(rig.log().contains("up"), "{}", rig.log());
    assert!(before[0].starts_with("STATUS=Starting"), "{before:?}");
    assert!(!before.iter().any(|message| has(message, "WATCHDOG=1")));
    for _ in 0..3 {
        manager.wait("WATCHDOG=1", &rig);
    }

    let engine = thread(rig.id(), "engine");
    ptrace::seize(engine, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(engine).unwrap();
    waitpid(engine, Some(WaitPidFlag::__WALL)).unwrap();
    manager.wait("STATUS=Stuck: engine", &rig);
    assert!(rig.log().contains("engine"), "{}", rig.log());
    assert_eq!(manager.heard(2 * PERIOD), None);
    ptrace::detach(engine, None).unwrap();
    manager.wait("WATCHDOG=1", &rig);

    rig.signal("TERM");
    let last = manager.wait("STOPPING=1", &rig);
    assert!(has(last.last().unwrap(), "STATUS=Ending: SIGTERM"));
    assert_eq!(rig.ended().code(), Some(0), "{}", rig.log());
    assert_eq!(rig.received.stops, SUBSTREAMS);
    while let Some(message) = manager.heard(Duration::from_millis(1)) {
        assert!(!has(&message, "WATCHDOG=1"), "{message}");
    }
}

/// The thread of a process that has this name.
fn thread(process: u32, name: &str) -> Pid {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let named = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let mut tasks = tasks.map(|task| task.unwrap().path()).filter(named);
    let task = tasks.next().unwrap_or_else(|| panic!("no thread {name}"));
    let id = task.file_name().unwrap().to_str().unwrap();
    Pid::from_raw(id.parse().unwrap())
}
