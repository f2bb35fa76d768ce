//! The tutorials as a reader follows them: every command runs, and prints what is shown.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::tempdir;

use crate::support::left_out;

/// A command, and what the page shows below it.
#[derive(Debug, Default, PartialEq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// What a page has its readers do.
#[derive(Debug, Default, PartialEq)]
struct Page {
    /// Lines that begin with `$` in blocks of `console`, and lines that follow them.
    steps: Vec<Step>,
    /// Names and contents of blocks of `python`, whose first line begins with `# NAME:`.
    files: Vec<(String, String)>,
}

/// The beginning of a command that is ended after some minutes, with all that it has begun.
fn limited(within: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").args(within);
    command
}

/// Contents of a page's blocks in a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let block = |rest: &'a str| rest.split_once("```").expect("a block that ends").0;
    page.split(&fence[..]).skip(1).map(block).collect()
}

impl Page {
    fn new(page: &str) -> Self {
        let mut steps = Vec::<Step>::new();
        for block in blocks(page, "console") {
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
        let file = |block: &str| {
            let name = block
                .strip_prefix("# ")
                .and_then(|rest| rest.split_once(':'));
            (name.expect("a name").0.to_owned(), block.to_owned())
        };
        let files = blocks(page, "python").into_iter().map(file).collect();
        Self { steps, files }
    }

    /// A page of the documents.
    fn of_documents(path: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = Self::new(&std::fs::read_to_string(root.join(path)).unwrap());
        assert!(page.steps.len() > 20, "{}", page.steps.len());
        page
    }

    /// All steps as a script of one shell, so that variables and jobs of a step are there in the
    /// next. What a step prints is left in `NUMBER.printed`, its exit code in `NUMBER.code`.
    fn script(&self) -> String {
        let mut script = String::from("set -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n");
        for (number, Step { command, .. }) in self.steps.iter().enumerate() {
            script += &format!("{{ {command}\n}} >{number}.printed 2>&1\n");
            script += &format!("echo $? >{number}.code\n");
        }
        script
    }

    /// Does all of it in an empty folder; `within` are words in front of the shell.
    fn follow(&self, within: &[&str]) {
        let folder = tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (name, content) in &self.files {
            std::fs::write(file(name), content).unwrap();
        }
        std::fs::write(file("script"), self.script()).unwrap();
        // The program, and a Python that has numpy.
        let python = std::env::var_os("KAROO_PYTHON").map(PathBuf::from);
        let programs = [Some(env!("CARGO_BIN_EXE_karoo").into()), python];
        let folders = programs
            .iter()
            .flatten()
            .filter_map(|program| program.parent().map(Path::to_owned));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
        limited(within)
            .args(["bash", "script"])
            .current_dir(folder.path())
            .env("PATH", path.unwrap())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .status()
            .expect("timeout");
        for (number, Step { command, shown }) in self.steps.iter().enumerate() {
            let left = |what: &str| {
                let left = std::fs::read_to_string(file(&format!("{number}.{what}")));
                left.unwrap_or_else(|_| "not reached".into())
            };
            let printed = left("printed");
            // Files that differ are said to, by cmp's exit code before a pipe. Others tell of
            // trouble.
            let differ = command.starts_with("cmp ") && command.contains(" | ");
            let code = if differ { "1\n" } else { "0\n" };
            assert_eq!(left("code"), code, "{command}: {printed}");
            let printed: Vec<String> = printed.lines().map(timeless).collect();
            for line in shown {
                assert!(
                    printed.contains(&timeless(line)),
                    "{command}: {line:?} is not in {printed:#?}"
                );
            }
        }
    }
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
fn every_command_of_the_modem_prints_what_is_shown() {
    Page::of_documents("docs/modem/tutorial.md").follow(&[]);
}

/// The live part has a network of its own, because others may use the page's ports and groups.
#[test]
fn every_command_of_the_f_engine_prints_what_is_shown() {
    let mut page = Page::of_documents("docs/tutorial.md");
    let inside = ["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""];
    let by_root = [&["unshare", "--net"][..], &inside].concat();
    let by_others = [
        &["unshare", "--net", "--user", "--map-root-user"][..],
        &inside,
    ]
    .concat();
    let can = |within: &&Vec<&str>| {
        let tried = limited(within).arg("true").output();
        tried.expect("timeout").status.success()
    };
    if let Some(within) = [by_root, by_others].iter().find(can) {
        page.follow(within);
    } else {
        left_out("no network namespaces");
        let live = page
            .steps
            .iter()
            .position(|step| step.command.contains("udp:lo"));
        page.steps.truncate(live.expect("a live part"));
        page.follow(&[]);
    }
}

#[test]
fn steps_have_their_lines() {
    let page = "Words\n```console\n$ one \\\n    more\nsaid in 0.02 s\n$ two\n```\n$ no command\n\
                ```python\n# look.py: what it does\nprint(1)\n```\n";
    let step = |command: &str, shown: &[&str]| Step {
        command: command.to_owned(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = Page {
        steps: vec![
            step("one \\\n    more", &["said in 0.02 s"]),
            step("two", &[]),
        ],
        files: vec![(
            "look.py".to_owned(),
            "# look.py: what it does\nprint(1)\n".to_owned(),
        )],
    };
    assert_eq!(Page::new(page), expected);
    assert_eq!(
        timeless("said in 0.02 s, and 3 seconds"),
        "said in 0.02 s, and 3 seconds"
    );
    assert_eq!(timeless("said in 0.02 s"), "said in … s");
}
