//! How engines begin and end: what is refused before anything starts, and what ends a process
//! early.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;

use super::cable::Cable;
use super::rig::{KATCP, METRICS, OUTPUT, Rig, TOO_LONG, tones};

/// Packets that cannot fit are refused before anything starts.
#[test]
fn interfaces_are_looked_at_first() {
    let Some(cable) = Cable::new("refused") else {
        return;
    };
    let refusal = |options: &[&str]| {
        let output = Command::new("ip")
            .args([
                "netns",
                "exec",
                &cable.engine,
                env!("CARGO_BIN_EXE_karoo"),
                "fgpu",
            ])
            .args([
                "--sync-time=0",
                "--adc-sample-rate=1e6",
                "--wideband",
                OUTPUT,
                "239.102.0.64+7",
            ])
            .args(options)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let none = refusal(&["--recv-interface=k0", "--send-interface=k9"]);
    assert!(none.contains("'k9'") && none.contains("k0"), "{none}");
    let ip = |args: &str| {
        Command::new("ip")
            .args(args.split(' '))
            .status()
            .unwrap()
            .success()
    };
    assert!(ip(&format!("-n {} link set k0 mtu 1500", cable.engine)));
    let mtu = refusal(&["--recv-interface=k0", "--send-interface=k0"]);
    assert!(mtu.contains("1500") && mtu.contains("mtu 9000"), "{mtu}");
    assert!(ip(&format!(
        "-n {} link set k0 mtu 9000 down",
        cable.engine
    )));
    let down = refusal(&["--recv-interface=k0", "--send-interface=k0"]);
    assert!(down.contains("link set dev k0 up"), "{down}");
}

/// As where the driver was not mounted into a container, or shows no device.
#[test]
fn an_engine_that_computes_on_the_cpu_for_want_of_a_gpu_is_warned_of() {
    let hidden = [("CUDA_VISIBLE_DEVICES", "")];
    let Some(rig) = Rig::starting("nogpu", &["--backend=auto"], &hidden) else {
        return;
    };
    let mut rig = rig.up();
    rig.end();
    let log = rig.log();
    let warning = ["WARN", "the CPU computes: 4 Msample/s", "`--backend cuda`"];
    let warned = |line: &str| warning.iter().all(|part| line.contains(part));
    assert!(log.lines().any(warned), "{log}");
}

/// Ports that others listen on are named, and nothing is left running.
#[test]
fn ports_in_use_are_refused() {
    for (name, port, named) in [
        ("metrics", METRICS, "--prometheus-port 9100"),
        ("katcp", KATCP, ":7147"),
    ] {
        let Some(cable) = Cable::new(name) else {
            return;
        };
        let any = (Ipv4Addr::UNSPECIFIED, port);
        let _listener = Cable::within(&cable.engine, || TcpListener::bind(any).unwrap());
        let options = ["--prometheus-port=9100"];
        let mut rig = Rig::start(cable, &options, tones().to_str().unwrap(), &[]);
        assert_eq!(rig.died().code(), Some(2), "{}", rig.log());
        assert!(rig.log().contains(named), "{}", rig.log());
        assert!(!rig.log().contains("other threads"), "{}", rig.log());
    }
}

/// A capture that turns out to be broken: what is named ends the process, which does not wait.
#[test]
fn a_stage_that_fails_ends_the_process_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.pcap");
    std::fs::copy(tones(), &broken).unwrap();
    let mut file = File::options().append(true).open(&broken).unwrap();
    // A record that is longer than any frame, and enough behind it that it is not just cut off.
    file.write_all(&[0; 8]).unwrap();
    file.write_all(&0x7fff_ffff_u32.to_le_bytes()).unwrap();
    file.write_all(&60_u32.to_le_bytes()).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length + (256 << 20)).unwrap();
    let Some(mut rig) = Rig::from_file("broken", &[], &broken) else {
        return;
    };
    let status = rig.died();
    assert_eq!(status.code(), Some(1), "{}", rig.log());
    assert!(rig.log().contains("broken.pcap"), "{}", rig.log());
    assert!(rig.log().contains("a stage failed"), "{}", rig.log());
}

/// Output that is paced to take minutes: the first signal lets it go on, the second does not.
#[test]
fn a_second_signal_ends_at_once() {
    let options = ["--adc-sample-rate=1000"];
    let Some(mut rig) = Rig::from_file("signals", &options, &tones()).map(Rig::up) else {
        return;
    };
    rig.wait(|rig| rig.received.end().is_some());
    rig.signal("TERM");
    rig.wait(|rig| rig.log().contains("SIGTERM"));
    // The same one at once would be the same wish.
    rig.signal("INT");
    assert_eq!(rig.died().code(), Some(130), "{}", rig.log());
    assert_eq!(rig.received.stops, 0);
}

/// Output so slow that the end would never come: it is cut off, and says so.
#[test]
fn an_end_that_takes_too_long_is_cut_off() {
    let options = ["--send-rate-factor=1e-6"];
    let Some(mut rig) = Rig::from_file("late", &options, &tones()).map(Rig::up) else {
        return;
    };
    rig.wait(|rig| rig.received.end().is_some());
    rig.signal("INT");
    assert_eq!(rig.died().code(), Some(1), "{}", rig.log());
    assert_eq!(rig.received.stops, 0);
    let log = rig.log();
    assert!(log.contains("why=SIGINT"), "{log}");
    assert!(log.contains("were still at work"), "{log}");
}

/// SIGUSR2 turns debug messages on, and off again.
#[test]
fn debug_messages_are_turned_on_and_off() {
    let Some(mut rig) = Rig::live("debug", &[]) else {
        return;
    };
    for (switch, connected) in [
        ("debug messages on=true", true),
        ("debug messages on=false", false),
    ] {
        rig.signal("USR2");
        rig.wait(|rig| rig.log().contains(switch));
        Cable::within(&rig.cable.engine, || {
            // Clients are greeted when the log knows of them.
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, KATCP)).unwrap();
            client.set_read_timeout(Some(TOO_LONG)).unwrap();
            client.read_exact(&mut [0]).unwrap();
        });
        let log = rig.log();
        let (_, since) = log.split_once(switch).unwrap();
        assert_eq!(since.contains("client connected"), connected, "{log}");
    }
    rig.end();
}
