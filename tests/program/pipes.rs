//! What commands do with named pipes: files that they write keep what they have until writers have
//! come, signals end who waits, and what has to be a file is refused.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::{TempDir, tempdir};

use crate::dsim_signals::listens as catches;
use crate::flow::graph;
use crate::modem_mistakes::{interrupt, listens, started};
use crate::support::{data, karoo, karoo_ok, refused};

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
    let once = "pipe.pcap: it is not a file, so it cannot be read again";
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

/// Together the intervals are all of the time, whatever the period.
#[test]
fn lines_of_a_table_of_telemetry_follow_each_other() {
    let room = Room::new("table");
    let (filter, table) = (graph("filter.toml"), room.at("table"));
    let run = ["flow", "run", &filter, "--no-pin", "--telemetry", &table];
    let ends = ["-i", "/dev/zero", "-o", "/dev/null"];
    let child = started(&[&run[..], &ends, &["--telemetry-period", "100ms"]].concat());
    let mut lines = BufReader::new(File::open(&table).unwrap()).lines();
    let titles = lines.next().unwrap().unwrap();
    let column = |title: &str| titles.split(',').position(|own| own == title).unwrap();
    let (whole, interval) = (column("elapsed_ns"), column("interval_ns"));
    let (mut sum, mut seen) = (0, 0);
    for line in lines {
        let line = line.unwrap();
        let fields: Vec<&str> = line.split(',').collect();
        if fields[column("partition")] != "outputs" {
            continue;
        }
        sum += fields[interval].parse::<u64>().unwrap();
        assert_eq!(fields[whole], sum.to_string(), "{line}");
        seen += 1;
        if seen == 3 {
            interrupt(&child);
        }
    }
    assert!(seen >= 3, "{seen} lines");
    assert!(child.wait_with_output().unwrap().status.success());
}

/// Two filters that have nothing to do with each other.
const TWO: &str = r#"
    name = "two"
    node = [
        { path = "a", kind = "input", of = "f32" },
        { path = "b", kind = "input", of = "f32" },
        { path = "fa", kind = "fir", from = ["a"], taps = [1.0] },
        { path = "fb", kind = "fir", from = ["b"], taps = [1.0] },
        { path = "ya", kind = "output", from = ["fa"] },
        { path = "yb", kind = "output", from = ["fb"] },
    ]
"#;

/// One process may serve pipes in turn, or with what comes of other inputs.
#[test]
fn a_graph_runs_when_one_of_its_inputs_may_have_samples() {
    let room = Room::new("pipe");
    let (pipe, graph) = (room.at("pipe"), room.at("two.toml"));
    mkfifo(Path::new(&room.at("other")), Mode::S_IRWXU).unwrap();
    fs::write(&graph, TWO).unwrap();
    let written = format!("b={pipe}");
    for other in ["other", "keep"] {
        let [a, ya] =
            [("a", other), ("ya", "out")].map(|(port, name)| format!("{port}={}", room.at(name)));
        let args = [
            "flow", "run", &graph, "--no-pin", "-i", &a, "-i", &written, "-o", &ya,
        ];
        let child = started(&args);
        let writer = (other == "other").then(|| File::options().write(true).open(&pipe).unwrap());
        listens(&child);
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        drop(writer);
    }
}

/// Waits until the process waits for the other end of a pipe: opening other files hardly sleeps.
fn opens_a_pipe(child: &mut Child) {
    let opens = format!("{} ", libc::SYS_openat);
    loop {
        assert_eq!(child.try_wait().unwrap(), None);
        let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
        if of("syscall").starts_with(&opens) && of("stat").contains(") S ") {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_who_waits_for_the_reader_of_a_capture_or_its_truth() {
    let room = Room::new("pipe");
    let (pipe, out) = (room.at("pipe"), room.at("out.pcap"));
    let capture = data("tones-8bit.pcap");
    for args in [
        &["replay", capture.to_str().unwrap(), "--output", &pipe][..],
        &["dsim", "--output", &pipe],
        &["dsim", "--output", &out, "--truth", &pipe],
    ] {
        let mut child = started(args);
        opens_a_pipe(&mut child);
        let caught = catches(&child, "SigCgt:", 2);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!caught, "{args:?}");
    }
}

/// Waits until the process writes to standard output, or waits until that takes something.
fn waits_to_write(child: &mut Child) {
    let waits = [libc::SYS_write, libc::SYS_poll, libc::SYS_ppoll].map(|call| format!("{call} "));
    loop {
        assert_eq!(child.try_wait().unwrap(), None);
        let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap();
        let call = of("syscall");
        if waits.iter().any(|wait| call.starts_with(wait)) && of("stat").contains(") S ") {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_a_receiver_whose_standard_output_nobody_reads() {
    let folder = tempdir().unwrap();
    let [message, samples] =
        ["message", "m.cf32"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    fs::write(&message, [7; 2000]).unwrap();
    karoo_ok(["modem", "tx", "--input", &message, "--output", &samples]);
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let room = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    writer.write_all(&vec![b'.'; room as usize]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
    command.args(["modem", "rx", "--input", &samples, "--output", "-"]);
    command.stdout(writer).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    waits_to_write(&mut child);
    interrupt(&child);
    refused(&child.wait_with_output().unwrap(), 1, "takes nothing");
}
