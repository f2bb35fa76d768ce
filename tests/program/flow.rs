//! `karoo flow` as a user runs it: graphs of the guide, checked, planned, run between files, pipes
//! and sockets, and what is refused.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::tempdir;

use crate::support::{browser, documents, json, karoo, karoo_ok};

pub fn graph(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/flow/graphs");
    folder.join(name).to_str().unwrap().to_owned()
}

/// Complex samples, interleaved.
fn tone(samples: usize) -> Vec<f32> {
    let angle = |n: usize| 0.3 * n as f32;
    (0..samples)
        .flat_map(|n| [angle(n).cos(), angle(n).sin()])
        .collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let number = |chunk: &[u8]| f32::from_le_bytes(chunk.try_into().unwrap());
    bytes.chunks_exact(4).map(number).collect()
}

/// The filter of the guide and its decimation, by the definition, in double precision.
fn filtered(samples: &[f32]) -> Vec<f64> {
    const TAPS: [f64; 7] = [-0.03, 0.0, 0.28, 0.5, 0.28, 0.0, -0.03];
    let pairs: Vec<&[f32]> = samples.chunks_exact(2).collect();
    let sum = |n: usize, part: usize| {
        let term = |(k, tap): (usize, &f64)| {
            n.checked_sub(k)
                .map_or(0.0, |at| tap * f64::from(pairs[at][part]))
        };
        TAPS.iter().enumerate().map(term).sum::<f64>()
    };
    (0..pairs.len())
        .step_by(2)
        .flat_map(|n| [sum(n, 0), sum(n, 1)])
        .collect()
}

fn assert_near(got: &[f32], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!(
            (f64::from(*got) - wanted).abs() < 1e-5,
            "{at}: {got} where {wanted} is right"
        );
    }
}

#[test]
fn a_check_tells_ports_rate_and_loops() {
    let text = karoo_ok(["flow", "check", &graph("filter.toml"), "--guess"]);
    assert!(
        text.contains("input    x: complex f32, 8 bytes, at rate 1"),
        "{text}"
    );
    assert!(
        text.contains("output   y: complex f32, 8 bytes, at rate 1/2"),
        "{text}"
    );
    let args = [
        "flow",
        "check",
        &graph("agc.toml"),
        "--guess",
        "--block",
        "128",
        "--json",
    ];
    let shown = karoo_ok(&args[..6]);
    assert!(
        shown.contains("; in 1 cycle, the least has 2.00 blocks a partition"),
        "{shown}"
    );
    let queue = "of 128 ticks, 512 bytes each, 4 at the start";
    assert_eq!(shown.matches(queue).count(), 1, "{shown}");
    let text = karoo_ok(args);
    documents::check("flow-check", &text);
    let checked = json(&text);
    assert_eq!(checked["graph"], "agc");
    let cycles = checked["report"]["cycles"].as_array().unwrap();
    assert_eq!(
        (cycles.len(), &cycles[0]["blocks"]),
        (1, &4.into()),
        "{checked}"
    );
    let queues = checked["queues"].as_array().unwrap();
    let held = |queue: &&serde_json::Value| queue["initial"] == 4;
    let late = queues.iter().find(held).unwrap();
    assert_eq!(
        (&late["block"], &late["bytes"]),
        (&128.into(), &512.into()),
        "{late}"
    );
    let kinds = |part: &serde_json::Value| {
        let kinds = part["kinds"].as_object().unwrap();
        kinds
            .values()
            .map(|count| count.as_u64().unwrap())
            .sum::<u64>()
    };
    let parts = checked["partitions"].as_array().unwrap();
    let inner: u64 = parts.iter().map(kinds).sum();
    // Beside an input, an output and what is constant.
    assert!(
        inner > 0 && inner < checked["nodes"].as_u64().unwrap(),
        "{checked}"
    );
    assert!(
        parts
            .iter()
            .all(|part| part["least_blocks_per_partition"] == 2.0),
        "{checked}"
    );
}

/// Seven partitions, each of which reads from all others, with delays between them.
fn dense() -> String {
    let input = "[[node]]\npath = \"x\"\nkind = \"input\"\nof = \"f32\"\n";
    let output = "[[node]]\npath = \"y\"\nkind = \"output\"\nfrom = [\"p0/s\"]\n";
    let mut text = format!("name = \"dense\"\n{input}{output}");
    for to in 0..7 {
        let others = || (0..7).filter(move |from| *from != to);
        let from: String = others()
            .map(|from| format!(", \"p{to}/d{from}\""))
            .collect();
        text += &format!(
            "[[scope]]\npath = \"p{to}\"\npartition = {to}\n[[node]]\npath = \"p{to}/s\"\n\
             kind = \"sum\"\nsigns = \"+++++++\"\nfrom = [\"x\"{from}]\n"
        );
        for from in others() {
            text += &format!(
                "[[node]]\npath = \"p{to}/d{from}\"\nkind = \"delay\"\nlength = 4096\n\
                 of = \"f32\"\nfrom = [\"p{from}/s\"]\n"
            );
        }
    }
    text
}

#[test]
fn a_check_that_does_not_find_all_cycles_says_so() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("dense.toml");
    fs::write(&path, dense()).unwrap();
    let path = path.to_str().unwrap();
    let text = karoo_ok(["flow", "check", path, "--guess", "--block", "1024"]);
    assert!(text.contains("cycle    there are more than are listed"));
    let first = text
        .lines()
        .find(|line| line.starts_with("nodes    partition 0"));
    let first = first.unwrap();
    assert!(
        first.contains("; in at least 1000 cycles, the least of those found has"),
        "{first}"
    );
}

#[test]
fn a_loop_that_would_stand_still_is_refused_with_the_way_out() {
    let output = karoo([
        "flow",
        "check",
        &graph("agc.toml"),
        "--guess",
        "--block",
        "1024",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("would stand still"), "{text}");
    assert!(text.contains("make its blocks smaller"), "{text}");
    // Which blocks are small enough is in the message, and no longer ones are.
    let (_, rest) = text.split_once("it runs with --block ").unwrap();
    let block: u64 = rest.lines().next().unwrap().parse().unwrap();
    let with = |block: u64| {
        let (graph, block) = (graph("agc.toml"), block.to_string());
        karoo(["flow", "check", &graph, "--guess", "--block", &block]).status
    };
    assert!(
        with(block).success() && !with(2 * block).success(),
        "{block}"
    );
}

#[test]
fn pictures_are_drawn_of_checks_and_plans() {
    let folder = tempdir().unwrap();
    let (dot, svg) = (folder.path().join("a.dot"), folder.path().join("a.svg"));
    karoo_ok([
        "flow",
        "check",
        &graph("agc.toml"),
        "--guess",
        "--block",
        "64",
        "--dot",
        dot.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
    ]);
    assert!(fs::read_to_string(dot).unwrap().starts_with("digraph"));
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg"));
    for (form, begin) in [("--dot", "digraph"), ("--svg", "<svg")] {
        let text = karoo_ok(["flow", "plan", &graph("filter.toml"), "--guess", form]);
        assert!(text.starts_with(begin) && text.contains("low"), "{text}");
    }
}

#[test]
fn files_are_filtered_as_the_definition_says_and_plans_change_nothing() {
    let folder = tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let samples = tone(5001);
    fs::write(path("x"), bytes(&samples)).unwrap();
    let input = format!("x={}", path("x").display());
    let run = |name: &str, more: &[&str]| {
        let output = format!("y={}", path(name).display());
        let graph = graph("filter.toml");
        let args = [
            "flow", "run", &graph, "--input", &input, "--output", &output, "--no-pin",
        ];
        karoo_ok([&args, more].concat());
        fs::read(path(name)).unwrap()
    };
    let first = run("first", &[]);
    assert_near(&floats(&first), &filtered(&samples));
    let plan = path("plan");
    let plan = plan.to_str().unwrap();
    let text = karoo_ok([
        "flow",
        "plan",
        &graph("filter.toml"),
        "--calibration",
        "20",
        "--costs",
        path("costs").to_str().unwrap(),
        "--output",
        plan,
        "--json",
    ]);
    documents::check("flow-plan", &text);
    assert_eq!(json(&text)["measured"], true);
    assert!(path("costs").exists());
    assert_eq!(run("second", &["--plan", plan]), first);
    assert_eq!(run("third", &["--block", "14", "--capacity", "2"]), first);
    // A plan of another graph is refused.
    let args = [
        "flow",
        "run",
        &graph("agc.toml"),
        "--input",
        &input,
        "--plan",
        plan,
    ];
    let output = karoo(args);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_pipe_carries_samples_and_the_report_goes_beside_it() {
    ["-", "/dev/stdout"].into_iter().for_each(through_a_pipe);
}

fn through_a_pipe(to: &str) {
    let samples = tone(3000);
    let mut child = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args([
            "flow",
            "run",
            &graph("filter.toml"),
            "-i",
            "-",
            "-o",
            to,
            "--no-pin",
            "--json",
        ])
        .env("RUST_LOG", "warn")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let all = bytes(&samples);
    let writer = thread::spawn(move || stdin.write_all(&all).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_near(&floats(&output.stdout), &filtered(&samples));
    let report = String::from_utf8(output.stderr).unwrap();
    documents::check("flow-run", &report);
    let report = json(&report);
    assert_eq!(
        (&report["version"], &report["ticks"]),
        (&1.into(), &3000.into())
    );
    assert!(report["telemetry"]["partitions"].as_array().unwrap().len() > 2);
}

#[test]
fn a_run_between_sockets_ends_at_a_signal_behind_what_came_in() {
    let port = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    };
    let (input, output, page) = (port(), port(), port());
    let child = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args([
            "flow",
            "run",
            &graph("filter.toml"),
            "--no-pin",
            "--block",
            "2",
        ])
        .args(["--input", &format!("x=tcp-listen:127.0.0.1:{input}")])
        .args(["--output", &format!("y=tcp-listen:127.0.0.1:{output}")])
        .args(["--http", &page.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let connect = |port: u16| loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    };
    // Outputs are opened first.
    let mut from = connect(output);
    let mut to = connect(input);
    let samples = tone(1000);
    to.write_all(&bytes(&samples)).unwrap();
    let mut got = vec![0; 500 * 8];
    from.read_exact(&mut got).unwrap();
    assert_near(&floats(&got), &filtered(&samples));
    // The page has the graph, with its queues.
    let document = loop {
        let mut page = connect(page);
        page.write_all(b"GET /live.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        page.read_to_string(&mut answer).unwrap();
        if let Some((head, body)) = answer.split_once("\r\n\r\n")
            && head.contains("200")
        {
            break json(&body[body.find('{').unwrap()..=body.rfind('}').unwrap()]);
        }
    };
    let panels = document["panels"].as_array().unwrap();
    let network = panels
        .iter()
        .find(|panel| panel["kind"] == "network")
        .unwrap();
    assert!(network["nodes"].as_array().unwrap().len() >= 3, "{network}");
    assert!(!network["arrows"].as_array().unwrap().is_empty());
    let pid = child.id();
    let killed = Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("filter: 1000 ticks"),
        "{output:?}"
    );
}

#[test]
fn what_is_wrong_is_named_with_the_way_out() {
    let folder = tempdir().unwrap();
    let broken = folder.path().join("broken.toml");
    fs::write(
        &broken,
        "name = \"b\"\n[[node]]\npath = \"y\"\nkind = \"outptu\"\nfrom = [\"x\"]\n",
    )
    .unwrap();
    let broken = broken.to_str().unwrap();
    let (filter, missing) = (graph("filter.toml"), folder.path().join("none.toml"));
    let samples = folder.path().join("samples");
    fs::write(&samples, [0; 64]).unwrap();
    let samples = samples.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["flow", "check", broken], 1, "broken.toml:2"),
        (
            &["flow", "check", missing.to_str().unwrap()],
            2,
            "none.toml",
        ),
        (&["flow", "run", &filter], 2, "the input x has no address"),
        (&["flow", "run", &filter, "-i", "z=a"], 2, "one of: x"),
        (
            &["flow", "run", &filter, "-i", "ucp:a"],
            2,
            "`ucp:` is not known",
        ),
        (
            &["flow", "plan", &filter, "--guess", "--pin", "high=0"],
            2,
            "no node",
        ),
        (
            &["flow", "run", &filter, "-i", "/nowhere/at/all"],
            1,
            "x: /nowhere/at/all",
        ),
        (
            &["flow", "run", &filter, "-i", samples, "-o", samples],
            2,
            "samples: it is --input x=",
        ),
    ];
    for (args, code, wanted) in cases {
        let output = karoo(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(wanted), "{args:?}: {text}");
    }
    assert_eq!(fs::read(samples).unwrap(), [0; 64]);
}

/// A graph whose second partition has far more to do than the others.
const UNEVEN: &str = r#"
name = "uneven"

[[node]]
path = "x"
kind = "input"
of = "f32"

[[node]]
path = "front/low"
kind = "fir"
taps = [0.5, 0.5]
from = ["x"]

[[node]]
path = "middle/wide"
kind = "fir"
taps = [TAPS]
from = ["front/low"]

[[node]]
path = "back/half"
kind = "gain"
gain = 0.5
from = ["middle/wide"]

[[node]]
path = "y"
kind = "output"
from = ["back/half"]

[[scope]]
path = "front"
partition = 0

[[scope]]
path = "middle"
partition = 1

[[scope]]
path = "back"
partition = 2
"#;

#[test]
fn a_browser_sees_the_graph_with_its_limit_and_waiting_by_queue() {
    let folder = tempdir().unwrap();
    let (path, table) = (
        folder.path().join("uneven.toml"),
        folder.path().join("a.csv"),
    );
    fs::write(&path, UNEVEN.replace("TAPS", &vec!["0.01"; 900].join(","))).unwrap();
    let args = ["flow", "run", path.to_str().unwrap(), "--no-pin"]
        .into_iter()
        .chain(["--input", "x=/dev/zero", "--output", "y=/dev/null"])
        .chain(["--telemetry", table.to_str().unwrap()]);
    browser::look("look_flow.py", &args.collect::<Vec<_>>());
    let table = fs::read_to_string(table).unwrap();
    assert!(table.starts_with("elapsed_ns,partition,ticks,"));
    assert!(
        table
            .lines()
            .filter(|line| line.contains(",partition 1,"))
            .count()
            >= 2,
        "{table}"
    );
}

#[test]
fn a_browser_sees_that_nothing_comes() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("uneven.toml");
    fs::write(&path, UNEVEN.replace("TAPS", "1.0")).unwrap();
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let input = format!("x=tcp:{}", peer.local_addr().unwrap());
    // It sends something, and then nothing until the run goes.
    let peer = thread::spawn(move || {
        let (mut stream, _) = peer.accept().unwrap();
        stream.write_all(&vec![0; 1 << 20]).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let args = ["flow", "run", path.to_str().unwrap(), "--no-pin"];
    let ends = ["--input", &input, "--output", "y=/dev/null"];
    browser::look("look_flow_stalled.py inputs", &[&args[..], &ends].concat());
    peer.join().unwrap();
}

#[test]
fn a_gain_changes_at_its_sample() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("uneven.toml"), UNEVEN.replace("TAPS", "1.0")).unwrap();
    fs::write(path("x"), bytes(&[1.0; 3000])).unwrap();
    let (graph, input, output) = (path("uneven.toml"), path("x"), path("y"));
    let (input, output) = (format!("x={input}"), format!("y={output}"));
    let run = |change: &str| {
        let args = [
            "flow", "run", &graph, "-i", &input, "-o", &output, "--no-pin", "--change", change,
        ];
        karoo(args)
    };
    assert!(run("back/half=4@1234").status.success());
    let found = floats(&fs::read(path("y")).unwrap());
    // The first sample comes when the filter in front is half full.
    let wanted = |n: usize| match n {
        0 => 0.25,
        1..1234 => 0.5,
        _ => 4.0,
    };
    assert_eq!(found, (0..3000).map(wanted).collect::<Vec<f32>>());
    let beyond = run("back/half=4@3000");
    let said = String::from_utf8_lossy(&beyond.stderr).into_owned();
    assert!(beyond.status.success(), "{said}");
    assert!(
        said.contains("the run ended before, at tick 3000"),
        "{said}"
    );
    let twice = karoo([
        "flow",
        "run",
        &graph,
        "-i",
        &input,
        "-o",
        &output,
        "--change",
        "back/half=4@7",
        "--change",
        "back/half=5@7",
    ]);
    let said = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert_eq!(twice.status.code(), Some(2), "{said}");
    assert!(said.contains("has two changes at this tick"), "{said}");
    for (change, text) in [
        ("back/halve=4@1", "there is no such node"),
        ("middle/wide=[1, 2]@1", "2 numbers are given: give 1"),
        ("back/half=4", "PATH=NUMBERS@TICK"),
    ] {
        let refused = run(change);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(text) && said.contains("--change"), "{said}");
    }
}
