//! Numbers at the ends of what a command line can hold: taken or refused, and neither panics, hangs
//! nor allocates what there is not.

use crate::support::{karoo, left_out};

const NUMBERS: [&str; 5] = [
    "18446744073709551615",
    "9223372036854775808",
    "2147483648",
    "0",
    "-1",
];

const OUTPUT: &str = "name=w,channels=64,dst=239.10.1.0+3";

const FGPU: [&str; 8] = [
    "fgpu",
    "239.102.0.64+7,239.102.1.64+7",
    "--print-plan",
    "--recv-interface=lo",
    "--send-interface=lo",
    "--adc-sample-rate=1712e6",
    "--sync-time=0",
    "--array-size=64",
];

/// Exit code, and what it said.
fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = karoo(args);
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    (output.status.code(), said)
}

/// Refused with a message that has all `words`.
fn refused(args: &[&str], words: &[&str]) {
    let (code, said) = run(args);
    assert_eq!(code, Some(2), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{args:?}: no {word:?} in {said}");
    }
}

#[test]
fn no_number_of_an_engine_makes_its_plan_fail() {
    let wideband = format!("--wideband={OUTPUT}");
    for option in [
        "--recv-affinity",
        "--send-affinity",
        "--recv-buffer",
        "--send-buffer",
        "--recv-spare-chunks",
        "--recv-chunk-samples",
        "--send-chunk-jones",
        "--max-delay-diff",
        "--feng-id",
        "--array-size",
        "--workers",
    ] {
        for number in NUMBERS {
            let given = format!("{option}={number}");
            let (code, said) = run(&[&FGPU[..], &[&wideband, &given]].concat());
            assert!(matches!(code, Some(0 | 2)), "{given}: {code:?} {said}");
        }
    }
    for key in ["channels", "jones_per_batch", "taps"] {
        for number in NUMBERS {
            let given = format!("--wideband=name=w,dst=239.10.1.0+3,{key}={number}");
            let given = match key {
                "channels" => given,
                _ => format!("{given},channels=64"),
            };
            let (code, said) = run(&[&FGPU[..], &[&given]].concat());
            assert!(matches!(code, Some(0 | 2)), "{given}: {code:?} {said}");
        }
    }
}

/// The sample rate of MeerKAT's L band comes to one rx lcore unless told, which was seen to take
/// more.
#[test]
fn one_rx_lcore_at_1712_mhz_is_not_warned_of() {
    let wideband = format!("--wideband={OUTPUT}");
    let (code, said) = run(&[&FGPU[..], &[&wideband]].concat());
    assert!(code == Some(0) && said.contains("rx0"), "{said}");
    assert!(!said.contains("receive-rate"), "{said}");
    let more = ["--dig-sample-bits=12", &wideband];
    let (code, said) = run(&[&FGPU[..], &more].concat());
    assert!(code == Some(0) && said.contains("receive-rate"), "{said}");
}

#[test]
fn cpus_that_no_kernel_has_are_refused() {
    for cpu in [NUMBERS[0], NUMBERS[1], "65536"] {
        let wideband = format!("--wideband={OUTPUT}");
        for option in ["--recv-affinity", "--send-affinity"] {
            let given = format!("{option}={cpu}");
            let words = [option, cpu, "65535 at most", "-1 for any"];
            refused(&[&FGPU[..], &[&wideband, &given]].concat(), &words);
        }
        let digitiser = ["dsim", "--interface=lo", "--affinity", cpu, "239.1.1.1"];
        refused(&digitiser, &["--affinity", cpu, "65535 at most"]);
    }
}

#[test]
fn more_engines_than_a_host_can_have_are_refused() {
    for engines in [NUMBERS[0], NUMBERS[1], NUMBERS[2], "65535", "257", "0"] {
        let words = ["--engines", engines, "from 1 to 256"];
        refused(&["plan", "--engines", engines], &words);
        let slot = format!("0/{engines}");
        let wideband = format!("--wideband={OUTPUT}");
        let slot = ["--engine-slot", &slot, &wideband];
        refused(&[&FGPU[..], &slot].concat(), &["N at most 256"]);
    }
    let (code, said) = run(&["plan", "--engines", "256"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("engine 255"));
}

#[test]
fn a_digitiser_refuses_what_it_cannot_make() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcap");
    let output = output.to_str().unwrap();
    let dsim = ["dsim", "--period=65536", "--output", output];
    for samples in ["--samples", "--seconds"] {
        for number in [NUMBERS[0], NUMBERS[1]] {
            let words = ["--output", "MiB are free there", "lower --samples"];
            refused(&[&dsim[..], &[samples, number]].concat(), &words);
        }
    }
    let small = [&dsim[..], &["--samples=65536"]].concat();
    for number in [NUMBERS[0], "281474976710656", "281474976710655"] {
        let words = ["--first-id", number, "at most 281474976710654"];
        refused(&[&small[..], &["--first-id", number]].concat(), &words);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    for faults in [
        "late=0.5:18446744073709551615",
        "gap=0.5:18446744073709551615",
    ] {
        let (code, said) = run(&[&small[..], &["--faults", faults]].concat());
        assert_eq!(code, Some(0), "{faults}: {said}");
    }
}

/// 255 polarisations of 2 GiB each.
#[test]
fn samples_that_do_not_fit_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcap");
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()
    });
    if available.unwrap() >> 20 >= 510 {
        left_out("this machine has room for them");
        return;
    }
    let destinations: Vec<_> = (0..255).map(|i| format!("239.1.1.{i}")).collect();
    let mut args = vec!["dsim", "--signals=0;", "--sample-bits=16"];
    args.extend(["--heap-samples=4096", "--period=1073741824", "--output"]);
    args.push(output.to_str().unwrap());
    args.extend(destinations.iter().map(String::as_str));
    let words = ["--period 1073741824", "MiB are available", "lower --period"];
    refused(&args, &words);
}

#[test]
fn a_sink_refuses_outputs_that_make_no_heaps() {
    for (keys, words) in [
        ("channels=0", ["channels of 'w' 0", "from 1 to 536870912"]),
        (
            "channels=18446744073709551612",
            ["channels of 'w'", "from 1 to 536870912"],
        ),
        (
            "channels=64,jones_per_batch=18446744073709551552",
            ["jones_per_batch of 'w'", "at most 536870912"],
        ),
        (
            "channels=62,jones_per_batch=62",
            ["dst of 'w' 4", "must divide the 62 channels"],
        ),
    ] {
        let output = format!("--wideband=name=w,dst=239.10.1.0+3,{keys}");
        refused(&["sink", "--interface=lo", "--duration=1", &output], &words);
    }
}

#[test]
fn benches_refuse_numbers_that_are_too_large() {
    for option in [
        "--engines",
        "--rx-queues",
        "--tx-queues",
        "--generators",
        "--sinks",
        "--narrowband",
        "--decimation",
        "--substreams",
        "--workers",
        "--rx-descriptors",
        "--tx-descriptors",
        "--recv-spare-chunks",
    ] {
        for number in [NUMBERS[0], NUMBERS[1], NUMBERS[2]] {
            let words = [option, number, "must be"];
            refused(&["bench", "engine", option, number], &words);
        }
    }
    let ports = [
        "bench",
        "ports",
        "--send-interface=lo",
        "--recv-interface=lo",
    ];
    for number in [NUMBERS[0], NUMBERS[1]] {
        let payload = [&ports[..], &["--payload", number]].concat();
        refused(&payload, &["--payload"]);
    }
}

/// As a plan states it: an engine's, and what waits to be compared.
#[test]
fn a_shadow_states_the_memory_of_its_comparison() {
    let host = |said: &str| {
        let (_, rest) = said.split_once("  host: ").expect(said);
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let output = format!("--wideband={OUTPUT}");
    let more = ["--backend=cpu", &output];
    let (code, engine) = run(&[&FGPU[..], &more].concat());
    assert_eq!(code, Some(0), "{engine}");
    let line = [&["shadow", "localhost:1"][..], &FGPU[1..], &more].concat();
    let (code, shadow) = run(&line);
    assert_eq!(code, Some(0), "{shadow}");
    for words in [
        "heaps that wait to be compared",
        "the comparison's sums of 'w'",
    ] {
        assert!(
            shadow.contains(words) && !engine.contains(words),
            "{shadow}"
        );
    }
    // A queue and a room of 256 MiB each.
    assert!(host(&shadow) >= host(&engine) + 512, "{engine}\n{shadow}");
}
