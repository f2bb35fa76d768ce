//! Options that cannot be used are named, with the rule and a way out.

use super::{WIDEBAND, refused};
use crate::support::data;

#[test]
fn wrong_options_are_usage_errors_with_a_way_out() {
    let capture = data("tones-8bit.pcap");
    // What --wideband is given.
    let outputs = [
        ("name=w,channels=64", "dst is required"),
        ("channels=64,dst=239.1.1.1", "name is required"),
        ("name=w,dst=239.1.1.1", "channels is required"),
        ("name=w,channels=64,dst=239.1.1.1,channels=64", "twice"),
        ("name=w,channels=64,dst=239.1.1.1,colour=red", "not a key"),
        ("name=w,channels=64,dst=239.1.1.1,taps", "key=value"),
        ("name=w,channels=many,dst=239.1.1.1", "whole number"),
        ("name=w,channels=64,dst=nowhere", "endpoints"),
        (
            "name=w,channels=64,dst=239.1.1.1,dither=maybe",
            "none or uniform",
        ),
        (
            "name=w,channels=64,dst=239.1.1.1,dither=default",
            "none or uniform",
        ),
        (
            "name=w,channels=64,dst=239.1.1.1,window_function=Hann",
            "hann, rect or kaiser",
        ),
        ("name=w,channels=96,dst=239.1.1.1", "power of two"),
        ("name=w,channels=32,dst=239.1.1.1", "at least 64"),
        ("name=w,channels=0,dst=239.1.1.1", "power of two"),
        ("name=w,channels=64,dst=239.1.1.1+2", "divide"),
        ("name=w,channels=64,dst=10.1.1.1", "multicast"),
        ("name=w,channels=64,dst=239.1.1.1,taps=0", "at least 1"),
        ("name=w,channels=64,dst=239.1.1.1,w_cutoff=-1", "negative"),
        (
            "name=w,channels=64,dst=239.1.1.1,jones_per_batch=2000",
            "multiple of the 64 channels",
        ),
        (
            "name=w,channels=64,dst=239.1.1.1,jones_per_batch=1024",
            "try 2048",
        ),
        (
            "name=w,channels=64,dst=239.1.1.1,jones_per_batch=0",
            "multiple",
        ),
    ];
    // What a right --wideband comes with.
    let others = [
        ("--dig-sample-bits 17", "2 to 16"),
        ("--dig-sample-bits 1", "2 to 16"),
        ("--recv-packet-samples 0", "--recv-packet-samples"),
        ("--recv-packet-samples 5000", "begin 4096 samples apart"),
        ("--recv-packet-samples 1024", "32 bits a sample"),
        ("--dig-sample-bits 10", "begin 4096 samples apart"),
        ("--recv-chunk-samples 5000", "try 8192"),
        ("--recv-chunk-samples 0", "multiple"),
        (
            "--recv-chunk-samples 65536 --max-delay-diff 65536",
            "--max-delay-diff",
        ),
        ("--max-delay-diff 600000000", "--recv-chunk-samples"),
        ("--send-packet-payload 9200", "9128"),
        ("--send-packet-payload 12", "multiple of 8"),
        ("--array-size 4 --feng-id 4", "less than"),
        ("--array-size 0", "at least 1"),
        ("--adc-sample-rate 0", "more than 0"),
        ("--adc-sample-rate nan", "more than 0"),
        ("--adc-sample-rate 2e12", "at most 1e12"),
        ("--sync-time inf", "UNIX"),
        ("--gain nan", "finite"),
        ("--gain 1e300", "finite"),
        ("--delays x 0,0:0,0 0,0:0,0", "no such output"),
        ("--delays w 0,0 0,0:0,0", "delay,rate:phase"),
        (
            "--delays w 0,1:0,0 0,0:0,0",
            "delay rate 1 must be between -1 and 1 s/s",
        ),
        (
            "--delays w 0,0:0,1e300 0,0:0,0",
            "phase rate 1e300 rad/s must be between",
        ),
        ("--backend cuda", "--backend cpu"),
        ("--backend abacus", "possible values"),
        (
            "--dig-sample-bits 8 --recv-packet-samples 2048",
            "those of the capture have 4096",
        ),
        ("--sources here", "--sources"),
        ("--rx-queues 0", "1 to 16"),
        ("--workers 0", "1 to 1024"),
        ("--no-such-option", "unexpected argument"),
    ];
    let twice = refused(
        2,
        &capture,
        &["--wideband", WIDEBAND, "--wideband", WIDEBAND],
    );
    assert!(twice.contains("unique"), "{twice}");
    for (output, expected) in outputs {
        let message = refused(2, &capture, &["--wideband", output]);
        assert!(message.contains(expected), "{output}: {message}");
    }
    for (options, expected) in others {
        let options: Vec<_> = ["--wideband", WIDEBAND]
            .into_iter()
            .chain(options.split_whitespace())
            .collect();
        let message = refused(2, &capture, &options);
        assert!(message.contains(expected), "{options:?}: {message}");
    }
}

/// Output chunks of 8 TiB in all.
#[test]
fn more_memory_than_there_is_is_refused_with_the_option() {
    let outputs: Vec<String> = (0..1024)
        .map(|i| {
            format!(
                "name=w{i},channels=64,dst=239.1.1.1:{},jones_per_batch=536870912",
                7000 + i
            )
        })
        .collect();
    let options: Vec<&str> = outputs
        .iter()
        .flat_map(|output| ["--wideband", output])
        .collect();
    let message = refused(2, &data("tones-8bit.pcap"), &options);
    assert!(message.contains("lower --send-chunk-jones"), "{message}");
}

#[test]
fn numbers_without_bounds_are_refused() {
    let capture = data("tones-8bit.pcap");
    let huge = ["18446744073709551615", "9223372036854775808", "536870913"];
    for value in huge {
        for option in [
            "--recv-packet-samples",
            "--recv-chunk-samples",
            "--max-delay-diff",
            "--send-chunk-jones",
            "--send-packet-payload",
            "--array-size",
        ] {
            // A large array is allowed up to 2^40.
            if (option, value) == ("--array-size", huge[2]) {
                continue;
            }
            refused(2, &capture, &["--wideband", WIDEBAND, option, value]);
        }
        for key in ["channels", "jones_per_batch", "taps"] {
            let rest: Vec<&str> = ["channels=256", "jones_per_batch=8192", "taps=4"]
                .into_iter()
                .filter(|pair| !pair.starts_with(key))
                .collect();
            let wideband = format!("name=w,dst=239.1.1.1,{},{key}={value}", rest.join(","));
            refused(2, &capture, &["--wideband", &wideband]);
        }
    }
}
