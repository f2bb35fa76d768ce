//! Pages of the manual and completions, which are made of the command line.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::face::COMMANDS;
use crate::support::karoo_ok;

/// Long options of a help page.
fn options(help: &str) -> BTreeSet<String> {
    let (options, _examples) = help.split_once("Examples:\n").unwrap_or((help, ""));
    let words = options.lines().filter_map(|line| {
        let line = line.trim_start();
        let at = line.starts_with('-').then(|| line.find("--"))??;
        line[at..].split([' ', '[', '=']).next()
    });
    words.map(str::to_owned).collect()
}

#[test]
fn each_command_has_a_page_with_all_of_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    karoo_ok(["man", pages.to_str().unwrap()]);
    for command in COMMANDS.iter().chain(&["bench"]) {
        let words: Vec<_> = command.split_whitespace().collect();
        let name = ["karoo"].iter().chain(&words).copied();
        let name = name.collect::<Vec<_>>().join("-");
        let path = pages.join(format!("{name}.1"));
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(
            page.contains(&format!(".TH {}", name.to_uppercase())),
            "{name}"
        );
        let plain = page.replace('\\', "");
        let help = karoo_ok(words.iter().chain(&["--help"]));
        let options = options(&help);
        assert!(!options.is_empty(), "{name}");
        for option in options {
            assert!(plain.contains(&option), "{name}: no {option}");
        }
        for section in ["NAME", "SYNOPSIS", "SEE ALSO"] {
            assert!(page.contains(section), "{name}: no {section}");
        }
        assert!(
            page.contains(".SH EXAMPLES") || page.contains(".SH SUBCOMMANDS"),
            "{name}"
        );
    }
    let whole = fs::read_to_string(pages.join("karoo.1")).unwrap();
    for word in [
        "EXIT STATUS",
        "ENVIRONMENT",
        "KATSDP_LOG_LEVEL",
        "host.conf",
    ] {
        assert!(whole.contains(word), "{word}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let output = crate::support::karoo(["man", "/proc/nowhere/man1"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("/proc/nowhere/man1"), "{stderr}");
}

#[test]
fn shells_complete_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = karoo_ok(["completions", shell]);
        assert!(script.contains("adc-sample-rate"), "{shell}");
        fs::write(folder.path().join(shell), script).unwrap();
    }
    // Bash is where these tests run; it completes as it would at a prompt.
    let complete = |words: &str, at: usize| {
        let mut last = words.rsplit(' ');
        let (word, before) = (last.next().unwrap(), last.next().unwrap());
        let line = format!(
            "source ./bash; COMP_WORDS=({words}); COMP_CWORD={at}; _karoo karoo '{word}' '{before}'; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash")
            .args(["-c", &line])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("karoo rep", 1), "replay");
    assert_eq!(complete("karoo replay --narrow", 2), "--narrowband");
    assert_eq!(complete("karoo fgpu --log-format js", 3), "json");
    assert_eq!(complete("karoo tune ch", 2), "check");
}
