//! What interfaces and the kernel lack.

use super::*;
use crate::doctor::Blind;

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
