//! `karoo modem tx` and `rx` with samples that come and go otherwise than in files: packets in
//! captures and through sockets, shared memory, TCP.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::modem_mistakes::{interrupt, listens, started};
use crate::support::{json, karoo, karoo_ok};

/// A folder with a message of so many bytes.
fn message(bytes: usize) -> (TempDir, Vec<u8>) {
    let folder = tempdir().unwrap();
    let message: Vec<u8> = (0..bytes as u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    fs::write(folder.path().join("message"), &message).unwrap();
    (folder, message)
}

/// Runs `karoo modem COMMAND` with options, and gives its report.
fn modem<'a>(command: [&'a str; 5], more: &[&'a str]) -> Value {
    let all = ["modem"].into_iter().chain(command);
    json(&karoo_ok(all.chain(more.iter().copied()).chain(["--json"])))
}

/// A receiver that runs, and has its input open.
fn receiver(args: &[&str]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(["modem", "rx", "--json"])
        .args(args)
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("receiving") {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // What else it says is not to fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    child
}

fn done(receiver: Child) -> Value {
    let output = receiver.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    json(&String::from_utf8(output.stdout).unwrap())
}

/// What was done is told on standard error then.
#[test]
fn what_goes_to_standard_output_has_nothing_else_in_it() {
    let (folder, message) = message(5000);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (payload, sent) = (at("message"), at("sent.cf32"));
    let piped = |options: &[&str], to: &str| {
        let output = karoo([&["modem"][..], options, &["--output", to]].concat());
        assert!(output.status.success(), "{options:?}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        let mark = match options[0] {
            "channel" => "samples in",
            _ => "frame",
        };
        assert!(told.contains(mark), "{options:?}: {told}");
        output.stdout
    };
    karoo_ok(["modem", "tx", "--input", &payload, "--output", &sent]);
    let link = ["link", "--input", &payload, "--sample-rate", "2M"];
    for to in ["-", "/dev/stdout"] {
        let samples = fs::read(&sent).unwrap();
        assert!(piped(&["tx", "--input", &payload], to) == samples, "{to}");
        assert!(piped(&["rx", "--input", &sent], to) == message, "{to}");
        assert!(piped(&link, to) == message, "{to}");
        let through = piped(&["channel", "--input", &sent], to);
        assert_eq!(through.len() % 8, 0, "{to}");
        let refused = karoo(["modem", "rx", "--json", "--input", &sent, "--output", to]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("--output {to}: payloads")), "{said}");
    }
}

#[test]
fn a_capture_of_packets_replays() {
    let (folder, message) = message(20_000);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (capture, back) = (at("air.pcap"), at("back"));
    let sent = modem(
        ["tx", "--input", &at("message"), "--output", &capture],
        &["--mod", "qam16", "--sample-rate", "20M"],
    );
    assert_eq!(sent["frames"], 4);
    let count = sent["samples"].as_u64().unwrap();
    assert_eq!(sent["packets"]["packets"], count.div_ceil(360));
    let got = modem(["rx", "--input", &capture, "--output", &back], &[]);
    assert_eq!(got["counts"]["samples"], count);
    assert_eq!(got["packets"]["lost_samples"], 0);
    assert_eq!(got["packets"]["contexts"], sent["packets"]["contexts"]);
    assert_eq!(fs::read(&back).unwrap(), message);
    // The rate is that of the contexts.
    assert!(got["frames"][0]["cfo_hz"].is_number(), "{got}");
    // Another stream than the one that is there.
    let text = karoo_ok(["modem", "rx", "--input", &capture, "--stream", "7"]);
    assert!(text.contains("packets of other streams"), "{text}");
}

#[test]
fn losses_cost_the_frames_that_they_touch_and_no_others() {
    let (folder, message) = message(150_000);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (capture, back) = (at("air.pcap"), at("back"));
    let sent = modem(
        ["tx", "--input", &at("message"), "--output", &capture],
        &["--sample-rate", "20M", "--lose", "0.002"],
    );
    let left_out = &sent["packets"]["left_out"];
    let (frames, touched) = (&sent["frames"], &left_out["frames"]);
    let untouched = frames.as_u64().unwrap() - touched.as_u64().unwrap();
    assert!(touched.as_u64() > Some(5) && untouched > 5, "{sent}");
    let got = modem(["rx", "--input", &capture, "--output", &back], &[]);
    assert_eq!(got["packets"]["lost_samples"], left_out["samples"]);
    // A packet of a frame's first or last samples may be missed by nobody.
    let delivered = got["counts"]["delivered"].as_u64().unwrap();
    assert!((untouched..=untouched + 2).contains(&delivered), "{got}");
    let parts: Vec<&[u8]> = message.chunks(3060).collect();
    let back = fs::read(&back).unwrap();
    // The last frame has 60 bytes.
    let whole = 3060 * delivered as usize;
    assert!([whole, whole - 3000].contains(&back.len()), "{got}");
    let mut rest = parts.iter();
    for part in back.chunks(3060) {
        assert!(rest.any(|sent| *sent == part));
    }
}

#[test]
fn packets_go_through_sockets() {
    let (folder, message) = message(12_000);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let back = at("back");
    let port = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let place = format!("udp:{port}");
    let receiver = receiver(&[
        "--input",
        &place,
        "--output",
        &back,
        "--frames",
        "4",
        "--seconds",
        "120",
    ]);
    let sent = modem(
        ["tx", "--input", &at("message"), "--output", &place],
        &["--sample-rate", "2M"],
    );
    assert_eq!(sent["frames"], 4);
    // Its samples take 97 ms.
    let got = done(receiver);
    assert_eq!(got["counts"]["delivered"], 4, "{got}");
    assert_eq!(got["packets"]["gaps"], 0, "{got}");
    assert!(got["seconds"].as_f64() > Some(0.08), "{got}");
    assert_eq!(fs::read(&back).unwrap(), message);
}

#[test]
fn samples_go_through_shared_memory_and_tcp() {
    let (folder, message) = message(30_000);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let back = at("back");
    let free = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let shared = format!("shm:karoo-modem-{}", std::process::id());
    let demo = format!("{shared}-demo,size=115200");
    let (listens, connects) = (format!("tcp-listen:{free}"), format!("tcp:{free}"));
    let rows: [(&str, &str, &[&str]); 3] = [
        (&shared, &shared, &[]),
        // As the original's programs have it: a queue of 120 blocks.
        (&demo, &demo, &["--planar"]),
        (&listens, &connects, &[]),
    ];
    for (output, input, layout) in rows {
        let message_at = at("message");
        let tx = ["modem", "tx", "--input", &message_at, "--output", output];
        let rx = ["modem", "rx", "--input", input, "--output", &back, "--json"];
        let sender = Command::new(env!("CARGO_BIN_EXE_karoo"))
            .args(tx.iter().chain(layout))
            .env_remove("RUST_LOG")
            .spawn()
            .unwrap();
        let got = json(&karoo_ok(rx.iter().chain(layout)));
        assert!(sender.wait_with_output().unwrap().status.success());
        assert_eq!(got["counts"]["delivered"], 10, "{got}");
        assert_eq!(fs::read(&back).unwrap(), message);
    }
}

#[test]
fn a_page_is_there_while_the_input_waits_for_its_peer() {
    let nobody = format!("shm:karoo-waits-{}", std::process::id());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let http = port.to_string();
    let rx = ["modem", "rx", "--input", &nobody, "--http", &http];
    let child = started(&[&rx[..], &["--sequence"]].concat());
    listens(&child);
    let answer = |path: &str| {
        let mut page = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        page.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        page.read_to_string(&mut answer).unwrap();
        answer
    };
    let page = answer("/live.json");
    assert!(page.contains("no frame yet"), "{page}");
    // Counters are there from the start, so that their rates have a begin.
    let metrics = answer("/metrics");
    let missing = "modem_missing_frames_total 0\n";
    assert!(metrics.contains(missing), "{metrics}");
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn streams_that_cannot_be_are_refused() {
    let (folder, _) = message(10);
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message = at("message");
    let tx = ["modem", "tx", "--input", &message, "--output"];
    let rx = ["modem", "rx", "--input"];
    let capture = at("air.pcap");
    let sent = ["tx", "--input", &message, "--output", &capture];
    modem(sent, &["--sample-rate", "1M"]);
    let before = fs::read(&capture).unwrap();
    let nobody = format!("shm:karoo-nobody-{}", std::process::id());
    let rows: [(&[&str], &[&str], &str); 14] = [
        (&tx, &["a.pcapng", "--sample-rate", "1M"], ".pcap"),
        (&rx, &[&capture, "--output", &capture], "name another file"),
        (&rx, &[&capture, "--graph"], "leave out --graph"),
        (
            &["modem", "tx", "--input", &capture, "--output"],
            &[&capture, "--sample-rate", "1M"],
            "name another file",
        ),
        (&tx, &["udp:127.0.0.1:4991"], "--sample-rate"),
        (
            &tx,
            &[
                "udp:127.0.0.1:4991",
                "--format",
                "cf32",
                "--sample-rate",
                "1M",
            ],
            "16-bit",
        ),
        (
            &tx,
            &["udp:127.0.0.1:4991,size=40", "--sample-rate", "1M"],
            "no room for samples",
        ),
        (
            &tx,
            &["udp:127.0.0.1:4991,idle=3", "--sample-rate", "1M"],
            "idle= is for inputs",
        ),
        (&tx, &["a.cf32", "--lose", "0.1"], "has no packets"),
        (&tx, &["a.cf32", "--lose", "2"], "0 to 1"),
        (&tx, &["a.cf32", "--planar"], "shm:, tcp: and -"),
        (&rx, &["dpdk:none0:239.1.2.3:4991"], "none0"),
        (&rx, &["dpdk:lo:10.0.0.1:4991"], "no multicast group"),
        (&rx, &["udp:127.0.0.1:4991", "--seconds", "0"], "above 0"),
    ];
    for (command, options, wanted) in rows {
        let output = karoo(command.iter().chain(options));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(wanted), "{options:?}: {said}");
    }
    assert!(fs::read(&capture).unwrap() == before);
    // Nobody writes into it: the time that is given ends it, which no other command line mends.
    let output = karoo(rx.iter().chain(&[nobody.as_str(), "--seconds", "0.2"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped"), "{said}");
}
