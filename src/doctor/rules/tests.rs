//! Findings of evidence that tests make up: which is first, and what it tells.

mod heaps;
mod host;
mod silence;
mod time;
mod timestamps;

use std::net::Ipv4Addr;

use dsp::SampleBits;

use super::diagnose;
use crate::config::RecvConfig;
use crate::doctor::{
    Ailment, Asked, AskedOutput, Evidence, Finding, Flow, FlowKey, IgmpPath, InterfaceFacts, Report,
};
use crate::net::parse_endpoints;

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
fn every_ailment_is_explained_in_the_document() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/doctor.md");
    let text = std::fs::read_to_string(path).unwrap();
    for ailment in Ailment::ALL {
        let row = format!("| `{}` |", ailment.name());
        assert!(text.contains(&row), "{row}");
    }
}
