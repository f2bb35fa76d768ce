//! Rates and times, and input that ends.

use super::*;

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
