//! Mistakes that people make, each made for real: `karoo doctor` names it first.
//!
//! Needs root, for network namespaces; where there are none, says so and passes.

mod patient;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, send};
use patient::{
    BYTES, Digitiser, Patient, RATE, SOURCE, Stream, querier, run, sync_time, tagged, text, to,
    wire,
};
use spead::SpectraRepr;

use super::cable::Cable;
use super::chain::Karoo;
use super::rig::{ENGINE_OPTIONS, METRICS, OUTPUT, get};
use crate::support::left_out;

#[test]
fn a_stream_that_is_right_has_no_finding() {
    let Some(patient) = Patient::hears("healthy", Stream::default()) else {
        return;
    };
    let (report, status) = patient.examine_by(&[], &[]);
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    assert_eq!(status, Some(0));
    let seen = report["seen"].as_array().unwrap();
    let ours = seen.iter().filter(|seen| seen["ours"] == true);
    assert_eq!(ours.count(), 2, "{report:#}");
}

/// katgpucbf's issue 1000: "There are no more prompts. Is this normal?"
#[test]
fn the_mistakes_of_katgpucbfs_issue_1000_are_all_named() {
    let unicast = Stream {
        to: [to("10.17.16.2:7148"), to("10.17.16.2:7148")],
        ..Stream::default()
    };
    let Some(mut patient) = Patient::new("issue1000") else {
        return;
    };
    patient.ip("engine", "address add 10.17.16.2/24 dev k0");
    patient.ip("test", "address add 10.17.16.3/24 dev k0");
    patient.send(unicast);
    let output = "--narrowband=name=n,channels=1024,decimation=8,centre_frequency=1420.0,\
                  dst=239.10.10.10,jones_per_batch=32768,taps=4";
    let options = [
        "239.10.10.10",
        output,
        "--adc-sample-rate=1712e6",
        "--recv-chunk-samples=33554432",
    ];
    let (report, status) = patient.examine_by(&[], &options);
    assert_eq!(status, Some(1));
    let codes: Vec<_> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| text(&finding["code"]))
        .collect();
    let expected = ["unicast", "output-is-input", "frequency-unit"];
    assert_eq!(codes, expected, "{report:#}");
    let mends = text(&report["findings"][0]["way_out"]);
    assert!(
        mends.contains("239.10.10.10:7148") && mends.contains("10.17.16.2"),
        "{mends}"
    );
}

#[test]
fn heaps_to_other_groups_another_port_and_another_interface() {
    let stream = Stream {
        to: [to("239.103.0.64:7148"), to("239.103.1.64:7148")],
        ..Stream::default()
    };
    let Some(mut patient) = Patient::hears("elsewhere", stream) else {
        return;
    };
    patient.has("other-groups", &[]);
    patient.digitiser = None;
    patient.send(Stream {
        to: [to("239.102.0.64:7150"), to("239.102.1.64:7150")],
        ..Stream::default()
    });
    let finding = patient.has("wrong-port", &[]);
    assert!(
        text(&finding["way_out"]).contains("239.102.0.64:7150"),
        "{finding}"
    );
    patient.digitiser = None;
    patient.send(Stream {
        interface: 1,
        ..Stream::default()
    });
    let finding = patient.has("other-interface", &[]);
    assert!(
        text(&finding["way_out"]).contains("--recv-interface k1"),
        "{finding}"
    );
}

#[test]
fn a_part_of_the_groups_is_not_all() {
    let stream = Stream {
        every_second: Some([to("239.102.0.65:7148"), to("239.102.1.65:7148")]),
        ..Stream::default()
    };
    let Some(patient) = Patient::hears("part", stream) else {
        return;
    };
    let finding = patient.has("some-groups", &[]);
    let mends = text(&finding["way_out"]);
    assert!(
        mends.contains("239.102.0.65") && mends.contains("239.102.1.65"),
        "{mends}"
    );
}

#[test]
fn heaps_of_another_width_and_of_another_number_of_samples() {
    let narrow = Stream {
        bytes: 4096,
        ..Stream::default()
    };
    let Some(mut patient) = Patient::hears("sizes", narrow) else {
        return;
    };
    let finding = patient.has("sample-bits", &[]);
    assert_eq!(finding["way_out"], "--dig-sample-bits 8");
    patient.digitiser = None;
    patient.send(Stream {
        bytes: 2560,
        samples: 2048,
        ..Stream::default()
    });
    let finding = patient.has("heap-samples", &[]);
    assert!(
        text(&finding["way_out"]).starts_with("--recv-packet-samples 2048"),
        "{finding}"
    );
}

#[test]
fn timestamps_that_are_no_multiples() {
    let stream = Stream {
        offset: 16,
        ..Stream::default()
    };
    let Some(patient) = Patient::hears("unaligned", stream) else {
        return;
    };
    patient.has("unaligned-timestamps", &[]);
    let (report, _) = patient.examine_by(&[], &["--mask-timestamp"]);
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
}

#[test]
fn one_polarisation_and_two_of_one_number() {
    let one = Stream {
        ids: vec![0],
        ..Stream::default()
    };
    let Some(mut patient) = Patient::hears("pols", one) else {
        return;
    };
    patient.has("one-polarisation", &[]);
    patient.digitiser = None;
    patient.send(Stream {
        ids: vec![4, 6],
        ..Stream::default()
    });
    patient.has("polarisation-numbers", &[]);
}

#[test]
fn another_rate_another_time_and_heaps_that_come_twice() {
    let Some(mut patient) = Patient::hears("clock", Stream::default()) else {
        return;
    };
    let finding = patient.has("adc-sample-rate", &["--adc-sample-rate=819200"]);
    assert!(text(&finding["what"]).contains("819200"), "{finding}");
    let finding = patient.has("adc-sample-rate", &["--adc-sample-rate=0.4096"]);
    assert!(text(&finding["way_out"]).contains("0.4096M"), "{finding}");
    let finding = patient.has("sync-time", &["--sync-time=1763699000"]);
    assert!(
        text(&finding["way_out"]).contains("about 1763700000."),
        "{finding}"
    );
    patient.has("sync-time", &["--sync-time=1763700000000"]);
    patient.digitiser = None;
    patient.send(Stream {
        copies: 2,
        ..Stream::default()
    });
    patient.has("duplicates", &[]);
}

#[test]
fn what_is_no_digitiser() {
    let noise = Stream {
        change: |packet| packet[8..].to_vec(),
        ..Stream::default()
    };
    let Some(mut patient) = Patient::hears("foreign", noise) else {
        return;
    };
    patient.has("not-spead", &[]);
    patient.digitiser = None;
    patient.send(Stream {
        change: |packet| {
            let mut preamble = [0; spead::spectra::PREAMBLE_LEN];
            SpectraRepr {
                heap_count: 1,
                heap_length: 1024,
                payload_offset: 0,
                payload_length: 1024,
                timestamp: 0,
                feng_id: 0,
                first_channel: 0,
            }
            .emit(&mut preamble);
            [&preamble, &packet[..1024]].concat()
        },
        ..Stream::default()
    });
    patient.has("spectra-at-source", &[]);
    patient.digitiser = None;
    patient.send(Stream {
        // The length of the heap is twice that of the packet.
        change: |mut packet| {
            let length = 0x8002_0000_0000_0000u64 | (2 * BYTES as u64);
            packet[16..24].copy_from_slice(&length.to_be_bytes());
            packet
        },
        ..Stream::default()
    });
    patient.has("heap-spans-packets", &[]);
}

#[test]
fn an_mtu_that_is_too_small_here_or_at_the_sender() {
    let Some(patient) = Patient::hears("mtu", Stream::default()) else {
        return;
    };
    patient.ip("test", "link set k0 mtu 1500");
    patient.has("fragments", &[]);
    patient.ip("engine", "link set k0 mtu 1500");
    let finding = patient.has("mtu", &[]);
    assert!(
        text(&finding["way_out"]).contains("ip link set dev k0 mtu 9000"),
        "{finding}"
    );
}

#[test]
fn interfaces_that_are_no_use() {
    let Some(patient) = Patient::new("interfaces") else {
        return;
    };
    patient.has("nothing-comes", &[]);
    patient.has("no-such-interface", &["--recv-interface=eth7"]);
    patient.has("foreign-address", &["10.77.0.99"]);
    patient.ip("test", "link set k0 down");
    patient.has("no-carrier", &[]);
    patient.ip("engine", "address del 10.77.0.1/24 dev k0");
    patient.has("no-address", &[]);
    patient.ip("engine", "link set k0 down");
    let finding = patient.has("interface-down", &[]);
    assert_eq!(finding["way_out"], "ip link set dev k0 up");
}

/// Without rights, what is sent to the engine is heard all the same, and judged.
#[test]
fn who_may_not_look_listens() {
    let Some(mut patient) = Patient::hears("rights", Stream::default()) else {
        return;
    };
    let without = ["setpriv", "--bounding-set=-net_raw"];
    let (report, status) = patient.examine_by(&without, &[]);
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    assert_eq!(status, Some(0));
    let heaps = |report: &serde_json::Value| {
        let seen = report["seen"].as_array().unwrap();
        let heaps = seen
            .iter()
            .flat_map(|seen| seen["heaps"].as_array().unwrap());
        heaps.map(|heaps| heaps.as_u64().unwrap()).sum::<u64>()
    };
    assert!(heaps(&report) > 50, "{report:#}");
    let note = text(&report["notes"][0]);
    assert!(note.contains("CAP_NET_RAW"), "{note}");

    let packet = ["--recv-interface=af_packet:k0"];
    let (report, status) = patient.examine_by(&without, &packet);
    assert_eq!(report["findings"][0]["code"], "no-rights", "{report:#}");
    assert_eq!(status, Some(1));

    patient.digitiser = None;
    patient.send(Stream {
        bytes: 4096,
        ..Stream::default()
    });
    let (report, _) = patient.examine_by(&without, &[]);
    assert_eq!(report["findings"][0]["code"], "sample-bits", "{report:#}");
}

#[test]
fn options_that_cannot_be_meant() {
    let Some(patient) = Patient::hears("options", Stream::default()) else {
        return;
    };
    let loops = "--wideband=name=w,channels=64,dst=239.102.0.64+1,jones_per_batch=4096,taps=4";
    patient.has("output-is-input", &[loops]);
    let hertz = "--narrowband=name=n,channels=64,decimation=8,centre_frequency=0.1,dst=239.10.10.0+3,\
                 jones_per_batch=4096,taps=4";
    let finding = patient.has("frequency-unit", &[hertz]);
    assert!(text(&finding["way_out"]).contains("100kHz"), "{finding}");
}

/// The kernel takes a tag off and says so beside the frame.
#[test]
fn heaps_in_a_vlan() {
    let Some(mut patient) = Patient::new("vlan") else {
        return;
    };
    let wire = Cable::within(&patient.cable.test, || wire("k0"));
    let tag_and_send = move |to: SocketAddrV4, packet: &[u8]| {
        send(wire.as_raw_fd(), &tagged(to, packet), MsgFlags::empty()).expect("a frame is sent");
    };
    patient.digitiser = Some(Digitiser::start(Stream::default(), tag_and_send));
    let finding = patient.has("vlan-tag", &[]);
    assert!(text(&finding["what"]).contains("VLAN 5"), "{finding}");
}

#[test]
fn a_firewall_and_a_reverse_path_filter_that_keep_igmp_out() {
    let Some(patient) = Patient::hears("kernel", Stream::default()) else {
        return;
    };
    let foreign = Ipv4Addr::new(192, 0, 2, 7);
    patient.ip("test", "address add 192.0.2.7/32 dev k0");
    let asks = querier(&patient, foreign);
    let sysctl = |value: &str| {
        for interface in ["all", "k0"] {
            let path = format!("net.ipv4.conf.{interface}.rp_filter={value}");
            run(&format!(
                "ip netns exec {} sysctl -qw {path}",
                patient.cable.engine
            ));
        }
    };
    sysctl("1");
    let finding = patient.has("reverse-path-filter", &[]);
    assert!(text(&finding["what"]).contains("192.0.2.7"), "{finding}");
    sysctl("0");
    let (report, _) = patient.examine_by(&[], &[]);
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    drop(asks);
    let nft = |rule: &str| {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &patient.cable.engine, "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(rule.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success(), "{rule}");
    };
    if Command::new("nft").arg("--version").output().is_err() {
        left_out("no nft: install nftables");
        return;
    }
    nft("table ip f { chain i { type filter hook input priority 0; policy drop; }; }");
    patient.has("firewall", &[]);
    nft("flush table ip f; table ip f { chain i { ip protocol igmp accept; }; }");
    let (report, _) = patient.examine_by(&[], &[]);
    assert_eq!(report["findings"], serde_json::json!([]), "{report:#}");
    nft(
        "delete table ip f; table ip f { chain o { type filter hook output priority 0; ip protocol igmp drop; }; }",
    );
    patient.has("firewall", &[]);
}

/// A switch that lets groups through to members, forgets members, and asks nobody.
#[test]
fn a_switch_that_forgets_without_a_querier() {
    let Some(mut patient) = Patient::new("querier") else {
        return;
    };
    let test = patient.cable.test.clone();
    for command in [
        "link add br0 type bridge mcast_snooping 1 mcast_igmp_version 3 mcast_query_interval 360000 \
         mcast_startup_query_interval 360000 mcast_startup_query_count 1 mcast_query_response_interval 1 \
         mcast_membership_interval 30",
        "address del 10.77.0.2/24 dev k0",
        "link set k0 master br0",
        "link set br0 mtu 9000",
        "address add 10.77.0.2/24 dev br0",
        "link set br0 type bridge mcast_querier 1",
        "link set br0 up",
    ] {
        run(&format!("ip -n {test} {command}"));
    }
    patient.send(Stream::default());
    // Its only question is asked when it starts.
    thread::sleep(Duration::from_millis(500));
    patient.has("no-querier", &["--for=3"]);
}

/// Engines ask by themselves.
#[test]
fn an_engine_that_hears_nothing_says_why_by_itself() {
    let stream = Stream {
        to: [to("239.103.0.64:7148"), to("239.103.1.64:7148")],
        ..Stream::default()
    };
    let Some(patient) = Patient::hears("engine", stream) else {
        return;
    };
    let mut engine = engine(&patient);
    engine.wait(|engine| engine.log().contains("finding="));
    let line = finding(engine);
    assert!(line.contains("other-groups"), "{line}");
    assert!(
        line.contains("give 239.103.0.64:7148,239.103.1.64:7148 as SRC"),
        "{line}"
    );
}

/// Also of a silence that begins later.
#[test]
fn an_engine_that_hears_no_more_says_why_by_itself() {
    let Some(mut patient) = Patient::hears("later", Stream::default()) else {
        return;
    };
    let mut engine = engine(&patient);
    engine.wait(|_| {
        let text = get(&patient.cable.engine, METRICS, "/metrics");
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("fgpu_input_heaps_total") && !line.ends_with(" 0"))
    });
    assert!(!engine.log().contains("finding="), "{}", engine.log());
    patient.digitiser = None;
    patient.send(Stream {
        to: [to("239.103.0.64:7148"), to("239.103.1.64:7148")],
        ..Stream::default()
    });
    engine.wait(|engine| engine.log().contains("finding="));
    let line = finding(engine);
    assert!(line.contains("other-groups"), "{line}");
}

/// One that is up, for what [`Stream`] has.
fn engine(patient: &Patient) -> Karoo {
    let times = format!("--sync-time={}", sync_time());
    let rate = format!("--adc-sample-rate={RATE}");
    let metrics = format!("--prometheus-port={METRICS}");
    let own = ["fgpu", "--recv-interface=k0", "--send-interface=k1", &times];
    let outputs = ["--wideband", OUTPUT, SOURCE];
    let args = [&own[..], &outputs, &ENGINE_OPTIONS, &[&rate[..], &metrics]].concat();
    Karoo::start_with(&patient.cable.engine, &args, &[]).up()
}

/// The first finding of an engine that ends well.
fn finding(mut engine: Karoo) -> String {
    engine.interrupt();
    let (status, _) = engine.ended();
    let log = engine.log();
    assert_eq!(status.code(), Some(0), "{log}");
    let line = log.lines().find(|line| line.contains("finding=")).unwrap();
    assert!(line.contains("WARN"), "{log}");
    line.to_owned()
}
