//! What help pages have in common: each required option says that it is.

use clap::{Arg, Command};

/// What stands behind the help of an option that must be given.
const REQUIRED: &str = "[required]";

/// The command and those below it, with all options marked that must be given.
pub fn mark_required(command: Command) -> Command {
    command.mut_args(mark).mut_subcommands(mark_required)
}

fn mark(arg: Arg) -> Arg {
    match arg.is_required_set() {
        true => {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            arg.help(format!("{help} {REQUIRED}"))
        }
        false => arg,
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::super::{Cli, Failure, command, fgpu};
    use super::*;

    /// Columns of the terminal that help is written for.
    const COLUMNS: usize = 100;
    /// Commands with more options have headings.
    const FEW: usize = 12;

    /// Commands that run, each with the words that call it.
    fn leaves() -> Vec<(String, Command)> {
        fn walk(path: &str, command: &Command, found: &mut Vec<(String, Command)>) {
            let mut below = command
                .get_subcommands()
                .filter(|c| c.get_name() != "help")
                .peekable();
            if below.peek().is_none() {
                found.push((path.to_owned(), command.clone()));
            }
            for command in below {
                walk(&format!("{path} {}", command.get_name()), command, found);
            }
        }
        let mut root = command();
        root.build();
        let mut found = Vec::new();
        walk("karoo", &root, &mut found);
        found
    }

    /// Command lines of a help text's examples, as a shell would split them.
    fn examples(help: &str) -> Vec<Vec<String>> {
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_default();
        let examples = examples.split("\n\n").next().unwrap_or_default();
        let mut lines = Vec::<String>::new();
        for line in examples.lines() {
            match lines.last_mut() {
                _ if line.starts_with("    karoo ") || line.starts_with("    sudo karoo ") => {
                    lines.push(line.trim_start().trim_start_matches("sudo ").to_owned());
                }
                // What is said of the next example has two blanks.
                Some(last) if line.starts_with("      ") => {
                    let whole = last.strip_suffix('\\').unwrap_or(last);
                    *last = format!("{whole}\n{}", line.trim_start());
                }
                _ => {}
            }
        }
        lines.iter().map(|line| words(line)).collect()
    }

    /// The words of a line up to an operator of the shell.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" || ").next().unwrap_or_default();
        let line = line.split(" > ").next().unwrap_or_default();
        let mut words = vec![String::new()];
        for (number, part) in line.split('\'').enumerate() {
            let quoted = number % 2 == 1;
            for (number, piece) in part
                .split(|c: char| c.is_whitespace() && !quoted)
                .enumerate()
            {
                if number > 0 {
                    words.push(String::new());
                }
                if let Some(word) = words.last_mut() {
                    word.push_str(piece);
                }
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn every_command_has_two_examples_that_it_takes() {
        for (path, mut leaf) in leaves() {
            let examples = examples(&leaf.render_long_help().to_string());
            assert!(examples.len() >= 2, "{path}: {examples:?}");
            for example in examples {
                let called = example.join(" ");
                assert!(called.starts_with(&path), "{path}: {called}");
                let matches = command().try_get_matches_from(&example);
                let matches = matches.unwrap_or_else(|error| panic!("{called}: {error}"));
                Cli::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{called}: {error}"));
            }
        }
    }

    #[test]
    fn the_first_example_of_fgpu_is_a_whole_engine() {
        let mut command = command();
        let fgpu = command.find_subcommand_mut("fgpu").expect("fgpu");
        let example = examples(&fgpu.render_help().to_string()).swap_remove(0);
        let matches = command.try_get_matches_from(example).expect("an example");
        let cli = Cli::from_arg_matches(&matches).expect("options");
        let super::super::Command::Fgpu(args) = cli.command else {
            panic!("{:?}", cli.command);
        };
        fgpu::resolved(&args)
            .map_err(|error: Failure| error.to_string())
            .expect("an engine");
    }

    #[test]
    fn options_of_large_commands_have_headings() {
        for (path, leaf) in leaves() {
            let own = leaf.get_arguments().filter(|arg| {
                !arg.is_positional() && !matches!(arg.get_id().as_str(), "help" | "version")
            });
            let own: Vec<_> = own.collect();
            if own.len() > FEW {
                for arg in own {
                    let heading = arg.get_help_heading();
                    assert!(heading.is_some(), "{path} {}: no heading", arg.get_id());
                }
            }
        }
    }

    #[test]
    fn help_fits_its_terminal_and_says_what_is_required() {
        for (path, leaf) in leaves() {
            let mut leaf = leaf.term_width(COLUMNS);
            for help in [leaf.render_help(), leaf.render_long_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= COLUMNS, "{path}: {line}");
                }
            }
            for arg in leaf.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{path} {}: no help", arg.get_id());
                assert!(
                    !arg.is_required_set() || help.contains("[required"),
                    "{path} {}: {help}",
                    arg.get_id()
                );
            }
        }
        let fgpu = command().find_subcommand("fgpu").expect("fgpu").clone();
        for id in [
            "src",
            "recv_interface",
            "send_interface",
            "adc_sample_rate",
            "sync_time",
            "wideband",
        ] {
            let arg = fgpu
                .get_arguments()
                .find(|arg| arg.get_id() == id)
                .expect(id);
            assert!(
                arg.get_help().expect(id).to_string().contains("[required"),
                "{id}"
            );
        }
    }

    /// Lines that are to be copied stay whole on a usual terminal.
    #[test]
    fn examples_fit_eighty_columns() {
        for (path, leaf) in leaves() {
            let mut leaf = leaf.term_width(80);
            let help = leaf.render_long_help().to_string();
            let (_, examples) = help.split_once("Examples:\n").expect("examples");
            let given = leaf
                .get_after_help()
                .map(ToString::to_string)
                .expect("after_help");
            assert!(given.contains(examples.trim_end()), "{path}: {examples}");
        }
    }
}
