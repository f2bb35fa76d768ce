//! What users of the command line rely on: each command's options, their defaults and choices, as
//! `tests/data/face/options.txt` lists them. A change there is one that users see.

use std::fs;

use crate::support::{data, karoo};

pub const COMMANDS: [&str; 39] = [
    "",
    "replay",
    "fgpu",
    "doctor",
    "shadow",
    "qualify",
    "dsim",
    "sink",
    "top",
    "plan",
    "flow",
    "flow check",
    "flow plan",
    "flow run",
    "flow bench graph",
    "flow bench queues",
    "flow bench chain",
    "modem",
    "modem tx",
    "modem rx",
    "modem channel",
    "modem link",
    "modem ber",
    "modem bench",
    "modem bench tx",
    "modem bench rx",
    "modem bench latency",
    "modem bench loop",
    "tune",
    "tune check",
    "tune apply",
    "tune revert",
    "bench engine",
    "bench ports",
    "bench cores",
    "bench kernels",
    "schema",
    "man",
    "completions",
];

/// Lines of a help text that name arguments, commands, defaults and choices.
fn names(help: &str) -> Vec<&str> {
    let named = |line: &&str| {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        match text.as_bytes() {
            [b'-', ..] => indent < 10 || line.starts_with("          - "),
            [b'<', ..] => indent == 2,
            [b'[', ..] => {
                indent == 2
                    || text.starts_with("[default: ")
                    || text.starts_with("[possible values: ")
            }
            // A command, whose description is behind two blanks.
            [b'a'..=b'z', ..] => indent == 2 && text.contains("  "),
            _ => false,
        }
    };
    let (options, _examples) = help.split_once("Examples:\n").unwrap_or((help, ""));
    let lines = options.lines().filter(named);
    lines
        .map(|line| match line.trim_start().strip_prefix("- ") {
            // A choice, without what it means.
            Some(choice) => {
                &line[..line.len() - choice.len() + choice.find(':').unwrap_or(choice.len())]
            }
            None if line.starts_with("  ") && line.as_bytes()[2].is_ascii_lowercase() => {
                &line[..2 + line[2..].find("  ").unwrap_or(line.len() - 2)]
            }
            None => line,
        })
        .collect()
}

#[test]
fn commands_have_the_options_that_are_listed() {
    let mut found = String::new();
    for command in COMMANDS {
        let mut args: Vec<_> = command.split_whitespace().collect();
        args.push("--help");
        let output = karoo(&args);
        assert_eq!(output.status.code(), Some(0), "{command}");
        let help = String::from_utf8(output.stdout).unwrap();
        found += &format!("karoo {command}\n");
        for line in names(&help) {
            found += &format!("{line}\n");
        }
    }
    let list = data("face/options.txt");
    if std::env::var_os("KAROO_TEST_ACCEPT").is_some() {
        fs::write(&list, &found).unwrap();
    }
    let listed = fs::read_to_string(list).unwrap();
    assert!(
        found == listed,
        "if this is meant, run the test again with KAROO_TEST_ACCEPT=1:\n{}",
        difference(&listed, &found)
    );
}

/// Lines that one text has and the other has not.
fn difference(listed: &str, found: &str) -> String {
    let gone = listed
        .lines()
        .filter(|line| !found.lines().any(|l| l == *line));
    let new = found
        .lines()
        .filter(|line| !listed.lines().any(|l| l == *line));
    let gone = gone.map(|line| format!("- {line}\n"));
    gone.chain(new.map(|line| format!("+ {line}\n"))).collect()
}
