//! Links of ports that are down, or were: since when, and how often.

use std::collections::BTreeMap;
use std::time::Instant;

use ground::counted;

use super::counts::Look;
use super::numbers::span;
use super::text::{Line, Words};
use super::track::FoundLoss;

/// When ports had no link, by their names.
#[derive(Debug, Default)]
pub struct Outages(BTreeMap<String, Outage>);

/// When a port had no link the last time.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    /// Once the link is up again.
    until: Option<Instant>,
    /// How often it went down, this time included.
    times: u64,
}

impl Outages {
    /// Whether a port has no link `now`, or had none for a moment since the `last` look. What is
    /// over is kept as long as the loss `is_active`.
    pub fn look(&mut self, last: Look<'_>, now: Look<'_>, is_active: bool) -> Option<FoundLoss> {
        if !is_active {
            self.0.retain(|_, outage| outage.until.is_none());
        }
        let mut found = None;
        for (name, up, downs) in &now.counts.links {
            let link = last.counts.links.iter().find(|(other, ..)| other == name);
            let fell = downs.saturating_sub(link.map_or(0, |(.., downs)| *downs));
            let known = self.0.get_mut(name);
            let was_down = known.filter(|outage| outage.until.is_none());
            let since = match was_down {
                Some(outage) if fell == 0 => {
                    outage.until = up.then_some(now.at);
                    (!up).then_some(outage.since)
                }
                _ if fell == 0 && *up => None,
                _ => {
                    let since = if fell > 0 { last.at } else { now.at };
                    let outage = Outage {
                        since,
                        until: up.then_some(since),
                        times: 0,
                    };
                    let times = self.0.get(name).map_or(0, |outage| outage.times);
                    let times = times + fell.max(1);
                    self.0.insert(name.clone(), Outage { times, ..outage });
                    Some(since)
                }
            };
            found = found.into_iter().chain(since).min();
        }
        found.map(|since| FoundLoss::Wrong { since, lost: 0 })
    }
}

impl Line<'_> {
    pub(super) fn link_down(&self) -> Words {
        let of = |(port, outage): (&String, &Outage), until: Option<Instant>| {
            let long = span(until.unwrap_or(self.now).duration_since(outage.since));
            let what = match until {
                None => format!("port {port} has no link, since {long}"),
                Some(until) if until == outage.since => {
                    format!("port {port} had no link for a moment")
                }
                Some(_) => format!("port {port} had no link for {long}"),
            };
            match outage.times {
                0 | 1 => what,
                times => format!("{what}, the last of {times} times"),
            }
        };
        let outages = &self.outages.0;
        let down = outages.iter().filter(|(_, outage)| outage.until.is_none());
        let down: Vec<_> = down.map(|outage| of(outage, None)).collect();
        let name = self.cause.name();
        let what = match &down[..] {
            [] => {
                let were = outages
                    .iter()
                    .map(|(port, outage)| of((port, outage), outage.until));
                let were: Vec<_> = were.collect();
                format!("{}: {name}, packets were lost meanwhile", were.join("; "))
            }
            down => format!(
                "{}: {name}, packets are lost until it is up",
                down.join("; ")
            ),
        };
        Words::new(
            what,
            "look at cables, optics and the switch's port; an interface that was removed and made again needs a new start",
        )
    }

    /// How long it took until all links were up.
    pub(super) fn links_are_up(&self) -> String {
        let (name, lasted) = (self.cause.name(), span(self.due.lasted));
        let times = self.outages.0.values().map(|outage| outage.times).sum();
        match times {
            0 | 1 => format!("{name} is over: all links are up, after {lasted}"),
            times => {
                let times = counted(times, "time");
                format!(
                    "{name} is over: all links are up, after they went down {times} in {lasted}"
                )
            }
        }
    }
}
