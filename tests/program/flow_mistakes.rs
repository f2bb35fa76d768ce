//! What `karoo flow` refuses, before it has written anything: files that would be lost, options
//! that nothing would follow, changes that cannot be.

use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use tempfile::{TempDir, tempdir};

use super::flow::graph;
use crate::support::{documents, json, karoo, karoo_ok, refused};

/// A folder, and paths in it.
struct Room(TempDir);

impl Room {
    fn new() -> Room {
        Room(tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn with(&self, name: &str, text: &str) -> String {
        fs::write(self.at(name), text).unwrap();
        self.at(name)
    }
}

/// Two outputs of one input.
const TWO: &str = r#"
name = "two"

[[node]]
path = "x"
kind = "input"
of = "f32"

[[node]]
path = "half"
kind = "gain"
gain = 0.5
from = ["x"]

[[node]]
path = "a"
kind = "output"
from = ["half"]

[[node]]
path = "b"
kind = "output"
from = ["half"]
"#;

#[test]
fn outputs_keep_what_they_have_until_all_else_is_in_order() {
    let room = Room::new();
    let two = room.with("two.toml", TWO);
    let (keep, table) = (
        room.with("keep", "precious"),
        room.with("table", "precious"),
    );
    let input = format!("x={}", room.with("x", "0123456789abcdef"));
    let (missing, folder) = (
        format!("x={}", room.at("none")),
        format!("x={}", room.at("")),
    );
    let (first, second) = (format!("a={keep}"), format!("b={}", room.at("no/folder")));
    let nobody = "x=tcp:127.0.0.1:1";
    let silent = ["-i", &input, "-o", "b=udp:127.0.0.1:1,idle=3"];
    let cases: [(&[&str], i32, &str); 11] = [
        (&silent, 2, "--output b=…: idle= is for inputs"),
        // The library does not know of ports.
        (&["-i", "foo:bar"], 2, "udp:, shm:, dpdk:"),
        (&["-i", "udp:127.0.0.1:1,idle=1e300"], 2, "below 1.8e19"),
        (&["-i", &missing], 1, "none: No such file"),
        (&["-i", &folder], 1, "is a directory"),
        (&["-i", nobody], 1, "127.0.0.1:1"),
        (&["-i", &input, "-o", &second], 1, "no/folder"),
        (
            &["-i", &input, "--change", "q=1@1"],
            2,
            "--change q: cannot be changed: there is no such node",
        ),
        (
            &["-i", &input, "--change", "half=[1, 2]@1"],
            2,
            "--change half: 2 numbers",
        ),
        (
            &["-i", &input, "--change", "x=1@1"],
            2,
            "--change x: cannot be changed: it is no constant, no gain and no filter",
        ),
        (&["-i", &input, "--plan", &room.at("plan")], 2, "--plan"),
    ];
    let run = [
        "flow",
        "run",
        &two,
        "--no-pin",
        "-o",
        &first,
        "--telemetry",
        &table,
    ];
    for (more, code, wanted) in cases {
        refused(&karoo(run.iter().chain(more)), code, wanted);
        for path in [&keep, &table] {
            assert_eq!(fs::read(path).unwrap(), b"precious", "{more:?}");
        }
    }
    karoo_ok(run.iter().chain(&["-i", &input]));
    assert_eq!(fs::read(&keep).unwrap().len(), 16);
    assert!(
        fs::read_to_string(&table)
            .unwrap()
            .starts_with("elapsed_ns,")
    );
}

/// Each port would have some of the samples.
#[test]
fn a_standard_stream_is_for_one_port() {
    let room = Room::new();
    let two = room.with("two.toml", TWO);
    let both = TWO.replace(
        "gain = 0.5\nfrom = [\"x\"]",
        "gain = 0.5\nfrom = [\"sum\"]\n\n[[node]]\npath = \"y\"\nkind = \"input\"\nof = \"f32\"\n\n\
         [[node]]\npath = \"sum\"\nkind = \"sum\"\nsigns = \"+-\"\nfrom = [\"x\", \"y\"]",
    );
    let both = room.with("both.toml", &both);
    let run = |graph: &str, ports: &[&str]| {
        let options = ["flow", "run", graph, "--no-pin"];
        karoo(options.iter().chain(ports))
    };
    let wanted = "--output b=…: a has the standard stream already";
    let input = format!("x={}", room.with("x", "0123456789abcdef"));
    for second in ["b=-", "b=/dev/stdout"] {
        refused(
            &run(&two, &["-i", &input, "-o", "a=-", "-o", second]),
            2,
            wanted,
        );
    }
    let wanted = "--input y=…: x has the standard stream already";
    refused(&run(&both, &["-i", "x=-", "-i", "y=-"]), 2, wanted);
    let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
    command.args(["flow", "run", &both, "--no-pin"]);
    command.args(["-i", "x=-", "-i", "y=/dev/stdin"]);
    refused(&command.stdin(Stdio::piped()).output().unwrap(), 2, wanted);
}

/// Also of a run that ends at once.
#[test]
fn a_run_that_fails_has_its_telemetry() {
    let room = Room::new();
    let two = room.with("two.toml", TWO);
    let table = room.with("table", "that of another run");
    let torn = format!("x={}", room.with("x", "0123456"));
    let output = format!("a={}", room.at("a"));
    let run = ["flow", "run", &two, "--no-pin", "-i", &torn, "-o", &output];
    refused(
        &karoo(run.iter().chain(&["--telemetry", &table])),
        1,
        "give whole samples",
    );
    assert!(
        fs::read_to_string(&table)
            .unwrap()
            .starts_with("elapsed_ns,")
    );
}

#[test]
fn costs_are_written_over_costs_alone() {
    let room = Room::new();
    let two = room.with("two.toml", TWO);
    let plan = |costs: &str, more: &[&str]| {
        let plan = [
            "flow",
            "plan",
            &two,
            "--alike",
            "--cpus",
            "0",
            "--calibration",
            "10",
        ];
        karoo(plan.iter().chain(&["--costs", costs]).chain(more))
    };
    let names: [(&str, &[u8]); 3] = [
        ("notes", b"my notes"),
        ("other.json", b"{\"version\": 1}"),
        ("binary", b"\xff\x00"),
    ];
    for (name, text) in names {
        let path = room.at(name);
        fs::write(&path, text).unwrap();
        for more in [&[][..], &["--measure"]] {
            refused(&plan(&path, more), 2, "name another file");
            assert_eq!(fs::read(&path).unwrap(), text);
        }
    }
    let nowhere = plan(&room.at("no/costs"), &[]);
    refused(&nowhere, 2, "no/costs: No such file or directory");
    assert!(!std::path::Path::new(&room.at("no")).exists());
    // Of an older version, of another graph, and of nothing: they are made anew.
    let old = r#"{"version": 0, "graph": "x", "nodes": {}}"#;
    for (name, text) in [("old", old), ("empty", "")] {
        let path = room.with(name, text);
        let output = plan(&path, &[]);
        assert!(output.status.success(), "{output:?}");
        // What the node costs may be too little to be seen in so short a time.
        let costs = fs::read_to_string(path).unwrap();
        assert!(costs.contains("\"measured\": true"), "{costs}");
    }
}

#[test]
fn options_that_nothing_would_follow_are_refused() {
    let room = Room::new();
    let (agc, filter) = (graph("agc.toml"), graph("filter.toml"));
    let plan = room.at("plan");
    karoo_ok([
        "flow", "plan", &filter, "--guess", "--cpus", "0", "--output", &plan,
    ]);
    let samples = room.with("x", "0123456789abcdef");
    let planned: [&[&str]; 15] = [
        &["--block", "16"],
        &["--longest-block", "16"],
        &["--capacity", "4"],
        &["--pin", "low=0"],
        &["--marked"],
        &["--no-copies"],
        &["--seed", "7"],
        &["--looks", "200"],
        &["--costs", "costs"],
        &["--measure"],
        &["--guess"],
        &["--calibration", "20"],
        &["--cpus", "0"],
        &["--cores-file", "cores"],
        &["--alike"],
    ];
    for option in planned {
        let run = ["flow", "run", &filter, "-i", &samples, "--plan", &plan];
        let wanted = format!("cannot be used with '{}", option[0]);
        refused(&karoo(run.iter().chain(option)), 2, &wanted);
        // Those that say how marked partitions are run are followed.
        if ["--block", "--longest-block", "--capacity"].contains(&option[0]) {
            continue;
        }
        let run = ["flow", "run", &agc, "-i", &samples];
        let wanted = format!("{}: the graph runs in the partitions", option.join(" "));
        refused(&karoo(run.iter().chain(option)), 2, &wanted);
    }
    let unpinned = ["flow", "run", &agc, "-i", &samples, "--block", "128"];
    let wanted = "--real-time 5: no thread has a CPU of its own";
    refused(
        &karoo(unpinned.iter().chain(&["--real-time", "5"])),
        2,
        wanted,
    );
    for option in [&["--measure"][..], &["--costs", "costs"], &["--alike"]] {
        let run = ["flow", "run", &filter, "-i", &samples];
        let wanted = format!(
            "{}: the plan is made of guessed costs; add --auto",
            option.join(" ")
        );
        refused(&karoo(run.iter().chain(option)), 2, &wanted);
    }
    let block = [
        "flow",
        "run",
        &agc,
        "-i",
        &samples,
        "--block",
        "128",
        "--capacity",
        "9",
    ];
    karoo_ok(block);
    // Whoever may not have the priority is told so, and runs all the same.
    karoo_ok([
        "flow",
        "run",
        &filter,
        "-i",
        &samples,
        "--cpus",
        "0",
        "--seed",
        "3",
        "--no-copies",
        "--real-time",
        "1",
    ]);
}

#[test]
fn pins_and_plans_are_named_where_they_are_wrong() {
    let room = Room::new();
    let (filter, two) = (graph("filter.toml"), room.with("two.toml", TWO));
    let plan = ["flow", "plan", &filter, "--guess", "--cpus", "0", "--pin"];
    refused(
        &karoo(plan.iter().chain(&["nope=0"])),
        2,
        "--pin: nope: no node",
    );
    refused(
        &karoo(plan.iter().chain(&["low=99"])),
        2,
        "--pin: low is to run on CPU 99",
    );
    let made = room.at("made");
    karoo_ok([
        "flow", "plan", &two, "--guess", "--cpus", "0", "--output", &made,
    ]);
    let samples = room.with("x", "0123456789abcdef");
    let run = karoo(["flow", "run", &filter, "-i", &samples, "--plan", &made]);
    refused(&run, 2, &format!("--plan {made}: the plan "));
}

#[test]
fn a_plan_that_would_stand_still_is_none() {
    const LOOP: &str = "name = 'loop'
node = [
    { path = 'x', kind = 'input', of = 'f32' },
    { path = 's', kind = 'sum', signs = '++', from = ['x', 'd'] },
    { path = 'f', kind = 'gain', gain = 0.5, from = ['s'] },
    { path = 'd', kind = 'delay', length = 100, of = 'f32', from = ['f'] },
    { path = 'y', kind = 'output', from = ['f'] },
]
";
    const CORES: &str = "{\"model\": \"m\", \"cpus\": [0, 1], \"latency_ns\": [[0, 50], [50, 0]],
        \"gigabytes_per_second\": [[20, 10], [10, 20]]}";
    let room = Room::new();
    let (graph, cores) = (room.with("loop.toml", LOOP), room.with("cores", CORES));
    let out = room.at("plan");
    let plan = [
        "flow",
        "plan",
        &graph,
        "--guess",
        "--cpus",
        "0,1",
        "--cores-file",
        &cores,
    ];
    let pins = ["--pin", "s=0", "--pin", "f=1", "--output", &out];
    let with = |block: &str| karoo(plan.iter().chain(&pins).chain(&["--block", block]));
    let told = "--block 256: loop: would stand still with blocks of 256 ticks: `s` and what else is \
                on CPU 0, `f` and what else is on CPU 1 wait for one another; blocks of 64 ticks";
    refused(&with("256"), 1, told);
    assert!(!std::path::Path::new(&out).exists());
    assert!(with("64").status.success());
}

/// Also for whoever reads nothing but JSON.
#[test]
fn a_file_with_faults_is_told_in_json_too() {
    let room = Room::new();
    let wrong = TWO.replace("gain = 0.5", "gain = \"half\"");
    let wrong = room.with("wrong.toml", &wrong.replace("of = \"f32\"", "of = \"f99\""));
    let first = format!("{wrong}:4: x: input: of: `f99` is no type");
    let second = format!("{wrong}:9: half: gain: `gain = \"half\"`: it must be a number");
    let check = ["flow", "check", &wrong, "--guess"];
    let output = karoo(check);
    refused(&output, 1, &first);
    assert!(output.stdout.is_empty(), "{output:?}");
    let output = karoo(check.iter().chain(&["--json"]));
    refused(&output, 1, &format!("the graph cannot run: {first}"));
    let text = String::from_utf8(output.stdout).unwrap();
    documents::check("flow-check", &text);
    let told = json(&text);
    let problems = told["problems"].as_array().unwrap();
    assert_eq!(
        (problems.len(), &told["read"]),
        (2, &false.into()),
        "{told}"
    );
    assert!(problems[1].as_str().unwrap().starts_with(&second), "{told}");
    let text = karoo_ok([
        "flow",
        "check",
        &room.with("two.toml", TWO),
        "--guess",
        "--json",
    ]);
    assert_eq!(json(&text)["read"], true);
}

#[test]
fn a_file_of_bytes_is_no_graph_and_no_time_no_period() {
    let room = Room::new();
    let binary = room.at("binary");
    fs::write(&binary, b"\x7fELF\xff").unwrap();
    let output = karoo(["flow", "check", &binary, "--json"]);
    let why = "binary: is no text: invalid utf-8 sequence of 1 bytes from index 4: it must be TOML";
    refused(&output, 1, why);
    let told = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(told["read"], false);
    let filter = graph("filter.toml");
    let check = ["flow", "check", &filter, "--guess", "--period", "0"];
    refused(&karoo(check), 2, "'--period <NS>'");
}

#[test]
fn an_address_of_the_only_port_may_have_an_equals_sign() {
    let room = Room::new();
    room.with("a=b", "0123456789abcdef");
    let run = |input: &str, output: &str| {
        Command::new(env!("CARGO_BIN_EXE_karoo"))
            .args(["flow", "run", &graph("filter.toml"), "--no-pin"])
            .args(["-i", input, "-o", output])
            .current_dir(room.0.path())
            .output()
            .unwrap()
    };
    let ran = run("./a=b", "./y=z");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(fs::read(room.at("y=z")).unwrap().len(), 8);
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let silent = run(&format!("udp:127.0.0.1:{port},idle=0.05"), "x.out");
    assert!(silent.status.success(), "{silent:?}");
    // A word in front of it is a port's name, if a wrong one: nothing is written by it.
    refused(&run("x=./a=b", "z=new"), 2, "one of: y");
    assert!(!room.0.path().join("z=new").exists());
}

#[test]
fn a_graph_without_anything_to_compute_has_no_period() {
    let room = Room::new();
    let wire = "name = \"wire\"\n[[node]]\npath = \"x\"\nkind = \"input\"\nof = \"f32\"\n\
                [[node]]\npath = \"y\"\nkind = \"output\"\nfrom = [\"x\"]\n";
    let text = karoo_ok(["flow", "check", &room.with("wire.toml", wire), "--guess"]);
    assert!(text.contains("period   none"), "{text}");
    assert!(!text.contains("set by"), "{text}");
    let wire = room.at("wire.toml");
    let plan = ["flow", "plan", &wire, "--cpus", "0", "--calibration", "10"];
    let plan = karoo(plan.iter().chain(&["--costs", &room.at("costs")]));
    assert!(plan.status.success(), "{plan:?}");
    let told = String::from_utf8_lossy(&plan.stderr);
    assert!(!told.contains("no CPUs"), "{told}");
}

#[test]
fn a_graph_without_nodes_is_not_run() {
    let room = Room::new();
    let none = room.with("none.toml", "name = \"none\"\n");
    let why = "none.toml: the graph has no nodes: there is nothing to run";
    refused(&karoo(["flow", "run", &none]), 1, why);
    refused(&karoo(["flow", "bench", "graph", &none, "--guess"]), 1, why);
}

/// It would go on for ever, and what its partitions do would reach nobody.
#[test]
fn a_graph_without_ends_is_not_run() {
    let room = Room::new();
    let counter = "[[node]]\npath = \"c\"\nkind = \"counter\"\nperiod = 9\noutput = \"u8\"\n";
    let closed = room.with("closed.toml", &format!("name = \"closed\"\n{counter}"));
    let why = "closed.toml: the graph has neither inputs nor outputs";
    refused(&karoo(["flow", "run", &closed, "--limit", "9"]), 1, why);
    refused(
        &karoo(["flow", "bench", "graph", &closed, "--guess"]),
        1,
        why,
    );
    karoo_ok(["flow", "check", &closed, "--guess"]);
}

#[test]
fn a_plan_beyond_the_memory_of_a_run_is_none() {
    let room = Room::new();
    let (filter, made) = (graph("filter.toml"), room.at("made"));
    let plan = ["flow", "plan", &filter, "--guess", "--cpus", "0"];
    let sizes = ["--block", "4194304", "--capacity", "65536"];
    let output = ["--output", &made];
    let refusal = karoo(plan.iter().chain(&sizes).chain(&output));
    refused(&refusal, 1, "a run has at most 17179869184");
    assert!(!std::path::Path::new(&made).exists());
}

#[test]
fn cpus_that_the_process_may_not_use_are_refused() {
    let (filter, many) = (graph("filter.toml"), "1000-1010");
    // More than are measured on the spot.
    for command in ["plan", "run"] {
        let args = ["flow", command, &filter, "--cpus", many, "-i", "/dev/null"];
        let guess = ["--guess"];
        let (args, more) = match command {
            "plan" => (&args[..5], &guess[..]),
            _ => (&args[..], &[][..]),
        };
        let why = "--cpus 1000: this process may not use it, but ";
        refused(&karoo(args.iter().chain(more)), 2, why);
    }
    for (bench, cpus, why) in [
        (
            "chain",
            "99",
            "--cpus 99: this process may not use it, but ",
        ),
        (
            "queues",
            "0,99",
            "--cpus 99: this process may not use it, but ",
        ),
        ("queues", "0", "--cpus 0: must be two, "),
    ] {
        refused(&karoo(["flow", "bench", bench, "--cpus", cpus]), 2, why);
    }
}
