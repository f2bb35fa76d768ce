//! Signals: those that `dsim` gets while it writes a capture, and one that nobody hears of.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::refused;

/// Whether the process listens to a signal, or ignores it.
pub(crate) fn listens(child: &Child, mask: &str, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask >> (signal - 1) & 1 == 1
}

/// Adds what `dsim` needs to write for long, and waits until it does.
fn writing(command: &mut Command, path: &Path) -> Child {
    command.args(["dsim", "--period=65536", "--samples=4000000000", "--truth"]);
    command.arg(path.with_extension("json")).arg("--output");
    let mut child = command.arg(path).stderr(Stdio::piped()).spawn().unwrap();
    while !path.with_extension("pcap.part").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_signal_leaves_no_part_of_a_capture() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcap");
        // The tests may have been started by nohup themselves.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_karoo")]);
        let child = writing(&mut command, &path);
        assert!(listens(&child, "SigCgt:", number));
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        refused(&child.wait_with_output().unwrap(), 1, "interrupted");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
    }
}

/// As `nohup` starts it.
#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pcap");
    let script = r#"trap "" HUP; exec "$0" "$@""#;
    let mut command = Command::new("sh");
    let mut child = writing(
        command.args(["-c", script, env!("CARGO_BIN_EXE_karoo")]),
        &path,
    );
    let ignored = listens(&child, "SigIgn:", 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ignored);
}

/// Nobody reads what the run says, as where a terminal is paused: it waits for who does.
#[test]
fn a_second_signal_ends_a_run_whose_standard_error_is_stuck() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let room = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    writer.write_all(&vec![b'.'; room as usize]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
    let free = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    command.args(["modem", "rx", "--input", &format!("udp:{free}")]);
    let mut child = command.stderr(writer).spawn().unwrap();
    while !listens(&child, "SigCgt:", libc::SIGTERM as u32) {
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(child.id().cast_signed());
    let status = loop {
        kill(pid, Signal::SIGTERM).unwrap();
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(status.code(), Some(143));
    drop(reader);
}
