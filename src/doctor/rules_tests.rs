//! Findings of evidence that tests make up: which is first, and what it tells.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use dsp::SampleBits;

use super::evidence::{Blind, Evidence, Flow, FlowKey, IgmpPath, InterfaceFacts, PolHeaps};
use super::{Ailment, Asked, AskedOutput, Finding, Report, diagnose};
use crate::config::RecvConfig;
use crate::net::parse_endpoints;
use crate::recv::DropCause;

const RATE: f64 = 4.096e6;
const SYNC_TIME: f64 = 1_763_700_000.0;
/// The look begins this many seconds after the sync time, and takes two.
const BEGUN: f64 = 1000.0;
const SECONDS: f64 = 2.0;
const HEAP: u64 = 4096;

fn asked() -> Asked {
    Asked {
        endpoints: parse_endpoints("239.102.0.64:7148,239.102.1.64:7148").unwrap(),
        receive: vec!["k0".to_owned()],
        send: vec!["k1".to_owned()],
        recv: RecvConfig {
            packet_samples: HEAP as usize,
            sample_bits: SampleBits::new(10).unwrap(),
            chunk_samples: 1 << 20,
            mask_timestamp: false,
        },
        adc_sample_rate: Some(RATE),
        sync_time: Some(SYNC_TIME),
        outputs: vec![AskedOutput {
            name: "w".to_owned(),
            option: "--wideband",
            dst: parse_endpoints("239.10.10.0+3").unwrap(),
            band: None,
        }],
        packet_payload: 8192,
    }
}

/// What a digitiser sends in the time of the look.
#[derive(Clone)]
struct Sender {
    on: &'static str,
    to: &'static str,
    pol: usize,
    bytes: usize,
    /// Samples from heap to heap.
    step: u64,
    offset: u64,
    rate: f64,
    /// Seconds of the look after which it falls silent.
    until: f64,
}

impl Sender {
    fn of(pol: usize) -> Self {
        Self {
            on: "k0",
            to: ["239.102.0.64:7148", "239.102.1.64:7148"][pol],
            pol,
            bytes: 5120,
            step: HEAP,
            offset: 0,
            rate: RATE,
            until: SECONDS,
        }
    }

    fn flow(&self) -> Flow {
        let mut flow = Flow::new(FlowKey {
            interface: self.on.to_owned(),
            vlan: None,
            src: Ipv4Addr::new(10, 77, 0, 2),
            dst: self.to.parse().unwrap(),
        });
        let mut timestamp = ((BEGUN * self.rate) as u64).next_multiple_of(self.step) + self.offset;
        while timestamp as f64 / self.rate < BEGUN + self.until {
            let unix = SYNC_TIME + timestamp as f64 / self.rate + 0.002;
            flow.pols[self.pol].note(timestamp, self.bytes, unix);
            flow.datagrams += 1;
            timestamp += self.step;
        }
        flow
    }
}

fn evidence(senders: &[Sender]) -> Evidence {
    let interface = |name: &str, ip: u8| InterfaceFacts {
        name: name.to_owned(),
        receives: (name == "k0").then(|| name.to_owned()),
        sends: name == "k1",
        carrier: Some(true),
        addresses: vec![Ipv4Addr::new(10, 77, ip, 1)],
        mtu: Some(9000),
        ..InterfaceFacts::default()
    };
    let mut evidence = Evidence {
        interfaces: vec![interface("k0", 0), interface("k1", 1)],
        looked: (SYNC_TIME + BEGUN, SYNC_TIME + BEGUN + SECONDS),
        ..Evidence::default()
    };
    evidence.igmp.insert("k0".to_owned(), IgmpPath::Open);
    evidence.wire.flows = senders.iter().map(Sender::flow).collect();
    evidence
}

fn both(change: impl Fn(&mut Sender)) -> Vec<Sender> {
    [0, 1]
        .map(|pol| {
            let mut sender = Sender::of(pol);
            change(&mut sender);
            sender
        })
        .to_vec()
}

/// The findings' codes, and the first of them.
fn found(asked: &Asked, evidence: &Evidence) -> (Vec<Ailment>, Finding) {
    let findings = diagnose(asked, evidence);
    let first = findings.first().cloned().expect("a finding");
    (findings.iter().map(|f| f.code).collect(), first)
}

/// The only finding.
fn only(asked: &Asked, evidence: &Evidence, code: Ailment) -> Finding {
    let (codes, first) = found(asked, evidence);
    assert_eq!(codes, [code], "{first:?}");
    assert!(!first.what.is_empty() && !first.way_out.is_empty());
    first
}

#[test]
fn a_healthy_stream_has_no_finding() {
    assert_eq!(diagnose(&asked(), &evidence(&both(|_| {}))), []);
    // Neither has one of which little is asked.
    let little = Asked {
        adc_sample_rate: None,
        sync_time: None,
        outputs: Vec::new(),
        ..asked()
    };
    assert_eq!(diagnose(&little, &evidence(&both(|_| {}))), []);
}

#[test]
fn what_is_sent_elsewhere_is_named_with_where() {
    let to = |pol0: &'static str, pol1: &'static str| {
        let mut senders = both(|_| {});
        (senders[0].to, senders[1].to) = (pol0, pol1);
        evidence(&senders)
    };
    let unicast = to("10.77.0.1:7148", "10.77.0.1:7149");
    let finding = only(&asked(), &unicast, Ailment::Unicast);
    assert!(finding.way_out.contains("10.77.0.1:7148"), "{finding:?}");
    let ports = to("239.102.0.64:7150", "239.102.1.64:7150");
    let finding = only(&asked(), &ports, Ailment::WrongPort);
    assert!(finding.way_out.contains("239.102.0.64:7150"), "{finding:?}");
    let groups = to("239.103.0.64:7148", "239.103.1.64:7148");
    only(&asked(), &groups, Ailment::OtherGroups);
    let wire = evidence(&both(|sender| sender.on = "k1"));
    let finding = only(&asked(), &wire, Ailment::OtherInterface);
    assert!(
        finding.way_out.starts_with("--recv-interface k1"),
        "{finding:?}"
    );
}

#[test]
fn heaps_of_another_size_tell_the_option_from_their_timestamps() {
    let narrow = evidence(&both(|sender| sender.bytes = 4096));
    let finding = only(&asked(), &narrow, Ailment::SampleBits);
    assert_eq!(finding.way_out, "--dig-sample-bits 8");
    let short = evidence(&both(|sender| (sender.bytes, sender.step) = (2560, 2048)));
    let finding = only(&asked(), &short, Ailment::HeapSamples);
    assert!(
        finding.way_out.starts_with("--recv-packet-samples 2048,"),
        "{finding:?}"
    );
    // As many bytes as 4096 samples of 8 bits would have.
    let other = evidence(&both(|sender| (sender.bytes, sender.step) = (4096, 2048)));
    let finding = only(&asked(), &other, Ailment::HeapSamples);
    let way_out = "--recv-packet-samples 2048 --dig-sample-bits 16";
    assert!(finding.way_out.starts_with(way_out), "{finding:?}");
}

#[test]
fn timestamps_off_the_grid_are_to_be_masked() {
    let wire = evidence(&both(|sender| sender.offset = 8));
    let finding = only(&asked(), &wire, Ailment::UnalignedTimestamps);
    assert!(
        finding.way_out.starts_with("--mask-timestamp"),
        "{finding:?}"
    );
    let masked = Asked {
        recv: RecvConfig {
            mask_timestamp: true,
            ..asked().recv
        },
        ..asked()
    };
    assert_eq!(diagnose(&masked, &wire), []);
}

#[test]
fn polarisations_that_lack_are_told_from_those_with_a_wrong_number() {
    let one = evidence(&[Sender::of(0)]);
    let finding = only(&asked(), &one, Ailment::OnePolarisation);
    assert!(
        finding.what.ends_with("none of polarisation 1"),
        "{finding:?}"
    );
    let mut senders = both(|_| {});
    senders[1].to = "239.102.9.64:7148";
    let elsewhere = only(&asked(), &evidence(&senders), Ailment::OnePolarisation);
    assert!(
        elsewhere.way_out.contains("239.102.9.64:7148"),
        "{elsewhere:?}"
    );
    let same = evidence(&both(|sender| sender.pol = 0));
    only(&asked(), &same, Ailment::PolarisationNumbers);
}

#[test]
fn rates_and_times_are_measured() {
    let fast = evidence(&both(|sender| sender.rate = 1.1 * RATE));
    let finding = only(&asked(), &fast, Ailment::AdcSampleRate);
    assert!(finding.way_out.contains("4.506M"), "{finding:?}");
    let mega = Asked {
        adc_sample_rate: Some(4.096),
        ..asked()
    };
    let (codes, finding) = found(&mega, &evidence(&both(|_| {})));
    assert_eq!(codes, [Ailment::AdcSampleRate, Ailment::FrequencyUnit]);
    assert!(
        finding.way_out.contains("--adc-sample-rate 4.096M"),
        "{finding:?}"
    );
    let late = Asked {
        sync_time: Some(SYNC_TIME + 100.0),
        ..asked()
    };
    let finding = only(&late, &evidence(&both(|_| {})), Ailment::SyncTime);
    assert!(
        finding.way_out.contains(&format!("{SYNC_TIME:.1}")),
        "{finding:?}"
    );
    let milliseconds = Asked {
        sync_time: Some(1e3 * SYNC_TIME),
        ..asked()
    };
    let (codes, finding) = found(&milliseconds, &evidence(&[]));
    assert_eq!(
        codes,
        [Ailment::NothingComes, Ailment::SyncTime],
        "{finding:?}"
    );
    for (time, told) in [
        (1e3 * SYNC_TIME, "it is in milliseconds?"),
        // Nobody means a time of 1973.
        (99_999_999_999.0, "give the UNIX time in seconds"),
    ] {
        let asked = Asked {
            sync_time: Some(time),
            ..asked()
        };
        let findings = diagnose(&asked, &evidence(&[]));
        let mut findings = findings.iter();
        let finding = findings.find(|finding| finding.code == Ailment::SyncTime);
        assert!(finding.unwrap().way_out.starts_with(told), "{finding:?}");
    }
}

/// Packets that are held up, as by a busy host, come late and no sooner.
#[test]
fn heaps_that_come_in_bunches_have_the_rate_that_they_have() {
    let mut wire = evidence(&both(|_| {}));
    for flow in &mut wire.wire.flows {
        for pol in &mut flow.pols {
            let held = |unix: f64| (unix * 5.0).ceil() / 5.0;
            for (at, unix) in pol.timestamps.values_mut().enumerate() {
                if at % 1000 > 300 {
                    *unix = held(*unix);
                }
            }
            pol.span = pol
                .span
                .map(|[first, (last, unix)]| [first, (last, held(unix))]);
        }
    }
    assert_eq!(diagnose(&asked(), &wire), []);
}

#[test]
fn input_that_ends_without_a_querier_names_it() {
    let mut wire = evidence(&both(|sender| sender.until = 0.8));
    only(&asked(), &wire, Ailment::NoQuerier);
    let querier = ("k0".to_owned(), Ipv4Addr::new(10, 77, 0, 9));
    wire.wire.queries.insert(querier.clone(), 1);
    wire.heard.insert(querier);
    only(&asked(), &wire, Ailment::Stopped);
}

#[test]
fn what_the_kernel_keeps_from_itself_is_named() {
    let mut wire = evidence(&both(|_| {}));
    wire.igmp.insert("k0".to_owned(), IgmpPath::DroppedIn);
    only(&asked(), &wire, Ailment::Firewall);
    wire.igmp.insert("k0".to_owned(), IgmpPath::Open);
    let querier = ("k0".to_owned(), Ipv4Addr::new(192, 0, 2, 1));
    wire.wire.queries.insert(querier.clone(), 3);
    only(&asked(), &wire, Ailment::Firewall);
    wire.interfaces[0].reverse_path = 1;
    let finding = only(&asked(), &wire, Ailment::ReversePath);
    assert!(
        finding.way_out.contains("net.ipv4.conf.k0.rp_filter"),
        "{finding:?}"
    );
    wire.heard.insert(querier);
    assert_eq!(diagnose(&asked(), &wire), []);
}

#[test]
fn interfaces_say_what_they_lack() {
    let mut wire = evidence(&both(|_| {}));
    wire.interfaces[0].mtu = Some(1500);
    let finding = only(&asked(), &wire, Ailment::Mtu);
    assert!(finding.what.contains("5220 bytes"), "{finding:?}");
    wire.interfaces[0].mtu = Some(9000);
    wire.interfaces[0].carrier = Some(false);
    only(&asked(), &wire, Ailment::NoCarrier);
    let mut blind = evidence(&[]);
    blind.blind = Some(Blind::NoRights);
    let finding = only(&asked(), &blind, Ailment::NothingComes);
    let seen = finding.evidence.join("\n");
    assert!(seen.contains("only what is sent to SRC"), "{finding:?}");
    let by_packet_sockets = Asked {
        receive: vec!["af_packet:k0".to_owned()],
        ..asked()
    };
    let findings = diagnose(&by_packet_sockets, &blind);
    assert_eq!(findings[0].code, Ailment::NoRights, "{findings:?}");
    assert!(
        findings[0].way_out.ends_with("UDP sockets: k0"),
        "{findings:?}"
    );
    // What is heard is judged as ever.
    let mut heard = evidence(&both(|_| {}));
    heard.blind = Some(Blind::NoRights);
    assert_eq!(diagnose(&asked(), &heard), []);
    let refusal = "interface 'k0' is down: ip link set dev k0 up";
    blind.blind = Some(Blind::NotTheKernels);
    blind.refused = vec![(Ailment::InterfaceDown, refusal.to_owned())];
    let finding = only(&asked(), &blind, Ailment::InterfaceDown);
    assert_eq!(finding.way_out, "ip link set dev k0 up");
    let foreign = Asked {
        endpoints: parse_endpoints("10.9.9.9").unwrap(),
        ..asked()
    };
    let (codes, _) = found(&foreign, &evidence(&both(|_| {})));
    assert_eq!(codes[0], Ailment::ForeignAddress);
}

/// katgpucbf's issue 1000, but for its interfaces.
#[test]
fn a_unicast_digitiser_an_output_loop_and_a_frequency_in_megahertz_are_three_findings() {
    let asked = Asked {
        endpoints: parse_endpoints("239.10.10.10+1").unwrap(),
        adc_sample_rate: Some(1712e6),
        sync_time: Some(SYNC_TIME),
        outputs: vec![AskedOutput {
            name: "n".to_owned(),
            option: "--narrowband",
            dst: parse_endpoints("239.10.10.10+1").unwrap(),
            band: Some((1420.0, 8)),
        }],
        ..asked()
    };
    let wire = evidence(&both(|sender| sender.to = "10.17.16.2:7148"));
    let (codes, _) = found(&asked, &wire);
    let expected = [
        Ailment::Unicast,
        Ailment::OutputIsInput,
        Ailment::FrequencyUnit,
    ];
    assert_eq!(codes, expected);
    let findings = diagnose(&asked, &wire);
    let way_out = &findings[2].way_out;
    assert!(
        way_out.contains("1.42GHz") && way_out.contains("564MHz"),
        "{way_out}"
    );
    let text = Report::new(&asked, &wire, findings).to_string();
    assert!(text.starts_with("3 findings on k0"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn heaps_that_lack_are_looked_for_elsewhere() {
    let mut senders = both(|sender| sender.step = 2 * HEAP);
    let (codes, _) = found(&asked(), &evidence(&senders));
    assert_eq!(codes, [Ailment::MissingHeaps]);
    let rest = both(|sender| {
        (sender.step, sender.offset) = (2 * HEAP, HEAP);
        sender.to = "239.102.2.64:7148";
    });
    senders.extend(rest);
    let finding = only(&asked(), &evidence(&senders), Ailment::SomeGroups);
    assert!(finding.way_out.contains("239.102.2.64:7148"), "{finding:?}");
}

/// What comes, with other timestamps.
fn timed(wire: &mut Evidence, timestamp: impl Fn(u64) -> u64) {
    let pols = wire.wire.flows.iter_mut().flat_map(|flow| &mut flow.pols);
    for pol in pols {
        let heaps = std::mem::take(&mut pol.timestamps);
        let bytes = pol.sizes.keys().next().copied().unwrap_or(0);
        *pol = PolHeaps::default();
        for (was, unix) in heaps {
            pol.note(timestamp(was), bytes, unix);
        }
    }
}

/// Timestamps wrap in the middle of the look, whether or not a heap's samples divide their range.
#[test]
fn timestamps_that_wrap_are_those_of_any_other_stream() {
    let later = (1 << 48) - ((BEGUN + SECONDS / 2.0) * RATE) as u64;
    let wrapped = |senders: &[Sender]| {
        let mut wire = evidence(senders);
        timed(&mut wire, |timestamp| (timestamp + later) % (1 << 48));
        wire
    };
    let asked = Asked {
        sync_time: Some(SYNC_TIME - later as f64 / RATE),
        ..asked()
    };
    assert_eq!(diagnose(&asked, &wrapped(&both(|_| {}))), []);
    let (codes, _) = found(&asked, &wrapped(&both(|sender| sender.step = 2 * HEAP)));
    assert_eq!(codes, [Ailment::MissingHeaps]);
    let odd = wrapped(&both(|sender| (sender.bytes, sender.step) = (3750, 3000)));
    let finding = only(&asked, &odd, Ailment::HeapSamples);
    assert!(
        finding.way_out.starts_with("--recv-packet-samples 3000,"),
        "{finding:?}"
    );
}

/// A heap of either polarisation has another timestamp than it should.
fn damaged(wire: &mut Evidence, timestamp: u64) {
    let right = ((BEGUN + 0.5) * RATE) as u64;
    timed(wire, |was| if was == right { timestamp } else { was });
}

#[test]
fn a_stray_heap_is_told_as_one() {
    let mut wire = evidence(&both(|_| {}));
    damaged(&mut wire, 1 << 40);
    let finding = only(&asked(), &wire, Ailment::StrayTimestamps);
    let seen = finding.evidence.join("\n");
    let words = "in 1 of 2 000 heaps of polarisation 0: 1099511627776, from 10.77.0.2";
    assert!(seen.contains(words), "{finding:?}");
    // What is wrong with the others is found as ever.
    let mut slow = evidence(&both(|sender| sender.step = 2 * HEAP));
    damaged(&mut slow, 1 << 40);
    let (codes, _) = found(&asked(), &slow);
    assert_eq!(codes, [Ailment::MissingHeaps, Ailment::StrayTimestamps]);
}

/// Nearer to the others than a stray, but before or behind them all.
#[test]
fn a_heap_that_comes_too_soon_or_too_late_spoils_no_rate() {
    for (timestamp, unix) in [(BEGUN + SECONDS + 0.7, 1.9), (BEGUN - 0.7, 0.1)] {
        let mut wire = evidence(&both(|_| {}));
        let pol = &mut wire.wire.flows[0].pols[0];
        let last = pol.span.unwrap()[1];
        let timestamp = (timestamp * RATE) as u64 / HEAP * HEAP;
        pol.note(timestamp, 5120, SYNC_TIME + BEGUN + unix);
        pol.note(last.0 + HEAP, 5120, last.1 + 0.001);
        assert_eq!(diagnose(&asked(), &wire), []);
    }
}

/// Of more heaps than timestamps are kept of.
#[test]
fn a_stray_that_comes_last_spoils_no_rate() {
    let fast = Asked {
        adc_sample_rate: Some(16.0 * RATE),
        ..asked()
    };
    let mut wire = evidence(&both(|sender| sender.rate = 16.0 * RATE));
    wire.wire.flows[0].pols[0].note(1 << 42, 5120, SYNC_TIME + BEGUN + SECONDS);
    assert_eq!(diagnose(&fast, &wire), []);
}

#[test]
fn a_damaged_timestamp_hides_nothing() {
    let off = ((BEGUN + 0.5) * RATE) as u64 + 8;
    let mut wire = evidence(&both(|_| {}));
    damaged(&mut wire, off);
    let finding = only(&asked(), &wire, Ailment::StrayTimestamps);
    let seen = finding.evidence.join("\n");
    assert!(
        seen.contains("is no multiple of 4096 in 1 of"),
        "{finding:?}"
    );
    let mut slow = evidence(&both(|sender| sender.step = 2 * HEAP));
    damaged(&mut slow, off);
    let (codes, _) = found(&asked(), &slow);
    assert_eq!(codes, [Ailment::MissingHeaps, Ailment::StrayTimestamps]);
    // Nor does it hide the samples of a heap.
    let mut short = evidence(&both(|sender| (sender.bytes, sender.step) = (2560, 2048)));
    damaged(&mut short, off);
    let (_, finding) = found(&asked(), &short);
    assert!(
        finding.way_out.starts_with("--recv-packet-samples 2048,"),
        "{finding:?}"
    );
}

#[test]
fn what_is_no_digitiser_is_told_apart() {
    let foreign = |change: &dyn Fn(&mut Flow)| {
        let mut flow = Flow::new(Sender::of(0).flow().key);
        flow.datagrams = 10;
        change(&mut flow);
        let mut wire = evidence(&[]);
        wire.wire.flows = vec![flow];
        wire
    };
    only(
        &asked(),
        &foreign(&|flow| flow.spectra = 10),
        Ailment::SpectraAtSource,
    );
    only(
        &asked(),
        &foreign(&|flow| flow.parts = 10),
        Ailment::HeapSpansPackets,
    );
    let rule = BTreeMap::from([(DropCause::BadMagic, 10)]);
    let noise = foreign(&|flow| flow.foreign = rule.clone());
    let finding = only(&asked(), &noise, Ailment::NotSpead);
    assert!(finding.way_out.contains("Not SPEAD-64-48"), "{finding:?}");
    let mut fragments = evidence(&[]);
    let key = (
        "k0".to_owned(),
        Ipv4Addr::new(10, 77, 0, 2),
        Ipv4Addr::new(239, 102, 0, 64),
    );
    fragments.wire.fragments.insert(key, 12);
    only(&asked(), &fragments, Ailment::Fragments);
    only(&asked(), &evidence(&[]), Ailment::NothingComes);
}

#[test]
fn tags_and_second_copies_are_seen() {
    let mut tagged = evidence(&both(|_| {}));
    for flow in &mut tagged.wire.flows {
        flow.key.vlan = Some(5);
    }
    only(&asked(), &tagged, Ailment::VlanTag);
    let mut twice = evidence(&both(|_| {}));
    for flow in &mut twice.wire.flows {
        let again = flow.pols.clone();
        for (pol, heaps) in flow.pols.iter_mut().zip(again) {
            for timestamp in heaps.timestamps.into_keys() {
                let unix = SYNC_TIME + timestamp as f64 / RATE + 0.002;
                pol.note(timestamp, 5120, unix);
            }
        }
    }
    only(&asked(), &twice, Ailment::Duplicates);
}

#[test]
fn every_ailment_is_explained_in_the_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/doctor.md");
    let text = std::fs::read_to_string(path).unwrap();
    for ailment in Ailment::ALL {
        let row = format!("| `{}` |", ailment.name());
        assert!(text.contains(&row), "{row}");
    }
}
