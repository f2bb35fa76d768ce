//! Log messages as JSON, for programs that collect them.

use std::process::Output;

use serde_json::Value;

use crate::support::python::python;
use crate::support::{data, karoo};

const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=4096,taps=4";

/// The lines of standard error, each of which is an object.
fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stderr);
    let object = |line: &str| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["timestamp", "level", "target"] {
            assert!(value[key].is_string(), "{line}");
        }
        assert!(value["fields"]["message"].is_string(), "{line}");
        value
    };
    text.lines().map(object).collect()
}

fn replay(capture: &str, before: &[&str]) -> Vec<String> {
    let capture = data(capture);
    let words = ["replay", capture.to_str().unwrap(), "--backend", "cpu"];
    let rest = ["--wideband", WIDEBAND, "--output", "/dev/null"];
    let words = before.iter().chain(&words).chain(&rest);
    words.map(|word| (*word).to_owned()).collect()
}

#[test]
fn an_empty_variable_is_one_that_is_not_set() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_karoo"));
    let output = command.env("KAROO_LOG_FORMAT", "").arg("schema").output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn each_line_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let mut args = replay("tones-10bit.pcap", &["--log-format", "json"]);
    *args.last_mut().unwrap() = out.to_str().unwrap().to_owned();
    let output = karoo(&args);
    assert!(output.status.success());
    let lines = objects(&output);
    let picked = lines.iter().find(|line| {
        line["fields"]["message"] == "picked" && line["fields"]["option"] == "--dig-sample-bits"
    });
    assert_eq!(picked.expect("a pick")["fields"]["value"], "10");

    // What ends a command is one too, behind a subcommand as before it.
    let failed = karoo([
        "replay",
        "missing.pcap",
        "--log-format",
        "json",
        "-o",
        out.to_str().unwrap(),
    ]);
    assert_eq!(failed.status.code(), Some(1));
    let lines = objects(&failed);
    let last = lines.last().expect("a message");
    assert_eq!(last["level"], "ERROR");
    let message = last["fields"]["message"].as_str().unwrap();
    assert!(message.contains("missing.pcap"), "{message}");
}

#[test]
fn the_environment_and_a_file_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("engine.toml");
    std::fs::write(&file, "log-format = \"json\"\n").unwrap();
    let karoo = || std::process::Command::new(env!("CARGO_BIN_EXE_karoo"));
    let by_file = karoo()
        .args(["fgpu", "--config", file.to_str().unwrap()])
        .output()
        .unwrap();
    let by_environment = karoo()
        .arg("fgpu")
        .env("KAROO_LOG_FORMAT", "json")
        .output()
        .unwrap();
    for output in [by_file, by_environment] {
        assert_eq!(output.status.code(), Some(2));
        let lines = objects(&output);
        assert_eq!(lines.last().expect("a message")["level"], "ERROR");
    }
    let wrong = karoo()
        .args(["plan", "--log-format", "xml"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(text.contains("json"), "{text}");
}

/// What a collector of the Graylog Extended Log Format gets of a command, with these fields of all
/// messages.
fn collected(extra: &str, options: &[&str]) -> Value {
    let environment = [
        format!("KATSDP_LOG_GELF_EXTRA={extra}"),
        "KATSDP_LOG_GELF_LOCALNAME=host-of-the-container".to_owned(),
        "KATSDP_LOG_LEVEL=debug".to_owned(),
    ];
    let engine = [
        "fgpu",
        "--recv-interface=no-such-interface",
        "--send-interface=lo",
        "--adc-sample-rate=1712e6",
        "--sync-time=1763700000",
        "--wideband",
        WIDEBAND,
        "--monitor-log=a file",
        "239.102.0.64+7:7148",
    ];
    let mut args = vec!["env", "-u", "RUST_LOG"];
    args.extend(environment.iter().map(String::as_str));
    args.push(env!("CARGO_BIN_EXE_karoo"));
    args.extend(engine);
    args.extend(options);
    let collected = python("check_gelf.py", &args);
    assert_eq!(collected["code"], 2, "{collected:#}");
    collected
}

/// As MeerKAT's controller asks for it.
#[test]
fn a_collector_gets_every_message_with_the_controllers_fields() {
    let extra = r#"{"task": "f.wide.3", "subarray_product_id": "array_1", "docker.image": "karoo", "n": 3}"#;
    let collected = collected(extra, &[]);
    let messages = collected["messages"].as_array().unwrap();
    let taken = messages
        .iter()
        .find(|message| message["_options"] == "--monitor-log")
        .unwrap_or_else(|| panic!("{collected:#}"));
    let text = "taken for compatibility, without effect options=\"--monitor-log\"";
    assert_eq!(taken["short_message"], text);
    assert_eq!(taken["level"], 6);
    assert_eq!(taken["host"], "host-of-the-container");
    assert_eq!(taken["_task"], "f.wide.3");
    assert_eq!(taken["_docker.image"], "karoo");
    assert_eq!(taken["_n"], 3);
    assert_eq!(taken["_file"], "settled.rs");
    assert_eq!(taken["_module"], "settled");
    assert_eq!(taken["_logger_name"], "karoo::cli::fgpu::settled");
    assert!(taken["_line"].as_u64().unwrap() > 0 && taken["_func"].is_string());
    let precise = taken["_timestamp_precise"].as_str().unwrap();
    assert!(precise.len() == 27 && precise.ends_with('Z'), "{precise}");
    assert!(taken["timestamp"].as_f64().unwrap() > 1.7e9);
    // Standard error has the same, and what ends the command is in both.
    let stderr = collected["stderr"].as_str().unwrap();
    assert!(
        stderr.contains("--monitor-log") && stderr.contains("no-such-interface"),
        "{stderr}"
    );
    let last = messages.last().unwrap();
    assert_eq!(last["level"], 3, "{last}");
    let last = last["short_message"].as_str().unwrap();
    assert!(last.contains("no-such-interface"), "{last}");
}

/// Longer than a datagram, whatever is done about it.
#[test]
fn long_messages_come_in_chunks() {
    let noise: Vec<u8> = (0..3000u32)
        .map(|i| b'!' + (i.wrapping_mul(2_654_435_761) >> 24) as u8 % 90)
        .collect();
    let noise = String::from_utf8(noise).unwrap();
    let extra = serde_json::json!({ "noise": noise }).to_string();
    let collected = collected(&extra, &[]);
    for message in collected["messages"].as_array().unwrap() {
        assert_eq!(message["_noise"], noise);
    }
    let largest = collected["largest"].as_u64().unwrap();
    assert!((1000..=1312).contains(&largest), "{largest}");
}

#[test]
fn what_the_collectors_variables_get_wrong_is_told() {
    let collected = collected("[3]", &[]);
    let stderr = collected["stderr"].as_str().unwrap();
    assert!(
        stderr.contains("KATSDP_LOG_GELF_EXTRA=[3]: no JSON object"),
        "{stderr}"
    );
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args([
            "fgpu",
            "--recv-interface=no-such-interface",
            "--send-interface=lo",
        ])
        .args(["--adc-sample-rate=1712e6", "--sync-time=1763700000"])
        .args(["--wideband", WIDEBAND, "239.102.0.64+7:7148"])
        .env("KATSDP_LOG_GELF_ADDRESS", "no.such.host.invalid:12201")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("KATSDP_LOG_GELF_ADDRESS=no.such.host.invalid:12201: "),
        "{stderr}"
    );
}
