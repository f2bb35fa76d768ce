//! The modem's tutorial as a reader follows it: every command runs, and prints what is shown.

use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

/// A command, and what the page shows below it.
#[derive(Debug, Default, PartialEq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Steps of a page: lines that begin with `$` in blocks of `console`, and lines that follow them.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::<Step>::new();
    let blocks = page.split("```console\n").skip(1);
    for block in blocks {
        let (block, _) = block.split_once("```").expect("a block that ends");
        let mut continues = false;
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    command: command.to_owned(),
                    ..Step::default()
                }),
                (None, Some(step)) if continues => step.command += &format!("\n{line}"),
                (None, Some(step)) => step.shown.push(line.to_owned()),
                (None, None) => panic!("{line}: of no command"),
            }
            continues = line.ends_with('\\');
        }
    }
    steps
}

/// A line without its seconds, which are others each time.
fn timeless(line: &str) -> String {
    let words = line.split(' ').collect::<Vec<_>>();
    let mut kept: Vec<&str> = words.clone();
    for (at, pair) in words.windows(2).enumerate() {
        if pair[1] == "s" && pair[0].parse::<f64>().is_ok() {
            kept[at] = "…";
        }
    }
    kept.join(" ")
}

#[test]
fn every_command_of_the_tutorial_prints_what_is_shown() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/modem/tutorial.md")).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 20, "{}", steps.len());
    let folder = tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_karoo")).parent().unwrap();
    let path = format!(
        "{}:{}",
        program.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    for Step { command, shown } in steps {
        let output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &command])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env_remove("RUST_LOG")
            .output()
            .expect("bash");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Files that differ are said to, by cmp's exit code before a pipe. Others tell of trouble.
        let differ = command.starts_with("cmp ") && command.contains(" | ");
        let code = output.status.code();
        assert_eq!(code, Some(differ.into()), "{command}: {said}");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &said;
        let printed: Vec<String> = printed.lines().map(timeless).collect();
        for line in shown {
            assert!(
                printed.contains(&timeless(&line)),
                "{command}: {line:?} is not in {printed:#?}"
            );
        }
    }
}

#[test]
fn steps_have_their_lines() {
    let page = "Words\n```console\n$ one \\\n    more\nsaid in 0.02 s\n$ two\n```\n$ no command\n";
    let step = |command: &str, shown: &[&str]| Step {
        command: command.to_owned(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = [
        step("one \\\n    more", &["said in 0.02 s"]),
        step("two", &[]),
    ];
    assert_eq!(steps(page), expected);
    assert_eq!(
        timeless("said in 0.02 s, and 3 seconds"),
        "said in 0.02 s, and 3 seconds"
    );
    assert_eq!(timeless("said in 0.02 s"), "said in … s");
}
