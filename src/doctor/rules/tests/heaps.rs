//! What is wrong with heaps that come.

use super::*;

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
