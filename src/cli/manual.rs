//! `karoo man` and `karoo completions`: pages of the manual and completions of shells, made of the
//! command line itself.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use ground::files::write_whole;

use super::{Failure, examples};
use crate::config::ConfigError;

/// Write pages of the manual, one for each command
#[derive(Debug, Args)]
#[command(after_help = examples::MAN)]
pub struct ManArgs {
    /// Folder for karoo.1, karoo-replay.1 and the others; it is made if it is missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = examples::COMPLETIONS)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Writes the pages of `command` and of all below it.
pub fn write_pages(args: &ManArgs, mut command: Command) -> Result<(), Failure> {
    let folder = &args.folder;
    let failed = |error: io::Error| {
        let rule = format!("cannot be written: {error}");
        let way_out = "name a folder that can be written to";
        Failure::usage(ConfigError::new("FOLDER", folder.display(), rule, way_out))
    };
    command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(folder).map_err(failed)?;
    write_page(&command, None, folder).map_err(failed)
}

/// The page of one command, whose parent has the page `above`, and those below it.
fn write_page(command: &Command, above: Option<&str>, folder: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or("karoo").to_owned();
    let text = page(command, above)?;
    write_whole(folder.join(format!("{name}.1")), text)?;
    let below = command.get_subcommands().filter(|c| !c.is_hide_set());
    below
        .into_iter()
        .try_for_each(|command| write_page(command, Some(&name), folder))
}

/// Sections in the order of man-pages(7).
fn page(command: &Command, above: Option<&str>) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or("karoo");
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(format!("Karoo {}", ground::karoo_version()))
        .manual("Karoo");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    if above.is_none() {
        service(&mut rest);
        exit_status(&mut rest);
        environment(&mut rest);
        files(&mut rest);
    }
    let help = command.get_after_long_help().or(command.get_after_help());
    as_it_is(
        &mut rest,
        &help.map(ToString::to_string).unwrap_or_default(),
    );
    rest.control("SH", ["SEE ALSO"]);
    if let Some(above) = above {
        rest.text([bold(above), roman("(1)")]);
        rest.control("PP", []);
    }
    rest.text([roman(
        "/usr/share/doc/karoo/README.md, /usr/share/doc/karoo/docs",
    )]);
    rest.to_writer(&mut text)?;
    Ok(text)
}

/// What stands at the end of a help page, line for line: each heading is a section.
fn as_it_is(roff: &mut Roff, help: &str) {
    let mut open = false;
    for line in help.lines() {
        // A heading stands at the margin, and ends with a colon.
        let heading = line.strip_suffix(':').filter(|of| !of.starts_with(' '));
        if heading.is_some() || !open {
            if open {
                roff.control("fi", []);
            }
            let title = heading.unwrap_or("NOTES");
            // Options are written as they are.
            let title = match title.contains("--") {
                true => title.to_owned(),
                false => title.to_uppercase(),
            };
            roff.control("SH", [&title[..]]);
            roff.control("nf", []);
            open = true;
        }
        if heading.is_none() {
            roff.text([roman(line)]);
        }
    }
    if open {
        roff.control("fi", []);
    }
}

/// A paragraph whose term hangs in front of it.
fn term(roff: &mut Roff, name: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(name)]);
    roff.text([roman(text)]);
}

fn service(roff: &mut Roff) {
    roff.control("SH", ["AS A SERVICE"]);
    term(
        roff,
        "/etc/karoo/NAME.toml",
        "has the options of engine NAME; systemctl enable --now karoo@NAME starts it now and at every boot.",
    );
    term(
        roff,
        "karoo-host.service",
        "prepares the host before that, as /etc/karoo/host.conf says.",
    );
    term(
        roff,
        "karoo.target",
        "is all engines of the host: systemctl restart karoo.target.",
    );
    roff.control("PP", []);
    roff.text([roman(
        "A link called fgpu or dsim to the program is that command.",
    )]);
}

fn exit_status(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in [
        ("0", "success, or ended as told"),
        ("1", "the data were unusable or the run failed"),
        ("2", "the command line, a file or an interface was wrong"),
        (
            "3",
            "a device, such as the GPU, failed in the middle of a run",
        ),
        ("129, 130, 143", "ended by a second SIGHUP, SIGINT, SIGTERM"),
    ] {
        term(roff, code, meaning);
    }
}

fn environment(roff: &mut Roff) {
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in [
        (
            "RUST_LOG",
            "what is logged, such as debug or info,dpdk=debug",
        ),
        (
            "KATSDP_LOG_LEVEL",
            "the same in the words of katsdpservices, where RUST_LOG is not set",
        ),
        ("KAROO_LOG_FORMAT", "text or json, as --log-format"),
        ("NO_COLOR", "nothing is coloured if it is set and not empty"),
    ] {
        term(roff, name, meaning);
    }
}

fn files(roff: &mut Roff) {
    roff.control("SH", ["FILES"]);
    for (path, meaning) in [
        (
            "/etc/karoo/NAME.toml",
            "options of engine NAME; an example is in /usr/share/doc/karoo/examples",
        ),
        (
            "/etc/karoo/NAME.env",
            "KAROO_OPTIONS: further options of it",
        ),
        (
            "/etc/karoo/host.conf",
            "devices, huge pages and tuning of the host",
        ),
        (
            "/usr/share/karoo",
            "presets of DPDK ports and profiles for tuning",
        ),
        ("/var/cache/karoo", "kernels compiled for this host's GPU"),
    ] {
        term(roff, path, meaning);
    }
}

/// Prints completions of `command`.
pub fn print_completions(args: &CompletionsArgs, mut command: Command) {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "karoo", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
}
