//! Mistakes that people make on command lines: each is answered with what was meant, and values
//! that are most often typing errors are warned of.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::modem_mistakes::{interrupt, listens, started};
use crate::support::{data, documents, host, json, karoo, left_out, refused};

const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=4096,taps=4";
/// A dataflow graph with an input and an output.
const GAIN: &str = r#"
name = "gain"

[[node]]
path = "x"
kind = "input"
of = "f32"

[[node]]
path = "twice"
kind = "gain"
gain = 2.0
from = ["x"]

[[node]]
path = "y"
kind = "output"
from = ["twice"]
"#;
/// An account without rights.
const NOBODY: u32 = 65534;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Where it is no standard stream.
#[test]
fn a_dash_is_refused_with_what_was_meant() {
    let capture = data("tones-10bit.pcap");
    let capture = capture.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    // A pipe cannot be read twice.
    let (save, give) = ("save it to a file and give its name", "give /dev/stdout");
    for (args, way_out) in [
        (
            &["modem", "rx", "--input", capture, "--soft", "-"][..],
            give,
        ),
        (&["replay", capture, "--output", "-"], give),
        (&["replay", "-", "--output", "/dev/null"], save),
        (&["dsim", "--output", "-"], give),
        (&["sink", "-"], save),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
        let output = command.args(args).current_dir(folder.path()).output();
        refused(&output.unwrap(), 2, way_out);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{args:?}");
    }
}

#[test]
fn what_a_doctor_has_seen_until_a_signal_is_told() {
    let doctor = ["doctor", "--recv-interface", "lo", "--for", "3600"];
    for more in [&["239.9.9.9:7148"][..], &["239.9.9.9:7148", "--json"]] {
        let child = started(&[&doctor[..], more].concat());
        listens(&child);
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        refused(&output, 1, "found: ");
        let told = String::from_utf8(output.stdout).unwrap();
        if more.len() > 1 {
            documents::check("doctor", &told);
            assert_eq!(json(&told)["cut_short_of"], 3600.0, "{told}");
            continue;
        }
        assert!(told.contains("on lo"), "{told}");
        assert!(
            told.contains("a signal cut the look short: ") && told.contains("of 3600 s"),
            "{told}"
        );
    }
}

#[test]
fn each_mistake_is_answered_with_what_was_meant() {
    let doctor = ["doctor", "--recv-interface", "lo", "239.1.1.1"];
    let with = |options: &[&'static str]| [&doctor[..], options].concat();
    let (moment, rate) = (with(&["--for", "1e-9"]), with(&["--adc-sample-rate", "0"]));
    let ports = ["--katcp-port=7250", "--prometheus-port=7250"];
    let ports = [&["dsim", "--interface", "no-such"], &ports[..]].concat();
    let sink = ["sink", "--interface", "lo", "--dst", "239.1.1.1"];
    let no_heaps = [&sink[..], &["--heaps", "0"]].concat();
    let cases: [(&[&str], &[&str]); 16] = [
        (&no_heaps, &["'0' for '--heaps <N>'"]),
        (
            &ports,
            &["--prometheus-port 7250: is --katcp-port 7250 too"],
        ),
        (&["shadow"], &["<HOST:PORT>"]),
        (&["shadow", "localhost:1"], &["SRC, --recv-interface"]),
        (&["doctor"], &["SRC, --recv-interface missing"]),
        (&moment, &["--for", "0.1 to 3600"]),
        (&rate, &["--adc-sample-rate 0", "more than 0 Hz"]),
        (&["plan", "--engines", "0"], &["must be from 1 to"]),
        (&["reply", "x.pcap"], &["replay"]),
        (
            &["fgpu"],
            &["SRC, --recv-interface", "--wideband", "All of it"],
        ),
        (
            &[
                "dsim",
                "--output",
                "/nowhere/x",
                "--signals",
                "cw(0.1 1e6);",
            ],
            &[
                "expected ','",
                "\n  cw(0.1 1e6);\n         ^\n",
                "comb(amplitude, frequency)",
            ],
        ),
        (
            &[
                "dsim",
                "--output",
                "/nowhere/x",
                "--signals",
                "sin(0.1, 1e6);",
            ],
            &["no function 'sin'", "\n  ^\n"],
        ),
        (
            &["fgpu", "--wideband", "name=w,chanels=4096,dst=239.1.1.1"],
            &["'chanels'", "did you mean channels?"],
        ),
        (
            &[
                "dsim",
                "--output",
                "/nowhere/x",
                "--adc-sample-rate",
                "1712m",
            ],
            &["M for a million"],
        ),
        (&["bench", "kernels", "--channels", "7"], &["channels"]),
        (&["schema", "report"], &["replay-report"]),
    ];
    for (args, words) in cases {
        let output = karoo(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: "), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: no '{word}' in {text}");
        }
    }
}

/// The CPU that is not there is told by what measures, which would take minutes on a large host.
#[test]
fn a_file_that_cannot_be_written_is_told_before_cores_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (path, new) = (folder.path().to_str().unwrap(), folder.path().join("a/new"));
    for (output, told) in [(path, "--output"), (new.to_str().unwrap(), "--cpus 1023")] {
        let cores = ["bench", "cores", "--cpus", "0,1023", "--output", output];
        let output = karoo(cores);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with(&format!("error: {told}")), "{text}");
    }
    assert!(!new.exists(), "it is made of what was measured");
}

/// An engine of these options, which ends before it has an interface.
fn engine(options: &[&str]) -> Output {
    let usual = [
        "fgpu",
        "--recv-interface=no-such",
        "--send-interface=no-such",
        "--adc-sample-rate=1712e6",
        "--sync-time=1763700000",
        "239.102.0.64+7:7148,239.102.1.64+7:7148",
    ];
    karoo(usual.iter().chain(options))
}

#[test]
fn numbers_that_no_engine_can_use_are_refused() {
    let cases = [
        ("--sync-time=1e300", "must be UNIX seconds"),
        ("--send-rate-factor=1e-300", "must be 0"),
        ("--send-rate-factor=-1", "must be 0"),
        ("--recv-buffer=18446744073709551615", "--recv-buffer"),
        ("--gain=auto", "?karoo-auto-gain"),
        ("--prometheus-port=7147", "is --katcp-port 7147 too"),
    ];
    for (option, words) in cases {
        let output = engine(&["--wideband", WIDEBAND, option]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{option}: {text}");
        assert!(text.contains(words), "{option}: {text}");
    }
}

#[test]
fn values_that_are_most_often_typing_errors_are_warned_of() {
    let zoom = "name=z,channels=64,dst=239.10.2.0,centre_frequency=284.0,decimation=16";
    let cases: [(&[&str], &str); 6] = [
        (&["--adc-sample-rate=1712"], "give 1712M"),
        (&["--sync-time=4294000000"], "is to come"),
        (&["--sync-time=1763700000000"], "give 1763700000"),
        (&["--gain=0"], "--gain 0"),
        (&["--narrowband", zoom], "give centre_frequency=284M"),
        (&["--send-rate-factor=0.5"], "--send-rate-factor 0.5"),
    ];
    for (options, words) in cases {
        let output = engine(&[&["--wideband", WIDEBAND], options].concat());
        let text = stderr(&output);
        assert!(
            text.contains("WARN") && text.contains(words),
            "{options:?}: {text}"
        );
    }
    let right = engine(&["--wideband", WIDEBAND]);
    assert!(!stderr(&right).contains("WARN"), "{}", stderr(&right));

    let folder = tempfile::tempdir().unwrap();
    let (capture, out) = (data("tones-10bit.pcap"), folder.path().join("out.pcap"));
    let (capture, out) = (capture.to_str().unwrap(), out.to_str().unwrap());
    let usual = [
        "replay",
        capture,
        "-o",
        out,
        "--backend=cpu",
        "--wideband",
        WIDEBAND,
        "--quiet",
    ];
    for (options, words) in &cases[..5] {
        let output = karoo(usual.iter().chain(*options));
        let text = stderr(&output);
        // Frames of captures have no times past 2106.
        let has_times = *options != ["--sync-time=1763700000000"];
        assert_eq!(output.status.success(), has_times, "{options:?}: {text}");
        assert!(
            text.contains("WARN") && text.contains(words),
            "{options:?}: {text}"
        );
    }
    let right = karoo(usual);
    assert!(!stderr(&right).contains("WARN"), "{}", stderr(&right));
}

#[test]
fn who_is_not_root_is_told_so_first() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
        // Changing to another user takes root; who runs this as another user is one already.
        if std::fs::metadata("/proc/self")
            .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(args).current_dir("/").output()
    };
    for (what, more) in [("apply", "--dry-run"), ("revert", "sudo")] {
        let output = match run(&["tune", what]) {
            Ok(output) => output,
            Err(error) => return left_out(&format!("no program that others may run: {error}")),
        };
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("run it as root") && text.contains(more),
            "{text}"
        );
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn colours_are_shown_where_they_are_wanted() {
    let host = host::lay_out(&host::record("milan"));
    let root = host.path().to_str().unwrap();
    let run = |variable: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
        command.args(args).env(variable, "1");
        let output = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        (stdout, stderr(&output))
    };
    for args in [
        &["tune", "check", "--root", root][..],
        &["plan", "--root", root, "--engines", "4"],
    ] {
        let (coloured, _) = run("CLICOLOR_FORCE", args);
        assert!(coloured.contains("\u{1b}[3"), "{args:?}: {coloured}");
        let (plain, _) = run("NO_COLOR", args);
        assert!(!plain.contains('\u{1b}'), "{args:?}: {plain}");
        let stripped = coloured.split("\u{1b}[").map(|part| {
            let codes = part
                .split_once('m')
                .filter(|(codes, _)| codes.chars().all(|c| c.is_ascii_digit() || c == ';'));
            codes.map_or(part, |(_, text)| text)
        });
        assert_eq!(stripped.collect::<String>(), plain);
    }
    let (_, coloured) = run("CLICOLOR_FORCE", &["sink", "missing.pcap"]);
    assert!(coloured.starts_with("\u{1b}["), "{coloured}");
    let (_, plain) = run("NO_COLOR", &["sink", "missing.pcap"]);
    assert!(plain.starts_with("error: "), "{plain}");
}

#[test]
fn what_a_command_reads_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, soft, hard) = (at("input"), at("soft"), at("hard"));
    fs::write(&input, GAIN).unwrap();
    symlink(&input, &soft).unwrap();
    fs::hard_link(&input, &hard).unwrap();
    let (link, report) = (at("out.pcap.part"), at("report.html"));
    symlink(&input, &link).unwrap();
    symlink(&input, &report).unwrap();
    let (port, folder, out) = (format!("x={input}"), at(""), at("out.pcap"));
    let cases: [(&[&str], [&str; 2]); 15] = [
        (
            &["flow", "check", &input, "--dot", &soft],
            ["--dot", "GRAPH"],
        ),
        (
            &["flow", "check", &input, "--svg", &hard],
            ["--svg", "GRAPH"],
        ),
        (
            &["flow", "check", &input, "--costs", &soft],
            ["--costs", "GRAPH"],
        ),
        (
            &["flow", "plan", &input, "--output", &hard],
            ["--output", "GRAPH"],
        ),
        (
            &[
                "flow",
                "plan",
                &out,
                "--costs",
                &hard,
                "--cores-file",
                &input,
            ],
            ["--costs", "--cores-file"],
        ),
        (
            &["flow", "plan", &out, "--costs", &out],
            ["--costs", "GRAPH"],
        ),
        (
            &["flow", "run", &input, "-i", &out, "-o", &soft],
            ["--output y=", "GRAPH"],
        ),
        (
            &["flow", "run", &input, "-i", &port, "--telemetry", &hard],
            ["--telemetry", "GRAPH"],
        ),
        (
            &["flow", "bench", "graph", &input, "--costs", &soft],
            ["--costs", "GRAPH"],
        ),
        (
            &["modem", "rx", "--input", &input, "--output", &hard],
            ["--output", "--input"],
        ),
        (
            &["modem", "rx", "--input", &input, "--report", &folder],
            ["--report", "--input"],
        ),
        (
            &["modem", "channel", "--input", &input, "--output", &soft],
            ["--output", "--input"],
        ),
        (
            &["replay", &input, "--output", &hard],
            ["--output", "CAPTURE"],
        ),
        (
            &["replay", &input, "--output", &out],
            ["--output", "CAPTURE"],
        ),
        (
            &["replay", "none", "--requests", &input, "--output", &soft],
            ["--output", "--requests"],
        ),
    ];
    for (args, options) in cases {
        let output = karoo(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        for option in options {
            assert!(text.contains(option), "{args:?}: {text}");
        }
        assert!(text.contains("would be lost"), "{args:?}: {text}");
        assert_eq!(fs::read_to_string(&input).unwrap(), GAIN, "{args:?}");
    }
    let once = ["plan", "--picture", &input, "--cores-file", &soft];
    assert!(stderr(&karoo(once)).contains("--picture"), "plan");
    let twice = ["dsim", "--output", &out, "--truth", &at("./out.pcap")];
    assert!(
        stderr(&karoo(twice)).contains("is written there too"),
        "dsim"
    );
}
