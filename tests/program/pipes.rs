//! What commands do with named pipes: files that they write keep what they have until writers have
//! come, signals end who waits, and what has to be a file is refused.

use std::fs;
use std::path::Path;
use std::process::Child;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::{TempDir, tempdir};

use crate::flow::graph;
use crate::modem_mistakes::{interrupt, listens, started};
use crate::support::{data, karoo, refused};

/// A folder with a named pipe of this name, and `keep`.
struct Room(TempDir);

impl Room {
    fn new(pipe: &str) -> Room {
        let folder = tempdir().unwrap();
        mkfifo(&folder.path().join(pipe), Mode::S_IRWXU).unwrap();
        fs::write(folder.path().join("keep"), "precious").unwrap();
        Room(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn a_signal_before_the_writer_of_a_pipe_comes_leaves_files_as_they_were() {
    let room = Room::new("pipe");
    let [pipe, keep] = ["pipe", "keep"].map(|name| room.at(name));
    let filter = graph("filter.toml");
    let run = ["flow", "run", &filter, "--no-pin", "-i", &pipe];
    for args in [
        &["modem", "rx", "-i", &pipe, "-o", &keep][..],
        &["modem", "rx", "-i", &pipe, "--soft", &keep],
        &["modem", "channel", "-i", &pipe, "-o", &keep],
        &[&run[..], &["-o", &keep]].concat(),
        &[&run[..], &["--telemetry", &keep]].concat(),
    ] {
        let child = started(args);
        listens(&child);
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        refused(&output, 1, "pipe: stopped before a writer came");
        assert_eq!(fs::read(&keep).unwrap(), b"precious", "{args:?}");
    }
}

#[test]
fn what_has_to_be_a_file_is_refused() {
    let room = Room::new("pipe.pcap");
    let [pipe, keep] = ["pipe.pcap", "keep"].map(|name| room.at(name));
    let tx = ["modem", "tx", "--sample-rate", "1M"];
    let out = ["-i", &keep, "-o", &pipe];
    let again = ["modem", "tx", "--repeat", "2", "-i", &pipe];
    let no_capture = "pipe.pcap: a capture is a file";
    let once = "pipe.pcap: it can be read only once";
    for (args, wanted) in [
        (&["modem", "rx", "-i", &pipe, "-o", &keep][..], no_capture),
        (&[&tx[..], &out].concat(), no_capture),
        (&[&again[..], &["-o", &keep]].concat(), once),
        (
            &["modem", "link", "--repeat", "2", "-i", &pipe, "-o", &keep],
            once,
        ),
    ] {
        refused(&karoo(args), 2, wanted);
        assert_eq!(fs::read(&keep).unwrap(), b"precious", "{args:?}");
    }
}

#[test]
fn a_table_of_telemetry_goes_through_a_pipe() {
    let room = Room::new("table");
    let (filter, table) = (graph("filter.toml"), room.at("table"));
    let run = ["flow", "run", &filter, "--no-pin", "--telemetry", &table];
    let args = [&run[..], &["-i", "/dev/null"]].concat();
    let child = started(&args);
    listens(&child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    refused(&output, 1, "stopped before a reader came");
    let child = started(&args);
    let read = fs::read_to_string(&table).unwrap();
    assert!(read.starts_with("elapsed_ns,"), "{read}");
    assert!(child.wait_with_output().unwrap().status.success());
}

/// Waits until the process waits for the other end of a pipe; where the kernel does not tell in
/// what a process sleeps, until it sleeps.
fn opens_a_pipe(child: &Child) {
    let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
    loop {
        let sleeps = of("stat").contains(") S ");
        match of("wchan").as_str() {
            "wait_for_partner" => return,
            "0" if sleeps => return,
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_signal_ends_a_replay_that_waits_for_the_reader_of_its_output() {
    let room = Room::new("out.pcap");
    let capture = data("tones-8bit.pcap");
    let out = room.at("out.pcap");
    let child = started(&["replay", capture.to_str().unwrap(), "--output", &out]);
    opens_a_pipe(&child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert!(!Path::new(&room.at("out.pcap.part")).exists());
}
