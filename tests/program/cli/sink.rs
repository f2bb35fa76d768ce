//! What `karoo sink` refuses: with `--interface`, before it looks for the interface.

use crate::support::{data, karoo};

/// What `karoo sink` says to these options and an interface that is not there.
fn refused(options: &[&str]) -> String {
    let begin = ["sink", "--interface=none0", "--adc-sample-rate=1e6"];
    let output = karoo([&begin, options].concat());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{options:?}: {message}");
    message
}

#[test]
fn signals_are_for_outputs_that_are_given_by_their_options() {
    let signals = "--signals=cw(0.1, 1e5); 0;";
    let dst = "--dst=239.10.10.0+3:7148";
    let wideband = "--wideband=name=w,channels=64,dst=239.10.10.0+3,jones_per_batch=4096";
    let narrowband = "--narrowband=name=n,channels=64,dst=239.10.11.0+3,jones_per_batch=4096,centre_frequency=2e5,decimation=8";
    for taken in [
        &[wideband][..],
        &[narrowband],
        &[wideband, narrowband],
        &[dst, narrowband],
    ] {
        let message = refused(&[&[signals], taken].concat());
        assert!(message.contains("none0"), "{taken:?}: {message}");
    }
    let synced = refused(&[signals, wideband, "--sync-time=1763700000"]);
    assert!(synced.contains("none0"), "{synced}");
    for time in ["9e9", "-1e18", "NaN"] {
        let given = format!("--sync-time={time}");
        let message = refused(&[signals, wideband, &given]);
        assert!(
            message.contains("must be a UNIX time that is over"),
            "{time}: {message}"
        );
    }
    let unused = refused(&[wideband, "--sync-time=1763700000"]);
    assert!(unused.contains("is for --signals"), "{unused}");
    let learnt = refused(&[signals, dst]);
    assert!(
        learnt.contains("--signals") && learnt.contains("--narrowband"),
        "{learnt}"
    );
    let nothing = refused(&[signals]);
    assert!(nothing.contains("--wideband or --narrowband"), "{nothing}");
}

/// One of them would have all heaps of it, and the other none.
#[test]
fn a_destination_is_of_one_stream() {
    let wideband = |name: &str, dst: &str| {
        format!("--wideband=name={name},channels=64,dst={dst},jones_per_batch=4096")
    };
    let first = wideband("w", "239.10.10.0+3");
    for (second, taken) in [
        (wideband("v", "239.10.10.0+3"), Some("239.10.10.0:7148")),
        (wideband("v", "239.10.10.3"), Some("239.10.10.3:7148")),
        (
            "--dst=239.10.10.2+7:7148".to_owned(),
            Some("239.10.10.2:7148"),
        ),
        (wideband("v", "239.10.10.4"), None),
        ("--dst=239.10.10.2+7:7149".to_owned(), None),
    ] {
        let message = refused(&[&first, &second]);
        let wanted = taken.map_or("none0".to_owned(), |dst| {
            format!("have the destination {dst}")
        });
        assert!(message.contains(&wanted), "{second}: {message}");
    }
}

/// What they say stands beside the arrays; nothing of it changes how a capture is read.
#[test]
fn options_of_a_captures_arrays_need_a_folder_for_these() {
    let capture = data("tones-10bit.pcap");
    let wideband = "--wideband=name=w,channels=64,dst=239.10.10.0+3";
    let rate = "--adc-sample-rate=1712M";
    for given in [&[rate][..], &["--sync-time=1763700000"], &[wideband]] {
        let output = karoo([&["sink", capture.to_str().unwrap()], given].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        let option = given[0].split('=').next().unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        let names = message.contains(option) && message.contains("--output-dir");
        assert!(names, "{message}");
    }
}
