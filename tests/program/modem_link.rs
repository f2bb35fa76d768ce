//! `karoo modem link`: text and files over a simulated channel in real time, and its page.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::tempdir;

use crate::support::{browser, karoo, karoo_ok};

#[test]
fn a_file_comes_over_the_link_in_its_time() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let message: Vec<u8> = (0..40_000u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    fs::write(at("message"), &message).unwrap();
    let text = karoo_ok([
        "modem",
        "link",
        "--input",
        &at("message"),
        "--output",
        &at("back"),
        "--mod",
        "qam16",
        "--sample-rate",
        "2M",
        "--es-n0",
        "25",
        "--delay",
        "1000",
        "--clock",
        "-10",
        "--json",
    ]);
    let linked: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(linked["sent"]["frames"], 7);
    assert_eq!(linked["counts"]["delivered"], 7, "{linked}");
    assert!(fs::read(at("back")).unwrap() == message);
    // Seven frames of 48 360 samples.
    let seconds = linked["seconds"].as_f64().unwrap();
    assert!(seconds > 7.0 * 48_360.0 / 2e6, "{linked}");
}

/// What is typed appears, line by line, while the link goes on.
#[test]
fn lines_come_over_the_link_as_they_are_typed() {
    let mut link = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(["modem", "link", "--input", "-", "--es-n0", "20"])
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typed = link.stdin.take().unwrap();
    let mut shown = BufReader::new(link.stdout.take().unwrap());
    for line in ["to be\n", "or not\n", "to be\n"] {
        typed.write_all(line.as_bytes()).unwrap();
        typed.flush().unwrap();
        let mut back = String::new();
        shown.read_line(&mut back).unwrap();
        assert_eq!(back, line);
    }
    drop(typed);
    let output = link.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("3 delivered"),
        "{said}"
    );
}

#[test]
fn a_browser_sees_the_link() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(
        &path,
        "to be or not to be, that is the question\n".repeat(60),
    )
    .unwrap();
    let args = ["modem", "link", "--input", path.to_str().unwrap()]
        .into_iter()
        .chain(["--output", "/dev/null", "--repeat", "1000000"])
        .chain([
            "--sample-rate",
            "500k",
            "--es-n0",
            "20",
            "--frequency",
            "200",
        ]);
    browser::look("look_modem.py", &args.collect::<Vec<_>>());
}

#[test]
fn links_that_cannot_be_are_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, "text").unwrap();
    let text = path.to_str().unwrap();
    let rows: [(&[&str], &str); 5] = [
        (&["--input", text, "--json"], "give --output FILE"),
        (&["--input", text, "--taps", "7"], "--taps"),
        (&["--input", text, "--duty", "0"], "--duty"),
        (&["--input", text, "--output", text], "would be lost"),
        (&["--input", "-", "--repeat", "2"], "name a file"),
    ];
    for (args, wanted) in rows {
        let output = karoo(["modem", "link"].iter().chain(args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}
