//! Where no heap comes to where it is expected.

use std::collections::BTreeMap;

use super::*;
use crate::recv::DropCause;

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
