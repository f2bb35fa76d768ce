//! Options that cannot be meant, whatever comes.

use std::net::Ipv4Addr;

use super::Case;
use crate::doctor::asked::AskedOutput;
use crate::doctor::finding::{Ailment, Finding};
use crate::net::format_endpoints;

/// Hertz below which a frequency is one in MHz or GHz that lacks its unit.
const TOO_LOW: f64 = 1e5;

pub fn find(case: Case<'_>) -> Vec<Finding> {
    let outputs = &case.asked.outputs;
    let mut found: Vec<_> = outputs.iter().filter_map(|o| loops(case, o)).collect();
    found.extend(outputs.iter().filter_map(|output| centre(case, output)));
    found.extend(rate(case));
    found.extend(sync_time(case));
    found
}

/// Groups have more than one port: networks deliver by groups alone.
fn loops(case: Case<'_>, output: &AskedOutput) -> Option<Finding> {
    let asked = &case.asked.endpoints;
    let shared = |ip: &Ipv4Addr| asked.iter().any(|endpoint| endpoint.ip() == ip);
    let shared = output.dst.iter().filter(|dst| shared(dst.ip()));
    let mut shared: Vec<_> = shared.copied().collect();
    shared.dedup();
    if shared.is_empty() {
        return None;
    }
    let (option, name, groups) = (output.option, &output.name, format_endpoints(&shared));
    Some(Finding::new(
        Ailment::OutputIsInput,
        format!("output '{name}' is sent to groups that digitisers send to: {groups}"),
        [
            format!("SRC is {}", case.asked.source()),
            format!(
                "{option} dst of '{name}' is {}",
                format_endpoints(&output.dst)
            ),
        ],
        format!("give {option} dst= groups of its own, which nothing else is sent to"),
    ))
}

/// A band that begins below 0 Hz, or ends above half the sample rate.
fn centre(case: Case<'_>, output: &AskedOutput) -> Option<Finding> {
    let (centre, decimation) = output.band?;
    let half = case.asked.adc_sample_rate.map(|rate| rate / 2.0);
    let above = half.is_some_and(|half| centre > half);
    let width = half.map(|half| half / decimation.max(1) as f64);
    let below = centre < TOO_LOW && width.is_none_or(|width| centre < width / 2.0);
    if !(centre > 0.0 && (above || below)) {
        return None;
    }
    let (option, name) = (output.option, &output.name);
    let mut evidence = vec![format!(
        "{option} centre_frequency of '{name}' is {centre} Hz above the digitised band's lower end"
    )];
    if let (Some(half), Some(width)) = (half, width) {
        let (half, width) = (hertz(half), hertz(width));
        evidence.push(format!(
            "the digitised band is {half} wide, the output's {width}"
        ));
    }
    let meant = if below { 1e6 * centre } else { centre };
    let way_out = match half {
        Some(half) if meant > half => format!(
            "the option counts from the lower end of the digitised band, and {} lies above its {}: take off where that \
             band begins on the sky; of the second Nyquist zone, write centre_frequency={}",
            hertz(meant),
            hertz(half),
            hertz(meant - half),
        ),
        _ => format!("write centre_frequency={}", hertz(meant)),
    };
    let what = match below {
        true => format!("output '{name}' is centred on {centre} Hz: MHz were meant?"),
        false => format!(
            "output '{name}' is centred on {}, outside of the digitised band",
            hertz(centre)
        ),
    };
    Some(Finding::new(
        Ailment::FrequencyUnit,
        what,
        evidence,
        way_out,
    ))
}

fn rate(case: Case<'_>) -> Option<Finding> {
    let rate = case.asked.adc_sample_rate.filter(|rate| *rate < TOO_LOW)?;
    Some(Finding::new(
        Ailment::FrequencyUnit,
        format!("--adc-sample-rate is {rate} Hz: MHz were meant?"),
        ["digitisers take millions of samples a second and more".to_owned()],
        format!("write --adc-sample-rate {rate}M"),
    ))
}

/// A sync time that is still to come.
fn sync_time(case: Case<'_>) -> Option<Finding> {
    const DAY: f64 = 86400.0;
    // No digitiser was synchronised before.
    const YEAR_2000: f64 = 946_684_800.0;
    let (sync_time, now) = (case.asked.sync_time?, case.evidence.looked.1);
    if sync_time < now + DAY {
        return None;
    }
    let unit = [
        (1e3, "milliseconds"),
        (1e6, "microseconds"),
        (1e9, "nanoseconds"),
    ];
    let likely = YEAR_2000..now + DAY;
    let unit = unit
        .iter()
        .find(|(unit, _)| likely.contains(&(sync_time / unit)));
    let way_out = match unit {
        Some((unit, name)) => format!("it is in {name}? write --sync-time {}", sync_time / unit),
        None => {
            "give the UNIX time in seconds at which the digitisers' sample count was 0".to_owned()
        }
    };
    let days = (sync_time - now) / DAY;
    Some(Finding::new(
        Ailment::SyncTime,
        format!(
            "--sync-time {sync_time} is {days:.0} days from now: sample 0 has not been taken yet"
        ),
        [format!("this host's clock says {now:.0}")],
        way_out,
    ))
}

/// A frequency as options take it: 1.42G, 856M, 12.5k.
fn hertz(frequency: f64) -> String {
    let (unit, name) = match frequency.abs() {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let number = format!("{:.6}", frequency / unit);
    let number = number.trim_end_matches('0').trim_end_matches('.');
    format!("{number}{name}Hz")
}
