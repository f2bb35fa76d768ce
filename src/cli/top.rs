//! `karoo top`: many engines in a terminal, worst first.

use std::cmp::Reverse;
use std::io::IsTerminal;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use live::{Document, Figure, State, VERSION};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Constraint;
use ratatui::style::{Color, Style, Stylize};
use ratatui::widgets::{Cell, Row, Table};

use super::{Failure, examples};

/// How long an engine has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of a document, at most.
const DOCUMENT: u64 = 16 << 20;
/// Figures that have a column.
const FIGURES: [&str; 4] = ["heaps in", "lost", "heaps out", "age of input"];

/// Show how engines are, worst first
///
/// Reads the same as the page at http://HOST:PORT/. Keys: q ends. Exit codes: 0; with --once 1 if
/// an engine does not answer or is not well; 2 the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = examples::TOP)]
pub struct TopArgs {
    /// Engines: host and --prometheus-port of each
    #[arg(value_name = "HOST:PORT", required = true)]
    engines: Vec<String>,
    /// Print the table once, for scripts, and end
    #[arg(long)]
    once: bool,
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
        let figure = |name: &str| {
            let value = self.figure(name)?;
            Some(match value.abs() {
                size if size >= 1000.0 || size == 0.0 => format!("{value:.0}"),
                _ => format!("{value:.2}"),
            })
        };
        cells.extend(FIGURES.map(|name| figure(name).unwrap_or_else(|| "-".to_owned())));
        cells.push(match &self.document {
            Err(why) => why.clone(),
            Ok(document) => document.verdict().map_or(String::new(), |verdict| {
                let since = verdict.since.map(|since| (document.time - since).max(0.0));
                let since = since.map_or(String::new(), |since| format!(", for {since:.0} s"));
                let mends = match &verdict.mends[..] {
                    "" => String::new(),
                    mends => format!(": {mends}"),
                };
                format!("{}{since}{mends}", verdict.text)
            }),
        });
        cells
    }
}

const TITLES: [&str; 7] = [
    "engine",
    "state",
    "heaps/s in",
    "% lost",
    "heaps/s out",
    "age s",
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
            n => Err(Failure::data(format!("{n} of {} are not well", seen.len()))),
        };
    }
    let mut terminal = ratatui::try_init().map_err(Failure::data)?;
    let outcome = show(&mut terminal, &args.engines);
    ratatui::restore();
    outcome.map_err(Failure::data)
}

/// Asks all engines at the same time.
fn ask(engines: &[String]) -> Vec<Seen> {
    let mut seen: Vec<Seen> = thread::scope(|scope| {
        let asked = engines.iter().map(|address| {
            let asked = scope.spawn(|| fetch(address));
            (address, asked)
        });
        let asked: Vec<_> = asked.collect();
        let seen = asked.into_iter().map(|(address, asked)| Seen {
            address: address.clone(),
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
    let mut answer = agent.get(url).call().map_err(|error| error.to_string())?;
    let text = answer
        .body_mut()
        .with_config()
        .limit(DOCUMENT)
        .read_to_vec();
    let text = text.map_err(|error| error.to_string())?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| format!("no document: {error}"))?;
    match document.version {
        VERSION => Ok(document),
        other => Err(format!("its documents have version {other}, not {VERSION}")),
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

/// Shows the table until somebody presses q.
fn show(terminal: &mut ratatui::DefaultTerminal, engines: &[String]) -> std::io::Result<()> {
    loop {
        let begun = Instant::now();
        let seen = ask(engines);
        terminal.draw(|frame| frame.render_widget(table(&seen), frame.area()))?;
        while begun.elapsed() < LOOK {
            if !event::poll(LOOK.saturating_sub(begun.elapsed()))? {
                continue;
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if interrupt => return Ok(()),
                    _ => {}
                }
            }
        }
    }
}

fn table(seen: &[Seen]) -> Table<'static> {
    let row = |seen: &Seen| {
        let colour = match seen.state() {
            "well" => Color::Green,
            "warning" => Color::Yellow,
            _ => Color::Red,
        };
        let cells = seen.cells().into_iter().enumerate();
        let cells = cells.map(|(column, cell)| match column {
            1 => Cell::from(cell).style(Style::new().fg(colour)),
            _ => Cell::from(cell),
        });
        Row::new(cells.collect::<Vec<_>>())
    };
    let widths = [22, 9, 11, 7, 12, 7].map(Constraint::Length);
    let widths = widths.into_iter().chain([Constraint::Fill(1)]);
    Table::new(seen.iter().map(row).collect::<Vec<_>>(), widths).header(Row::new(TITLES).bold())
}

#[cfg(test)]
mod tests {
    use live::{Body, Panel, Verdict};

    use super::*;

    fn seen(address: &str, state: State, text: &str, lost: f64) -> Seen {
        let verdict = Verdict {
            text: text.to_owned(),
            since: Some(0.0),
            ..Verdict::new(state)
        };
        let figures = vec![
            Figure::new("heaps in", 12345.0, "/s"),
            Figure::new("lost", lost, "%"),
        ];
        let panels = vec![
            Panel::new("verdict", "", Body::Verdict(verdict)),
            Panel::new("figures", "", Body::Figures { figures }),
        ];
        Seen {
            address: address.to_owned(),
            document: Ok(Document::new(address, panels)),
        }
    }

    #[test]
    fn the_worst_engine_comes_first() {
        let mut all = vec![
            seen("a:1", State::Well, "all well", 0.0),
            seen("e:1", State::Bad, "missing-heaps", 0.25),
            seen("b:1", State::Bad, "no-free-chunk", 0.5),
            seen("c:1", State::Warning, "wrong-time", 3.0),
            Seen {
                address: "d:1".to_owned(),
                document: Err("refused".to_owned()),
            },
        ];
        all.sort_by_key(Seen::rank);
        let order: Vec<_> = all.iter().map(|seen| &seen.address[..]).collect();
        assert_eq!(order, ["d:1", "b:1", "e:1", "c:1", "a:1"]);
        let text = text(&all);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].contains("no answer") && lines[1].ends_with("refused"),
            "{text}"
        );
        assert!(
            lines[2].contains("12345") && lines[2].contains("0.50"),
            "{text}"
        );
    }

    #[test]
    fn an_engine_that_is_not_there_is_told_so() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let all = ask(&[address]);
        assert_eq!(all[0].state(), "no answer");
    }
}
