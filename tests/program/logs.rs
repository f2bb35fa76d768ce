//! Log messages as JSON, for programs that collect them.

use std::process::Output;

use serde_json::Value;

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
