//! Configuration files: what they say, and what is printed as one.

use clap::FromArgMatches;

use super::fgpu_tests::{OUTPUT, REQUIRED, SOURCES, command, matches, resolved};
use super::{FgpuOptions, InputConfig, arguments, to_toml};

#[test]
fn files_say_what_command_lines_say() {
    let file = r#"
        src = "239.102.0.64+7,239.102.1.64+7"
        recv-interface = ["eth0", "eth1"]
        send-interface = "eth2"
        adc-sample-rate = 1712e6
        sync-time = 1763700000.5
        feng-id = 3
        gain = 0.25
        recv-ibv = true
        send-ibv = false
        [[wideband]]
        name = "w"
        channels = 1024
        dst = "239.10.0.0+7"
        w_cutoff = 0.9
    "#;
    let given = |args: &[&str]| {
        let given = matches(args).unwrap();
        let arguments = arguments(file, &command(), &given).unwrap();
        let args = arguments
            .into_iter()
            .chain(args.iter().map(|&arg| arg.to_owned()));
        matches(args).unwrap()
    };
    let all = given(&[]);
    let config = resolved(&all).unwrap();
    assert_eq!((config.engine.feng_id, config.engine.gain), (3, 0.25));
    assert_eq!(config.engine.outputs[0].w_cutoff, 0.9);
    let ignored = FgpuOptions::from_arg_matches(&all).unwrap().ignored;
    assert_eq!(ignored.given(), ["--recv-ibv"]);

    // The command line wins; its outputs replace those of the file.
    let other = "--wideband=name=v,channels=256,dst=239.11.0.0";
    let config = resolved(&given(&["--feng-id=4", other, "239.1.1.1"])).unwrap();
    assert_eq!((config.engine.feng_id, config.engine.gain), (4, 0.25));
    let names: Vec<_> = config
        .engine
        .outputs
        .iter()
        .map(|output| &output.name[..])
        .collect();
    assert_eq!(names, ["v"]);
    assert!(matches!(config.input, InputConfig::Live { endpoints, .. } if endpoints.len() == 1));
}

#[test]
fn mistakes_in_files_are_named() {
    let none = matches::<&str>([]).unwrap();
    let mistake = |text: &str| arguments(text, &command(), &none).unwrap_err().to_string();
    assert!(mistake("feng = 3").contains("feng: is not an option"));
    assert!(mistake("recv-ibv = 1").contains("true or false"));
    assert!(mistake("wideband = 'name=w'").contains("[[wideband]]"));
    assert!(mistake("[[wideband]]\nname = true").contains("tables of numbers"));
    for more in ["name = 'w,channels=64'", "dst = ['239.1.1.1', '239.1.1.2']"] {
        let mistake = mistake(&format!("[[wideband]]\n{more}"));
        assert!(mistake.contains("without commas"), "{mistake}");
    }
    assert!(mistake("gain = true").contains("a number or a string"));
    assert!(mistake("gain 3").contains("line 1"));
    // What a file says wrongly is refused like the same on the command line.
    let wrong = arguments("feng-id = 'x'", &command(), &none).unwrap();
    assert!(matches(wrong).unwrap_err().contains("--feng-id"));
}

#[test]
fn what_would_run_can_be_fed_back() {
    let second =
        "--wideband=name=v,channels=256,dst=239.11.0.0+1:9,window_function=rect,dither=none";
    let oversampled = "--wideband=name=v,channels=256,dst=239.11.0.0,oversampling=32/27";
    let narrowband = "--narrowband=name=n,channels=256,dst=239.12.0.0,centre_frequency=284M,decimation=8,oversampling=4/3";
    for args in [
        &[][..],
        &[
            "--gain=-0.1",
            "--recv-affinity=-1,4",
            "--katcp-port=0",
            "--prometheus-port=9100",
            second,
        ],
        &[
            "--sync-time=1763700000.123456",
            "--mask-timestamp",
            "--send-rate-factor=0",
            "--katcp-host=::1",
        ],
        &[oversampled, narrowband],
        &["--recv-chunk-samples=32Mi", "--send-packet-payload=4Ki"],
    ] {
        let args = [&REQUIRED[..], &["--wideband", OUTPUT, SOURCES], args].concat();
        let first = matches(&args).unwrap();
        let config = resolved(&first).unwrap();
        let text = to_toml(&command(), &first, &config);
        // What would run is told in numbers, whatever was typed.
        assert!(text.contains("recv-chunk-samples = 33554432"), "{text}");
        let none = matches::<&str>([]).unwrap();
        let again = matches(arguments(&text, &command(), &none).unwrap()).unwrap();
        let fed_back = resolved(&again).unwrap();
        assert_eq!(format!("{config:?}"), format!("{fed_back:?}"), "{text}");
        assert_eq!(to_toml(&command(), &again, &fed_back), text);
    }
}
