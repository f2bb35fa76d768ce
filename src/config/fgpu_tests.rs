//! katgpucbf's command line: what it means, and what is refused.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::*;

pub(super) const OUTPUT: &str = "name=w,channels=1024,dst=239.10.0.0+7:7148";
pub(super) const SOURCES: &str = "239.102.0.64+7:7148,239.102.1.64+7:7148";
pub(super) const REQUIRED: [&str; 4] = [
    "--recv-interface=eth0",
    "--send-interface=eth1",
    "--adc-sample-rate=1712e6",
    "--sync-time=1763700000.5",
];

pub(super) fn command() -> Command {
    let command = FgpuOptions::augment_args(Command::new("fgpu"));
    FgpuOptions::with_defaults(command)
        .infer_long_args(true)
        .args_override_self(true)
}

pub(super) fn matches<S: Into<std::ffi::OsString> + Clone>(
    args: impl IntoIterator<Item = S>,
) -> Result<ArgMatches, String> {
    let args = std::iter::once("fgpu".into()).chain(args.into_iter().map(Into::into));
    let found = command().try_get_matches_from(args);
    found.map_err(|error| error.to_string())
}

pub(super) fn resolved(matches: &ArgMatches) -> Result<FgpuConfig, String> {
    let options = FgpuOptions::from_arg_matches(matches).map_err(|error| error.to_string())?;
    options.resolve().map_err(|error| error.to_string())
}

/// The required options, one output and the sources, then `args`.
fn resolve(args: &[&str]) -> Result<FgpuConfig, String> {
    let output = ["--wideband", OUTPUT, SOURCES];
    resolved(&matches([&REQUIRED[..], &output, args].concat())?)
}

#[test]
fn the_defaults_are_katgpucbfs() {
    let FgpuConfig {
        engine,
        input,
        egress,
    } = resolve(&[]).unwrap();
    assert_eq!((engine.feng_id, engine.array_size), (0, 65536));
    assert_eq!(
        (engine.recv.sample_bits.get(), engine.recv.packet_samples),
        (10, 4096)
    );
    assert_eq!(engine.recv.chunk_samples, 1 << 25);
    assert_eq!(
        (engine.send.chunk_jones, engine.send.packet_payload),
        (1 << 23, 8192)
    );
    assert_eq!(
        (engine.send.ttl, engine.max_delay_diff, engine.gain),
        (4, 1 << 20, 1.0)
    );
    assert_eq!(engine.outputs[0].jones_per_batch, 1 << 20);
    assert_eq!(egress.rate_factor, 1.1);
    assert_eq!(
        (egress.interfaces, egress.cpu),
        (vec!["eth1".to_owned()], None)
    );
    let InputConfig::Live {
        endpoints,
        interfaces,
        cpus,
        buffer,
    } = input
    else {
        panic!("{input:?}");
    };
    assert_eq!((endpoints.len(), buffer), (16, 1 << 27));
    assert_eq!((interfaces, cpus), (vec!["eth0".to_owned()], vec![None]));
}

#[test]
fn interfaces_without_a_receive_queue_are_named() {
    let unused = |args: &[&str]| {
        let output = ["--wideband", OUTPUT, SOURCES];
        let matches = matches([&REQUIRED[..], &output, args].concat()).unwrap();
        let options = FgpuOptions::from_arg_matches(&matches).unwrap();
        options.unused_interfaces()
    };
    assert_eq!(unused(&[]), None);
    let two = ["--recv-interface=a,b", "--recv-affinity=-1,-1"];
    assert_eq!(unused(&two), None);
    assert_eq!(unused(&["--recv-interface=udp:a,udp:a"]), None);
    let text = unused(&["--recv-interface=a,b,a"]).unwrap();
    assert!(text.contains("through b, only through a:"), "{text}");
    let text = unused(&two[..1]).unwrap();
    assert!(
        text.contains("nothing is received through b, only through a")
            && text.ends_with("try --recv-affinity -1,-1"),
        "{text}"
    );
}

#[test]
fn an_output_that_goes_where_digitisers_send_to_is_named() {
    let told = |dst: &str| {
        let output = format!("name=o,channels=64,jones_per_batch=4096,dst={dst}");
        let config = resolve(&["--wideband", &output]).unwrap();
        config.output_into_input()
    };
    assert_eq!(told("239.102.2.0+7"), None);
    assert_eq!(told("239.102.0.64+7:7149"), None);
    let text = told("239.102.1.64+7").unwrap();
    assert!(
        text.starts_with("--wideband dst of 'o' 239.102.1.64:7148: is one of SRC too"),
        "{text}"
    );
}

/// As the production controller writes it.
#[test]
fn the_controllers_command_line_is_taken_as_it_is() {
    let line = "--recv-interface eth0 --send-interface eth0 --send-packet-payload 8192 --adc-sample-rate 1712000000.0 \
        --dig-sample-bits 10 --recv-packet-samples 4096 --feng-id 3 --array-size 64 --sync-time 1632561921.0 \
        --katcp-port 7147 --prometheus-port 9100 --aiomonitor --aiomonitor-port 20101 --aiomonitor-webui-port 20102 \
        --aioconsole-port 20103 \
        --wideband name=wideband,channels=4096,taps=16,w_cutoff=1.0,jones_per_batch=1048576,dst=239.10.0.0+63:7148,dither=uniform,window_function=hann \
        --recv-affinity 4 --send-affinity 5 --recv-ibv --send-ibv --recv-comp-vector 4 --send-comp-vector 5 \
        --recv-chunk-samples 16777216 239.102.0.64+7:7148,239.102.1.64+7:7148";
    let matches = matches(line.split_whitespace()).unwrap();
    let options = FgpuOptions::from_arg_matches(&matches).unwrap();
    assert_eq!(
        (options.serve.katcp_port, options.serve.prometheus_port),
        (7147, Some(9100))
    );
    let given = options.ignored.given();
    assert!(
        given.contains(&"--aioconsole-port") && given.contains(&"--recv-ibv"),
        "{given:?}"
    );
    let config = options.resolve().unwrap();
    assert_eq!((config.engine.feng_id, config.engine.array_size), (3, 64));
    assert_eq!(config.engine.recv.chunk_samples, 1 << 24);
    assert_eq!(config.engine.outputs[0].spectra_per_heap(), 256);
    assert_eq!(config.egress.cpu, Some(5));
    assert!(matches!(config.input, InputConfig::Live { cpus, .. } if cpus == [Some(4)]));
}

#[test]
fn completion_vectors_are_as_many_as_receive_queues() {
    let two = ["--recv-ibv", "--recv-affinity=-1,-1"];
    assert!(resolve(&two).is_ok());
    let given = |vectors| resolve(&[&two[..], &["--recv-comp-vector", vectors]].concat());
    assert!(given("0,1").is_ok());
    let refused = given("0").unwrap_err();
    assert!(
        refused.contains("--recv-comp-vector with 1 entry:") && refused.contains("(2)"),
        "{refused}"
    );
    assert!(resolve(&["--recv-affinity=-1,-1", "--recv-comp-vector=0"]).is_ok());
}

#[test]
fn options_may_be_shortened_repeated_and_negative() {
    let config = resolve(&[
        "--feng=2",
        "--feng-id=3",
        "--gain",
        "-0.5",
        "--recv-aff",
        "-1,2",
    ])
    .unwrap();
    assert_eq!((config.engine.feng_id, config.engine.gain), (3, -0.5));
    assert!(matches!(&config.input, InputConfig::Live { cpus, .. } if *cpus == [None, Some(2)]));
    // Interfaces are dealt out to the receive queues by turns.
    let config = resolve(&["--recv-affinity=1,2,3", "--recv-interface=a,b"]).unwrap();
    assert!(
        matches!(&config.input, InputConfig::Live { interfaces, .. } if *interfaces == ["a", "b", "a"])
    );
    // Each queue's slice of the destinations comes through its interface, and no other.
    let InputConfig::Live { endpoints, .. } = &config.input else {
        panic!("{config:?}");
    };
    assert_eq!(endpoints.len(), 16);
    let a = [&endpoints[..5], &endpoints[10..]].concat();
    assert_eq!(config.input.endpoints_of("a"), a);
    assert_eq!(config.input.endpoints_of("b"), endpoints[5..10]);
    assert!(config.input.endpoints_of("c").is_empty());
    // The last of an option counts, as does the next whole number of batches.
    let config = resolve(&["--send-chunk-jones=1000000"]).unwrap();
    assert_eq!(config.engine.send.chunk_jones, 1 << 20);
    assert!(
        resolve(&["--send-i=eth3"])
            .unwrap_err()
            .contains("--send-i"),
        "two options begin like this"
    );
    assert!(
        resolve(&["--no-such-option"])
            .unwrap_err()
            .contains("--no-such-option")
    );
}

#[test]
fn sources_are_destinations_of_packets_and_each_counts_once() {
    let sources = |text| {
        let args = [&REQUIRED[..], &["--wideband", OUTPUT, text]].concat();
        resolved(&matches(args).unwrap())
    };
    let config = sources("239.1.1.0+3,239.1.1.2+3").unwrap();
    let InputConfig::Live { endpoints, .. } = config.input else {
        panic!("{:?}", config.input);
    };
    assert_eq!(crate::net::format_endpoints(&endpoints), "239.1.1.0+5:7148");
    let refused = sources("0.0.0.0:7148").unwrap_err();
    assert!(
        refused.starts_with("SRC 0.0.0.0:7148: is where no packet is sent to"),
        "{refused}"
    );
}

#[test]
fn an_existing_file_is_a_source() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let args = [
        &REQUIRED[1..],
        &["--wideband", OUTPUT, "--recv-affinity=3", path],
    ]
    .concat();
    let config = resolved(&matches(args).unwrap()).unwrap();
    let expected = InputConfig::Capture {
        path: path.into(),
        cpu: Some(3),
    };
    assert_eq!(config.input, expected);
}

#[test]
fn what_is_required_is_named() {
    let all = [&REQUIRED[..], &["--wideband", OUTPUT, SOURCES]].concat();
    for (left_out, expected) in [
        ("--recv-interface=eth0", "--recv-interface missing"),
        ("--send-interface=eth1", "--send-interface missing"),
        ("--adc-sample-rate=1712e6", "--adc-sample-rate missing"),
        ("--sync-time=1763700000.5", "--sync-time missing"),
        (SOURCES, "SRC missing"),
    ] {
        let args = all.iter().filter(|arg| **arg != left_out);
        let message = resolved(&matches(args).unwrap()).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
    }
    let message = resolved(&matches([&REQUIRED[..], &[SOURCES]].concat()).unwrap()).unwrap_err();
    assert!(message.contains("at least one output"), "{message}");
}

#[test]
fn all_that_is_missing_is_named_at_once_and_what_would_do_is_taken() {
    let none: [&str; 0] = [];
    let message = resolved(&matches(none).unwrap()).unwrap_err();
    let all = "SRC, --recv-interface, --send-interface, --adc-sample-rate, --sync-time, --wideband missing:";
    assert!(message.starts_with(all), "{message}");
    let (_, added) = message.split_once("; add ").expect("a way out");
    resolved(&matches(added.split(' ')).unwrap()).expect("an engine");
    // A capture needs no interface to receive on.
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let message = resolved(&matches([path, "--send-interface=eth0"]).unwrap()).unwrap_err();
    assert!(
        message.starts_with("--adc-sample-rate, --sync-time, --wideband missing:"),
        "{message}"
    );
}

/// Every rule that katgpucbf checks, by numbers that failures name; those that always hold are left
/// out.
#[test]
fn every_rule_is_kept() {
    let narrowband = "name=n,channels=1024,dst=239.11.0.0+7,centre_frequency=300e6,decimation=8";
    let wideband = |keys: &str| format!("--wideband=name=v,{keys}");
    let narrow =
        |change: &str, to: &str| format!("--narrowband={}", narrowband.replace(change, to));
    let cases: &[(&str, Vec<String>, &str)] = &[
        ("1", vec!["--use-peerdirect".into()], "needs --send-ibv"),
        (
            "3",
            ["--recv-ibv", "--recv-affinity=1,2", "--recv-comp-vector=0"]
                .map(String::from)
                .into(),
            "as many as --recv-affinity (2)",
        ),
        (
            "4",
            vec![format!("--wideband={OUTPUT}")],
            "the name of two outputs",
        ),
        (
            "4, both kinds",
            vec![narrow("name=n", "name=w")],
            "the name of two outputs",
        ),
        (
            "one destination of two outputs",
            vec![narrow("dst=239.11.0.0+7", "dst=239.10.0.7:7148")],
            "--narrowband dst 239.10.0.7:7148: of 'n' is another output's too",
        ),
        (
            "5",
            vec![
                "--send-interface=a,b".into(),
                wideband("channels=1024,dst=239.10.1.0"),
            ],
            "must be a multiple of the 2 of --send-interface",
        ),
        (
            "5, three",
            vec!["--send-interface=a,b,c".into()],
            "with 3 interfaces: must be a power of two, as destinations are",
        ),
        (
            "7, digitiser",
            vec!["--dig-sample-bits=17".into()],
            "must be 2 to 16",
        ),
        (
            "7, output",
            vec!["--send-sample-bits=5".into()],
            "--send-sample-bits 5: must be 4 or 8",
        ),
        ("8", vec!["--".into()], ""),
        (
            "9",
            vec![wideband("channels=1024,dst=239.10.1.0+2")],
            "must divide the 1024 channels",
        ),
        (
            "9, narrowband",
            vec![narrow("+7", "+2")],
            "must divide the 1024 channels",
        ),
        (
            "10",
            vec![wideband(
                "channels=1024,dst=239.10.1.0,jones_per_batch=1000000",
            )],
            "multiple of the 1024 channels",
        ),
        (
            "oversampling",
            vec![wideband("channels=1024,dst=239.10.1.0,oversampling=10/9")],
            "M must be a power of two, at most 1024",
        ),
        (
            "oversampling, narrowband",
            vec![narrow("decimation", "oversampling=4096/4095,decimation")],
            "M must be a power of two, at most 1024",
        ),
        (
            "oversampling, no ratio",
            vec![wideband("channels=1024,dst=239.10.1.0,oversampling=1.2")],
            "try oversampling=32/27",
        ),
        (
            "10, narrowband",
            vec![narrow("decimation", "jones_per_batch=1000000,decimation")],
            "multiple of the 1024",
        ),
        (
            "10, of two outputs",
            vec![wideband(&format!(
                "channels=1024,dst=239.10.1.0,jones_per_batch={}",
                usize::MAX
            ))],
            "jones_per_batch 1048576 and 18446744073709551615: the outputs' values have no common",
        ),
        (
            "11",
            vec![narrow("decimation=8", "decimation=7")],
            "must be even without pass_bandwidth",
        ),
        (
            "12",
            vec!["--recv-chunk-samples=1048576".into()],
            "must hold --max-delay-diff",
        ),
        (
            "13",
            vec![wideband("channels=1024,dst=239.10.1.0,taps=0")],
            "must be at least 1",
        ),
        (
            "14",
            vec![wideband(
                "channels=1000,dst=239.10.1.0,jones_per_batch=1000000",
            )],
            "power of two",
        ),
        (
            "15",
            vec![wideband("channels=32,dst=239.10.1.0")],
            "at least 64",
        ),
        ("17", vec![wideband("channels=65536,dst=239.10.1.0")], "32"),
        (
            "19",
            vec!["--recv-chunk-samples=1073741824".into()],
            "must not exceed 536870912",
        ),
        (
            "22, window",
            vec![wideband(
                "channels=1024,dst=239.10.1.0,window_function=default",
            )],
            "hann, rect or kaiser",
        ),
        (
            "22, dither",
            vec![wideband("channels=1024,dst=239.10.1.0,dither=Uniform")],
            "none or uniform",
        ),
        (
            "unicast",
            vec![wideband("channels=1024,dst=10.0.0.1")],
            "multicast group",
        ),
        (
            "rate",
            vec!["--send-rate-factor=-1".into()],
            "must be 0, which is without limit, or from 0.000001 on",
        ),
        (
            "cpu",
            vec!["--recv-affinity=-2".into()],
            "the number of a CPU",
        ),
        (
            "interface",
            vec!["--send-interface=a,a".into()],
            "different interfaces",
        ),
        (
            "interfaces",
            vec![format!("--send-interface=a{}", ",b".repeat(16))],
            "--send-interface with 17 interfaces: must be a power of two",
        ),
        (
            "15, discard",
            vec![narrow("channels=1024", "channels=16")],
            "at least 32",
        ),
        (
            "15, no-discard",
            vec![narrow("channels=1024", "pass_bandwidth=60e6,channels=32")],
            "at least 64",
        ),
        (
            "20",
            vec![narrow("decimation", "ddc_taps=0,decimation")],
            "must be a positive number",
        ),
        (
            "21",
            vec![narrow("decimation=8", "decimation=24")],
            "must be a multiple of 24",
        ),
        (
            "pass band",
            vec![narrow("decimation", "pass_bandwidth=107e6,decimation")],
            "less than the output's bandwidth, 107000000 Hz",
        ),
        (
            "filter",
            vec![narrow("decimation=8", "decimation=1024")],
            "must be at most 8192",
        ),
        (
            "few taps",
            vec![narrow("decimation", "ddc_taps=7,decimation")],
            "must be at least the subsampling",
        ),
        (
            "weight",
            vec![narrow("decimation", "weight_pass=0,decimation")],
            "must be positive",
        ),
        (
            "weight without a filter",
            vec![narrow("decimation", "weight_pass=1e-300,decimation")],
            "weight_pass of 'n' 1e-300: makes no filter",
        ),
    ];
    for (rule, args, expected) in cases {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        if expected.is_empty() {
            let args = [&REQUIRED[..], &["--wideband", OUTPUT, "no/such/file"]].concat();
            let message = resolved(&matches(args).unwrap()).unwrap_err();
            assert!(
                message.contains("neither a file nor a list of endpoints"),
                "{message}"
            );
            continue;
        }
        let message = resolve(&args).unwrap_err();
        assert!(message.contains(expected), "rule {rule}: {message}");
    }
}

/// As a pipe is.
#[test]
fn a_source_that_is_no_regular_file_is_told_to_be_none() {
    let args = [&REQUIRED[..], &["--wideband", OUTPUT, "/dev/null"]].concat();
    let message = resolved(&matches(args).unwrap()).unwrap_err();
    assert!(message.contains("is not a regular file"), "{message}");
}
