//! What `karoo modem` refuses, with the option and in its units; what a stream's end leaves; and
//! whose turn it is then, by the exit code.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::support::{karoo, karoo_ok, refused};

/// A folder with `message`, so many lines of text, and `air.cf32`, the frames that it is.
struct Room(TempDir);

impl Room {
    fn new(lines: usize) -> Room {
        let folder = tempdir().unwrap();
        let line = |n: usize| format!("{n:07}\n");
        let message: String = (0..lines).map(line).collect();
        fs::write(folder.path().join("message"), message).unwrap();
        let room = Room(folder);
        let (message, air) = (room.at("message"), room.at("air.cf32"));
        karoo_ok(["modem", "tx", "--mod", "bpsk", "-i", &message, "-o", &air]);
        room
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn inputs_and_outputs_that_fail_are_no_wrong_command_line() {
    let room = Room::new(10);
    let (air, message, none) = (room.at("air.cf32"), room.at("message"), room.at("no/where"));
    let folder = room.at("");
    let keep = room.at("keep");
    fs::write(&keep, "precious").unwrap();
    let rows: [(&[&str], &str); 10] = [
        (&["rx", "-i", &none, "-o", &keep], "--input"),
        (&["rx", "-i", &folder, "-o", &keep], "is a directory"),
        (&["rx", "-i", &air, "-o", &keep, "--soft", &none], "--soft"),
        (
            &["rx", "-i", &air, "-o", &none, "--soft", &keep],
            "--output",
        ),
        (&["rx", "-i", "tcp:127.0.0.1:1", "-o", &keep], "--input tcp"),
        (
            &["rx", "-i", &room.at("no.pcap"), "-o", &keep],
            "no.pcap\": No such file",
        ),
        (&["tx", "-i", &none, "-o", &keep], "--input"),
        (&["tx", "-i", &folder, "-o", &keep], "is a directory"),
        (&["tx", "-i", &message, "-o", &none], "--output"),
        (&["channel", "-i", &none, "-o", &keep], "--input"),
    ];
    for (args, wanted) in rows {
        refused(&karoo(["modem"].iter().chain(args)), 1, wanted);
        assert_eq!(fs::read(&keep).unwrap(), b"precious", "{args:?}");
    }
}

/// Long runs are not for nothing: what was received is told even if its page cannot be written.
#[test]
fn places_of_reports_are_tried_before_anything_runs() {
    let room = Room::new(10);
    let (air, keep) = (room.at("air.cf32"), room.at("keep"));
    let below_file = room.at("message/report");
    fs::write(&keep, "precious").unwrap();
    let rx = ["rx", "-i", &air, "-o", &keep, "--report"];
    let ber = ["ber", "--mod", "bpsk", "--eb-n0", "9", "--frames", "1"];
    let report: &[&str] = &[&ber[..], &["--report", &below_file]].concat();
    let picture: &[&str] = &[&ber[..], &["--svg", &below_file]].concat();
    for (args, option) in [
        (&[&rx[..], &[&below_file]].concat()[..], "--report"),
        (report, "--report"),
        (picture, "--svg"),
    ] {
        let output = karoo(["modem"].iter().chain(args));
        refused(&output, 2, option);
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(fs::read(&keep).unwrap(), b"precious");
    // Where the page is to be there is a folder.
    let folder = room.at("report");
    fs::create_dir_all(room.at("report/report.html")).unwrap();
    let output = karoo(["modem"].iter().chain(&rx).chain(&[&folder[..], "--json"]));
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["counts"]["delivered"], 1);
    refused(&output, 1, "report.html");
    let curve = room.at("curve.svg");
    let both = ["--svg", &curve, "--report", &folder];
    refused(
        &karoo(["modem"].iter().chain(&ber).chain(&both)),
        1,
        "report.html",
    );
    assert!(fs::read_to_string(&curve).unwrap().starts_with("<svg"));
}

/// Waits until the process listens to SIGINT.
pub(crate) fn listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    loop {
        let text = fs::read_to_string(&status).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if mask.is_some_and(|mask| mask >> 1 & 1 == 1) {
            return;
        }
        std::thread::yield_now();
    }
}

pub(crate) fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status();
    assert!(killed.unwrap().success());
}

pub(crate) fn started(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(args)
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_signal_before_a_peer_connects_is_a_run_that_failed() {
    let nobody = format!("shm:karoo-mistakes-{}", std::process::id());
    let child = started(&["modem", "rx", "--input", &nobody]);
    listens(&child);
    interrupt(&child);
    refused(&child.wait_with_output().unwrap(), 1, "stopped");
}

#[test]
fn a_signal_ends_standard_input_behind_what_has_come() {
    let room = Room::new(1000);
    let message = fs::read(room.at("message")).unwrap();
    let way = ["modem", "rx", "-i", "-", "-o", "-", "--threads", "0"];
    let mut child = started(&way);
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(&fs::read(room.at("air.cf32")).unwrap())
        .unwrap();
    // Two frames of several; the writer goes on.
    let mut got = vec![0; 2 * 1528];
    child.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("frames delivered"), "{said}");
    got.extend(output.stdout);
    assert!(message.starts_with(&got) && got.len() >= 2 * 1528);
}

/// A named pipe stands for a file of which there is more: it is opened by its path as well.
#[test]
fn a_signal_ends_a_file_behind_what_has_come_and_says_so() {
    let room = Room::new(1000);
    let message = fs::read(room.at("message")).unwrap();
    let air = fs::read(room.at("air.cf32")).unwrap();
    for more in [&["--threads", "0"][..], &["--graph", "--threads", "1"]] {
        let pipe = room.at("pipe");
        mkfifo(Path::new(&pipe), Mode::S_IRWXU).unwrap();
        let way = ["modem", "rx", "-i", &pipe, "-o", "-"];
        let mut child = started(&[&way[..], more].concat());
        let mut writer = File::options().write(true).open(&pipe).unwrap();
        writer.write_all(&air).unwrap();
        let mut got = vec![0; 1528];
        child.stdout.as_mut().unwrap().read_exact(&mut got).unwrap();
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        drop(writer);
        fs::remove_file(&pipe).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("frames delivered"), "{said}");
        assert!(said.contains("before the input's end"), "{said}");
        got.extend(output.stdout);
        assert!(message.starts_with(&got));
    }
}

#[test]
fn a_signal_ends_who_waits_for_the_reader_of_a_pipe() {
    let room = Room::new(10);
    let [message, air, pipe] = ["message", "air.cf32", "pipe"].map(|name| room.at(name));
    mkfifo(Path::new(&pipe), Mode::S_IRWXU).unwrap();
    for args in [
        ["tx", "-i", &message, "-o", &pipe],
        ["channel", "-i", &air, "-o", &pipe],
        ["rx", "-i", &air, "-o", &pipe],
        ["rx", "-i", &air, "--soft", &pipe],
        ["link", "-i", &message, "-o", &pipe],
    ] {
        let child = started(&[&["modem"][..], &args].concat());
        listens(&child);
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        refused(&output, 1, "stopped before a reader came");
    }
}

#[test]
fn a_signal_ends_what_sends_into_a_pipe_behind_a_frame() {
    let room = Room::new(10);
    let message = room.at("message");
    let tx = |more: &[&str]| started(&[&["modem", "tx", "-o", "-"][..], more].concat());
    // Of a file, which is not sent whole, and of a pipe that nobody ends.
    for (more, code) in [
        (&["-i", &message, "--repeat", "1000000"][..], 1),
        (&["-i", "-"], 0),
    ] {
        let mut child = tx(more);
        let stdin = child.stdin.take();
        if code == 0 {
            let bytes = vec![7; 100_000];
            stdin.as_ref().unwrap().write_all(&bytes).unwrap();
        }
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0; 100_000]).unwrap();
        interrupt(&child);
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(" of qpsk, "), "{said}");
        assert_eq!((100_000 + rest.len()) % 8, 0);
    }
}

#[test]
fn a_signal_ends_a_channel_behind_whole_samples() {
    let mut child = started(&["modem", "channel", "-i", "-", "-o", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    // More than is read at once.
    stdin.write_all(&vec![0; 132_000]).unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 8]).unwrap();
    interrupt(&child);
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    refused(&child.wait_with_output().unwrap(), 0, "samples in");
    drop(stdin);
    assert_eq!(rest.len() % 8, 0);
}

#[test]
fn who_has_no_reader_any_more_says_what_was_done() {
    let room = Room::new(2000);
    let (message, air) = (room.at("message"), room.at("air.cf32"));
    let frames = fs::read(&air).unwrap();
    let rows: [(&[&str], &[u8], &str); 3] = [
        (
            &["tx", "-i", &message, "-o", "-"],
            &[],
            "bytes sent until then",
        ),
        (
            &["rx", "-i", "-", "-o", "-"],
            &frames,
            "bytes received until then",
        ),
        (
            &["channel", "-i", &air, "-o", "-"],
            &[],
            "samples read until then",
        ),
    ];
    for (args, given, wanted) in rows {
        let mut child = started(&[&["modem"], args].concat());
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().unwrap();
        // It may end before it has all.
        let _ = stdin.write_all(given);
        drop(stdin);
        refused(&child.wait_with_output().unwrap(), 1, wanted);
    }
}

#[test]
fn a_capture_that_cannot_be_read_to_its_end_says_what_came() {
    let room = Room::new(1000);
    let (message, air) = (room.at("message"), room.at("air.pcap"));
    let rate = ["--sample-rate", "1M"];
    karoo_ok(
        ["modem", "tx", "-i", &message, "-o", &air]
            .iter()
            .chain(&rate),
    );
    let mut capture = File::options().append(true).open(&air).unwrap();
    // No record has so many bytes.
    capture.write_all(&[0xff; 16]).unwrap();
    let output = karoo(["modem", "rx", "-i", &air]);
    refused(&output, 1, "3 frames, 8000 bytes received until then");
}

#[test]
fn as_many_frames_come_out_as_are_wanted_by_any_threads() {
    let room = Room::new(2000);
    let message = fs::read(room.at("message")).unwrap();
    let received = |frames: u64, way: &[&str]| -> Value {
        let (air, back, soft) = (room.at("air.cf32"), room.at("back"), room.at("soft"));
        let number = frames.to_string();
        let rx = [
            "modem", "rx", "-i", &air, "-o", &back, "--frames", &number, "--json",
        ];
        let soft = ["--soft", &soft];
        let soft = if way.contains(&"--graph") {
            &[][..]
        } else {
            &soft
        };
        let text = karoo_ok(rx.iter().chain(way).chain(soft));
        let done: Value = serde_json::from_str(&text).unwrap();
        let counts = &done["counts"];
        assert_eq!(counts["delivered"], frames, "{way:?}: {counts}");
        assert_eq!(
            (&counts["detected"], &counts["cut"]),
            (&frames.into(), &0.into())
        );
        assert_eq!(
            done["frames"].as_array().unwrap().len() as u64,
            frames,
            "{way:?}"
        );
        assert_eq!(done["bytes"], frames * 1528, "{way:?}");
        let back = fs::read(&back).unwrap();
        assert!(message[..back.len()] == back && back.len() as u64 == frames * 1528);
        if !soft.is_empty() {
            let soft = fs::metadata(room.at("soft")).unwrap().len();
            assert_eq!(soft, frames * 12_256 * 4);
        }
        done["frames"].clone()
    };
    let ways: [&[&str]; 5] = [
        &["--threads", "0"],
        &["--threads", "1"],
        &["--threads", "5"],
        &["--graph", "--threads", "1"],
        &["--graph", "--threads", "3"],
    ];
    for frames in [1, 3] {
        let found = ways.map(|way| received(frames, way));
        assert!(found.iter().all(|one| *one == found[0]), "{found:#?}");
    }
}

#[test]
fn settings_are_refused_by_their_options_in_their_units() {
    let room = Room::new(10);
    let (air, out) = (room.at("air.cf32"), room.at("out.cf32"));
    let channel = [
        "modem",
        "channel",
        "--sample-rate",
        "80M",
        "-i",
        &air,
        "-o",
        &out,
    ];
    let ber = ["modem", "ber", "--frames", "1"];
    let link = ["modem", "link", "-i", &room.at("message"), "-o", &out];
    let (tx, rx) = (
        ["modem", "tx", "-i", &air, "-o", &out],
        ["modem", "rx", "-i", &air],
    );
    let half = "--frequency 60000000: it must be -40000000 to 40000000 Hz, half of the sample rate";
    let rows: [(&[&str], &str, &str); 34] = [
        (&channel, "--frequency 60M", half),
        (&ber, "--frequency 60M", half),
        (
            &link,
            "--frequency 1M",
            "--frequency 1000000: it must be -500000 to 500000 Hz",
        ),
        (
            &channel,
            "--es-n0 300",
            "--es-n0 300: it must be -195.2 to 204.7 dB",
        ),
        (
            &channel,
            "--snr 300",
            "--snr 300: it must be -200 to 200 dB",
        ),
        (&channel, "--gain 1e300", "--gain 1e300: it must be -200"),
        (
            &channel,
            "--delay 1e7",
            "--delay 10000000: it must be 0 to 1e6 samples",
        ),
        (&channel, "--phase 1e12", "degrees"),
        (
            &channel,
            "--doppler 1M",
            "--doppler 1000000: it must be 0 to 800000 Hz",
        ),
        (
            &channel,
            "--path 2000000:0",
            "--path: a path's delay of 2000000",
        ),
        (&channel, "--bits 30", "--bits 30: it must be 1 to 24"),
        (
            &channel,
            "--bits 8 --clip 0",
            "--clip 0: it must be 1e-6 to 1e6",
        ),
        (&channel, "--dc 1e9,0", "--dc 1000000000: it must be"),
        (
            &ber,
            "--clock 2000",
            "--clock 2000: it must be -1000 to 1000 ppm",
        ),
        (
            &ber,
            "--iq-gain 50",
            "--iq-gain 50: it must be -40 to 40 dB",
        ),
        (&link, "--iq-phase 100", "--iq-phase 100: it must be -90"),
        (
            &tx,
            "--duty 1e-300",
            "--duty: a duty cycle of 1e-300: it is 1e-12 to 1;",
        ),
        (
            &rx,
            "--full-scale 1e-50",
            "'1e-50' for '--full-scale <VALUE>': it must be 1e-6",
        ),
        // Each by its own rule, also below zero.
        (&tx, "--full-scale -1", "'-1' for '--full-scale <VALUE>'"),
        (&rx, "--taps -8", "'-8' for '--taps <N>'"),
        (&rx, "--step -1", "--step: a step of -1: it is from 0"),
        (
            &channel,
            "--delay -1",
            "--delay -1: it must be 0 to 1e6 samples",
        ),
        (&ber, "--doppler -3k", "--doppler -3000: it must be 0 to"),
        (&channel, "--seed -1", "'-1' for '--seed <NUMBER>'"),
        (&ber, "--bits 0", "it must be 1 to 1e15"),
        (&ber, "--svg rates.png", "name it rates.svg"),
        // What nothing would follow.
        (&channel, "--clip 2", "--bits <BITS>"),
        (&rx, "--equaliser lms --step 0.001", "leave --step out"),
        (
            &rx,
            "--acquisition original --threads 4",
            "leave --threads out",
        ),
        (&rx, "--feedback 100", "leave --feedback out"),
        (&rx, "--interface eth0", "--interface eth0: --input"),
        (&rx, "--stream 3", "which is for udp:, dpdk: and captures"),
        (&tx, "--cpu 0", "--cpu 0: --output"),
        (&ber, "--feedback 100", "add that, or leave"),
    ];
    for (command, options, wanted) in rows {
        let all = command.iter().copied().chain(options.split(' '));
        refused(&karoo(all), 2, wanted);
    }
    karoo_ok(
        rx.iter()
            .chain(&["--acquisition", "original", "--threads", "0"]),
    );
}

#[test]
fn packets_of_a_capture_have_the_size_behind_its_comma() {
    let room = Room::new(400);
    let (message, back) = (room.at("message"), room.at("back"));
    let place = format!("{},size=412", room.at("air.pcap"));
    let tx = [
        "modem",
        "tx",
        "-i",
        &message,
        "-o",
        &place,
        "--sample-rate",
        "1M",
        "--json",
    ];
    let sent: Value = serde_json::from_str(&karoo_ok(tx)).unwrap();
    // A header of 28 bytes, four for each sample.
    let samples = sent["samples"].as_u64().unwrap();
    assert_eq!(sent["packets"]["packets"], samples.div_ceil(96));
    karoo_ok(["modem", "rx", "-i", &room.at("air.pcap"), "-o", &back]);
    assert_eq!(fs::read(&back).unwrap(), fs::read(&message).unwrap());
    let place = format!("{},idle=1", room.at("air.pcap"));
    refused(&karoo(["modem", "rx", "-i", &place]), 2, "size= alone");
}
