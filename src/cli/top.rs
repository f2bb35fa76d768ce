//! `karoo top`: many engines in a terminal, worst first.

use std::cmp::Reverse;
use std::io::{ErrorKind, IsTerminal};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use live::{Document, Figure, State, VERSION};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Color, Style, Stylize};
use ratatui::widgets::{Cell, Row, Table};

use super::{Failure, examples};
use crate::config::ConfigError;

/// How long an engine has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks for keys.
const KEYS: Duration = Duration::from_millis(50);
/// Bytes of a document, at most.
const DOCUMENT: u64 = 16 << 20;
/// Characters of a cell, at most.
const CELL: usize = 1000;
/// Seconds for which something may have been so: a hundred years.
const MOST_SECONDS: f64 = 100.0 * 365.25 * 86400.0;
/// Lines that a verdict may take on a terminal.
const LINES: usize = 3;
/// Figures that have a column.
const FIGURES: [&str; 5] = ["heaps in", "lost", "heaps out", "not sent", "age of input"];

/// How the names of figures begin that have the latency of an output.
const LATENCY: &str = "latency p99.9 of ";

/// Show how engines are, worst first
///
/// Reads the same as the page at http://HOST:PORT/. Keys: q ends, as do SIGINT, SIGTERM and SIGHUP.
/// Exit codes: 0; with --once 1 if an engine does not answer or is not well; 2 the command line is
/// wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::TOP)]
pub struct TopArgs {
    /// Engines and sinks: host, and --prometheus-port or --http of each
    #[arg(value_name = "HOST:PORT", required = true)]
    engines: Vec<Address>,
    /// Print the table once, for scripts, and end
    #[arg(long)]
    once: bool,
}

/// Where an engine's page is, as it is written in front of `/live.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address(String);

impl FromStr for Address {
    type Err = ConfigError;

    /// Takes the address of the page as well, as it is copied from a browser.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |rule| Err(ConfigError::new("HOST:PORT", text, rule, "try m000h:9100"));
        let bare = text.strip_prefix("http://").unwrap_or(text);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        let Some((host, port)) = bare.rsplit_once(':') else {
            return wrong("must end in the engine's --prometheus-port");
        };
        if !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return wrong("must end in a port from 1 to 65535");
        }
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let known = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
                !host.is_empty() && host.chars().all(known)
            }
        };
        match is_host {
            true => Ok(Self(bare.to_owned())),
            false => {
                wrong("must begin with a name, an IPv4 address, or an IPv6 address in brackets")
            }
        }
    }
}

/// What is known of one engine.
#[derive(Debug)]
struct Seen {
    address: String,
    document: Result<Document, String>,
}

impl Seen {
    /// The worst first: those that do not answer, then by their verdicts, then by what they lose.
    fn rank(&self) -> (bool, Reverse<Option<State>>, Reverse<u64>) {
        let verdict = self.document.as_ref().ok().and_then(Document::verdict);
        let state = verdict.map(|verdict| verdict.state);
        let lost = match self.figure("heaps in") {
            // Without input all is lost.
            Some(0.0) => 100.0,
            _ => self.figure("lost").unwrap_or(0.0),
        };
        let millionths = (1e4 * lost) as u64;
        (self.document.is_ok(), Reverse(state), Reverse(millionths))
    }

    fn figure(&self, name: &str) -> Option<f64> {
        let document = self.document.as_ref().ok()?;
        let found: Option<&Figure> = document.figures().find(|figure| figure.name == name);
        found?.value
    }

    /// The longest latency that an output has, p99.9.
    fn latency(&self) -> Option<f64> {
        let figures = self.document.as_ref().ok()?.figures();
        let latencies = figures.filter(|figure| figure.name.starts_with(LATENCY));
        latencies.filter_map(|figure| figure.value).reduce(f64::max)
    }

    fn state(&self) -> &'static str {
        match self.document.as_ref().map(Document::verdict) {
            Err(_) => "no answer",
            Ok(None) => "unknown",
            Ok(Some(verdict)) => match verdict.state {
                State::Well => "well",
                State::Warning => "warning",
                State::Bad => "bad",
            },
        }
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.address.clone(), self.state().to_owned()];
        let figure = |value: Option<f64>| match value.map(|value| (value, value.abs())) {
            None => "-".to_owned(),
            Some((value, size)) if size >= 1000.0 || size == 0.0 => format!("{value:.0}"),
            Some((value, _)) => format!("{value:.2}"),
        };
        cells.extend(FIGURES.map(|name| figure(self.figure(name))));
        cells.push(figure(self.latency()));
        let verdict = match &self.document {
            Err(why) => why.clone(),
            Ok(document) => document.verdict().map_or(String::new(), |verdict| {
                let since = verdict.since.map(|since| (document.time - since).max(0.0));
                // A time that no engine has run for is no time.
                let since = since.filter(|&since| since < MOST_SECONDS);
                let since = since.map_or(String::new(), |since| format!(", for {since:.0} s"));
                let mends = match &verdict.mends[..] {
                    "" => String::new(),
                    mends => format!(": {mends}"),
                };
                format!("{}{since}{mends}", verdict.text)
            }),
        };
        cells.push(verdict);
        cells.iter().map(|cell| harmless(cell)).collect()
    }
}

/// A cell as it is printed: what another host says must not steer this terminal, nor fill it.
fn harmless(cell: &str) -> String {
    let mut characters = cell.chars();
    let blank = |c: char| if c.is_control() { ' ' } else { c };
    let mut kept: String = characters.by_ref().take(CELL).map(blank).collect();
    if characters.next().is_some() {
        kept.push('…');
    }
    kept
}

const TITLES: [&str; 9] = [
    "engine",
    "state",
    "heaps/s in",
    "% lost",
    "heaps/s out",
    "% not sent",
    "age s",
    "p99.9 s",
    "verdict",
];

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    if args.once || !std::io::stdout().is_terminal() {
        let seen = ask(&args.engines);
        print!("{}", text(&seen));
        let unwell = seen.iter().filter(|seen| seen.state() != "well").count();
        return match unwell {
            0 => Ok(()),
            1 => Err(Failure::data(format!("1 of {} is not well", seen.len()))),
            n => Err(Failure::data(format!("{n} of {} are not well", seen.len()))),
        };
    }
    // The terminal is put right before a signal ends the command.
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    ctrlc::set_handler(move || tell.store(true, Ordering::Relaxed)).map_err(Failure::data)?;
    let mut terminal = ratatui::try_init().map_err(Failure::data)?;
    let outcome = show(&mut terminal, &args.engines, &told);
    ratatui::restore();
    outcome.map_err(Failure::data)
}

/// Asks all engines at the same time.
fn ask(engines: &[Address]) -> Vec<Seen> {
    let mut seen: Vec<Seen> = thread::scope(|scope| {
        let asked = engines.iter().map(|address| {
            let asked = scope.spawn(|| fetch(&address.0));
            (address, asked)
        });
        let asked: Vec<_> = asked.collect();
        let seen = asked.into_iter().map(|(address, asked)| Seen {
            address: address.0.clone(),
            document: asked.join().unwrap_or_else(|_| Err("panicked".to_owned())),
        });
        seen.collect()
    });
    seen.sort_by_key(Seen::rank);
    seen
}

fn fetch(address: &str) -> Result<Document, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .proxy(None)
        .build()
        .into();
    let url = format!("http://{address}/live.json");
    let mut answer = agent.get(url).call().map_err(|error| why(&error))?;
    let text = answer
        .body_mut()
        .with_config()
        .limit(DOCUMENT)
        .read_to_vec();
    let text = text.map_err(|error| why(&error))?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| format!("no document: {error}"))?;
    match document.version {
        VERSION => Ok(document),
        other => Err(format!("its documents have version {other}, not {VERSION}")),
    }
}

/// Why there is no document, as an operator wants it.
fn why(error: &ureq::Error) -> String {
    use ureq::Error;
    let port = "give the port of its --prometheus-port";
    match error {
        Error::StatusCode(404) => {
            format!("has no live page (HTTP status 404), as karoo dsim has none: {port}")
        }
        Error::Protocol(_) | Error::Http(_) => format!("does not speak HTTP: {port}"),
        Error::Timeout(_) => format!("no answer within {} s", PATIENCE.as_secs_f64()),
        Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => "nothing listens there: is it running?".to_owned(),
            _ => error.to_string(),
        },
        _ => error.to_string(),
    }
}

/// The table as text, columns by blanks, the verdict last.
fn text(seen: &[Seen]) -> String {
    let titles = TITLES.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(titles)
        .chain(seen.iter().map(Seen::cells))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..TITLES.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let line: String = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}  "))
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Shows the table until somebody presses q or the command is told to end. Engines that do not
/// answer keep nobody waiting: they are asked on a thread of its own.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    engines: &[Address],
    told: &AtomicBool,
) -> std::io::Result<()> {
    let (found, looks) = mpsc::channel();
    let engines = engines.to_vec();
    thread::spawn(move || {
        loop {
            let begun = Instant::now();
            if found.send(ask(&engines)).is_err() {
                return;
            }
            thread::sleep(LOOK.saturating_sub(begun.elapsed()));
        }
    });
    let mut seen = Vec::new();
    while !told.load(Ordering::Relaxed) {
        terminal.draw(|frame| {
            let area = frame.area();
            frame.render_widget(table(&seen, area.width.into()), area);
        })?;
        match looks.recv_timeout(KEYS) {
            Ok(look) => seen = look,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(std::io::Error::other("nobody asks the engines any more"));
            }
        }
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && ends(key.code, key.modifiers)
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether a key ends the table.
fn ends(code: KeyCode, modifiers: KeyModifiers) -> bool {
    match code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// The columns beside the verdict for which a terminal of this width has room, by their places in
/// [`TITLES`], with their widths.
fn columns(seen: &[Seen], width: usize) -> Vec<(usize, usize)> {
    let longest = seen.iter().map(|seen| seen.address.chars().count()).max();
    let address = (0, longest.unwrap_or(0).clamp(10, 22));
    match width {
        0..60 => vec![address, (1, 9)],
        60..80 => vec![address, (1, 9), (3, 7)],
        80..120 => vec![address, (1, 9), (3, 7), (5, 11)],
        120..150 => vec![address, (1, 9), (2, 11), (3, 7), (4, 12), (5, 11), (6, 7)],
        _ => vec![
            address,
            (1, 9),
            (2, 11),
            (3, 7),
            (4, 12),
            (5, 11),
            (6, 7),
            (7, 8),
        ],
    }
}

/// Lines of at most `width` characters, broken at blanks, no more than [`LINES`].
fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let full = lines.len() == LINES;
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            // There is more.
            Some(last) if full => {
                let kept = last
                    .chars()
                    .take(width.saturating_sub(2))
                    .collect::<String>();
                *last = kept + " …";
                break;
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn table(seen: &[Seen], width: usize) -> Table<'static> {
    let columns = columns(seen, width);
    let taken: usize = columns.iter().map(|(_, width)| width + 1).sum();
    let room = width.saturating_sub(taken).max(1);
    let verdict = TITLES.len() - 1;
    let row = |seen: &Seen| {
        let colour = match seen.state() {
            "well" => Color::Green,
            "warning" => Color::Yellow,
            _ => Color::Red,
        };
        let texts = seen.cells();
        let lines = lines(&texts[verdict], room);
        let height = u16::try_from(lines.len()).unwrap_or(1).max(1);
        let cells = columns.iter().map(|&(column, _)| {
            let cell = Cell::from(texts[column].clone());
            match column {
                1 => cell.style(Style::new().fg(colour)),
                _ => cell,
            }
        });
        let cells = cells.chain([Cell::from(lines.join("\n"))]);
        Row::new(cells.collect::<Vec<_>>()).height(height)
    };
    let titles = columns.iter().map(|&(column, _)| TITLES[column]);
    let titles: Vec<_> = titles.chain([TITLES[verdict]]).collect();
    let widths = columns.iter().map(|&(_, width)| width as u16);
    let widths = widths.map(Constraint::Length).chain([Constraint::Fill(1)]);
    Table::new(seen.iter().map(row).collect::<Vec<_>>(), widths).header(Row::new(titles).bold())
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
