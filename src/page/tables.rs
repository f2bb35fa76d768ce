//! Tables of what is in force, and of the host.

use ground::os::KernelClock;
use ground::{N_POL, SampleClock};
use live::{Body, LogEntry, Panel, State};

use super::spectra::POLS;
use crate::config::EngineConfig;
use crate::control::fgpu::RequestRecord;
use crate::engine::steer::{ControlHandle, Published};
use crate::ports::Links;

/// Delays at work and gains asked for, of each output and polarisation.
pub fn steering(steering: &ControlHandle, published: &Published, clock: SampleClock) -> Panel {
    let mut rows = Vec::new();
    for (index, output) in steering.outputs().iter().enumerate() {
        for (pol, name) in POLS.iter().enumerate().take(N_POL) {
            let delay = published.delay(index, pol);
            let delay = delay.map(|delay| {
                [
                    number(delay.delay() / clock.adc_sample_rate * 1e9, "ns"),
                    number(delay.rate() * 1e12, "ps/s"),
                    number(delay.phase(), "rad"),
                ]
            });
            let gains = output.gains(pol).map(|gains| {
                let sizes = gains.values().iter().map(|gain| gain.norm());
                let (low, high) = sizes.fold((f32::INFINITY, 0.0_f32), |(low, high), gain| {
                    (low.min(gain), high.max(gain))
                });
                match low == high {
                    true => format!("{low}"),
                    false => format!("{low} to {high}"),
                }
            });
            let mut row = vec![output.name().to_owned(), (*name).to_owned()];
            row.extend(delay.unwrap_or_default());
            row.push(gains.unwrap_or_default());
            rows.push(row);
        }
    }
    let columns = ["output", "input", "delay", "rate", "phase", "gain"];
    let body = Body::Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
    };
    Panel::new("steering", "Delays and gains", body)
        .with_note("Delays at work now; absolute values of the gains last asked for.")
}

/// A number with four digits behind the point, as an operator reads it.
fn number(value: f64, unit: &str) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "-0" => format!("0 {unit}"),
        _ => format!("{text} {unit}"),
    }
}

/// Why there are no spectra, if none are taken.
pub fn statistics_off(config: &EngineConfig) -> Option<Panel> {
    let body = Body::Table {
        columns: vec!["spectra, kurtosis, levels".to_owned()],
        rows: vec![vec!["off: --statistics-period is 0".to_owned()]],
    };
    let note = "--statistics-period 1 takes them anew each second.";
    let off = config.statistics_samples().is_none();
    off.then(|| Panel::new("statistics", "Statistics", body).with_note(note))
}

/// Links of ports, and this host's clock.
pub fn host(links: &Links) -> Panel {
    links.look();
    let link = |(port, up, downs): (&dpdk::Port, bool, u64)| {
        let state = if up { "up" } else { "DOWN" };
        let downs = match downs {
            0 => String::new(),
            downs => format!(", was down {downs} times"),
        };
        vec![
            format!("link of {}", port.name()),
            format!("{state}{downs}"),
        ]
    };
    let mut rows: Vec<_> = links.states().map(link).collect();
    if let Ok(clock) = KernelClock::read() {
        rows.push(vec!["clock of this host".to_owned(), clock_text(&clock)]);
    }
    let columns = vec!["what".to_owned(), "how".to_owned()];
    Panel::new("host", "Links and clock", Body::Table { columns, rows })
}

/// Whether a clock is right, as the verdict and the sensors judge it, and what its error may be.
pub fn clock_text(clock: &KernelClock) -> String {
    let error = clock.maximum_error * 1e3;
    match clock.is_synchronised() {
        true => format!("synchronised, right within {error:.3} ms"),
        false => format!("not synchronised, may be wrong by {error:.3} ms"),
    }
}

/// Who asked for what.
pub fn requests(record: &RequestRecord) -> Panel {
    let entry = |request: crate::control::fgpu::RecordedRequest| {
        let parts: Vec<_> = request.reply.split(' ').take(2).collect();
        let done = parts.get(1) == Some(&"ok");
        LogEntry {
            time: request.time,
            who: request.client.to_string(),
            text: format!("{} → {}", request.request, request.reply),
            state: if done { State::Well } else { State::Warning },
        }
    };
    let entries = record.all().into_iter().map(entry).collect();
    Panel::new("requests", "Requests", Body::Log { entries })
}
