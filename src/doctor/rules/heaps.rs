//! What is wrong with heaps that come to where they are expected.

use std::collections::BTreeSet;

use dsp::SampleBits;

use super::Case;
use super::input::{FEW, Input, Pol};
use super::silence::{Total, fragments};
use super::time::{rate, stopped, sync_time};
use crate::doctor::evidence::Flow;
use crate::doctor::finding::{Ailment, Finding};
use crate::losses::{grouped, options_for, per_second, percent};
use crate::recv::DropCause;

pub fn find(case: Case<'_>) -> Vec<Finding> {
    let ours: Vec<_> = case.ours().collect();
    let input = Input::of(&ours, &case.asked.recv);
    let mut found = Vec::new();
    found.extend(fragments(case));
    let size = size(case, &input);
    let unaligned = unaligned(case, &input);
    let even = size.is_none() && unaligned.is_none();
    found.extend(size.or(unaligned));
    found.extend(polarisation(case, &input));
    let rate = rate(case, &input);
    if rate.is_none() {
        found.extend(sync_time(case, &input));
    }
    found.extend(rate);
    found.extend(stopped(case, &input));
    if even {
        found.extend(missing(case, &input));
    }
    found.extend(duplicates(case, &input));
    found.extend(strays(case, &input));
    found.extend(vlan(case, &ours));
    found
}

fn size(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let recv = &case.asked.recv;
    let expected = recv.heap_bytes();
    let all: u64 = input.sizes.values().sum();
    let right = input.sizes.get(&expected).copied().unwrap_or(0);
    if 2 * right > all {
        return None;
    }
    let (&bytes, &count) = input.sizes.iter().max_by_key(|(_, count)| **count)?;
    let (samples, bits) = (recv.packet_samples as u64, recv.sample_bits.get());
    let mut evidence = vec![
        format!(
            "{} of {} heaps have {bytes} bytes where {expected} are expected, {samples} samples of {bits} bits",
            grouped(count),
            grouped(all)
        ),
        input.total.seen(case.seconds()),
    ];
    let step = input.most().step();
    let found = step.and_then(|step| {
        let bits = (8 * bytes as u64).checked_div(step)?;
        let whole = bits * step == 8 * bytes as u64;
        let bits = SampleBits::new(bits.try_into().ok()?).filter(|_| whole)?;
        Some((step, bits.get()))
    });
    let Some((step, width)) = found else {
        let options = options_for(recv, bytes as u64);
        let code = match options.starts_with("`--recv-packet-samples") {
            true => Ailment::HeapSamples,
            false => Ailment::SampleBits,
        };
        let what = format!("heaps have {bytes} bytes where {expected} are expected");
        return Some(Finding::new(code, what, evidence, options));
    };
    evidence.push(format!("their timestamps are {step} samples apart"));
    if step == samples {
        return Some(Finding::new(
            Ailment::SampleBits,
            format!("samples have {width} bits, not {bits}"),
            evidence,
            format!("--dig-sample-bits {width}"),
        ));
    }
    let more = match width == bits {
        true => String::new(),
        false => format!(" --dig-sample-bits {width}"),
    };
    Some(Finding::new(
        Ailment::HeapSamples,
        format!("heaps have {step} samples, not {samples}"),
        evidence,
        format!(
            "--recv-packet-samples {step}{more}, and a multiple of it for --recv-chunk-samples"
        ),
    ))
}

fn unaligned(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let samples = case.asked.recv.packet_samples as u64;
    let pol = input.pols.iter().find(|pol| pol.is_unaligned)?;
    let such = pol.unaligned.first()?;
    let (count, all) = (pol.unaligned.len(), pol.timestamps.len());
    let mut evidence = vec![
        format!(
            "a timestamp is {such}, {} more than a multiple",
            such % samples
        ),
        format!(
            "so are those of {} of {} heaps",
            grouped(count as u64),
            grouped(all as u64)
        ),
    ];
    let way_out = match input.most().step() {
        _ if 4 * count < all => {
            "do two digitisers send the same polarisation? else look at cables and at the counters of switches: heaps \
             may be damaged on their way"
                .to_owned()
        }
        Some(step) if step.is_multiple_of(samples) => {
            evidence.push(format!(
                "they are {step} samples apart, so that all are off by as much"
            ));
            "--mask-timestamp, if the digitiser leaves something in those bits".to_owned()
        }
        Some(step) => format!("--recv-packet-samples {step}, or --mask-timestamp"),
        None => "--mask-timestamp, or another --recv-packet-samples".to_owned(),
    };
    let what = format!("timestamps are not multiples of the {samples} samples of a heap");
    Some(Finding::new(
        Ailment::UnalignedTimestamps,
        what,
        evidence,
        way_out,
    ))
}

/// So many heaps of one polarisation, and none of the other, are no accident.
const SOME: u64 = 200;

fn polarisation(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let absent = input.pols.iter().position(|pol| pol.count == 0)?;
    let there = &input.pols[1 - absent];
    // The few heaps that were seen of a look that missed more say nothing of the others.
    if there.count < SOME && case.evidence.missed > there.count {
        return None;
    }
    let seen = input.total.seen(case.seconds());
    // Each timestamp twice, from different places: both polarisations, but for their numbers.
    if 3 * there.repeats > there.count && input.total.dst.len() > 1 {
        return Some(Finding::new(
            Ailment::PolarisationNumbers,
            format!("all heaps say that they are polarisation {}", 1 - absent),
            [
                seen,
                format!(
                    "{} of them have the timestamp of another",
                    grouped(there.repeats)
                ),
            ],
            format!(
                "the digitiser of polarisation {absent} needs a number that is {}: the lowest bit of its digitiser ID \
                     is the polarisation",
                ["even", "odd"][absent]
            ),
        ));
    }
    let strays: Vec<_> = case
        .strays()
        .filter(|flow| flow.pols[absent].count > 0)
        .collect();
    let mut evidence = vec![seen];
    let way_out = match strays.is_empty() {
        true => format!(
            "does the digitiser of polarisation {absent} send? are its groups among {}?",
            case.asked.source()
        ),
        false => {
            let total = Total::of(&strays);
            evidence.push(total.seen(case.seconds()));
            format!(
                "polarisation {absent} goes to {} on {}: give that as a part of SRC",
                total.endpoints(),
                total.interfaces.join(", ")
            )
        }
    };
    Some(Finding::new(
        Ailment::OnePolarisation,
        format!(
            "heaps of polarisation {} come, and none of polarisation {absent}",
            1 - absent
        ),
        evidence,
        way_out,
    ))
}

fn missing(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let samples = case.asked.recv.packet_samples as u64;
    let whole = case.evidence.missed == 0 && input.pols.iter().all(|pol| !pol.cut);
    if !whole {
        return None;
    }
    let lack = |pol: &Pol| {
        let timestamps = pol.inner();
        let all = (timestamps.last()? - timestamps.first()?) / samples + 1;
        let missing = all.saturating_sub(timestamps.len() as u64);
        // At the ends of the look heaps of some groups may be ahead of others.
        (missing >= 3 && missing as f64 > FEW * all as f64).then_some((missing, all))
    };
    let lacks: Vec<_> = input
        .pols
        .iter()
        .enumerate()
        .filter_map(|(pol, heaps)| Some((pol, lack(heaps)?)))
        .collect();
    let mut evidence: Vec<_> = lacks
        .iter()
        .map(|(pol, (missing, all))| {
            let share = percent(*missing as f64 / *all as f64);
            format!(
                "{} of {} heaps of polarisation {pol} did not come: {share}",
                grouped(*missing),
                grouped(*all)
            )
        })
        .collect();
    if evidence.is_empty() {
        return None;
    }
    let lacking = |flow: &&Flow| lacks.iter().any(|(pol, _)| flow.pols[*pol].count > 0);
    let elsewhere: Vec<_> = case.strays().filter(lacking).collect();
    let elsewhere = (!elsewhere.is_empty()).then(|| Total::of(&elsewhere));
    let Some(total) = elsewhere else {
        return Some(Finding::new(
            Ailment::MissingHeaps,
            "a part of the heaps does not come to this host's port",
            evidence,
            format!(
                "has SRC all groups that the digitisers send to ({} has {})? then look at the digitisers, at cables and at \
                 the counters of switches",
                case.asked.source(),
                case.asked.endpoints.len()
            ),
        ));
    };
    evidence.push(total.seen(case.seconds()));
    let to = total.endpoints();
    Some(Finding::new(
        Ailment::SomeGroups,
        format!("a part of the heaps goes to groups that SRC lacks: {to}"),
        evidence,
        format!("add {to} to SRC"),
    ))
}

fn duplicates(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    // With one polarisation alone, its number may be what is wrong.
    if input.pols.iter().any(|pol| pol.count == 0) {
        return None;
    }
    let repeats: u64 = input.pols.iter().map(|pol| pol.repeats).sum();
    let all = input.total.heaps;
    if repeats < 3 || repeats as f64 <= FEW * all as f64 {
        return None;
    }
    let one = input
        .ours
        .iter()
        .any(|flow| flow.pols.iter().any(|pol| pol.repeats > 0));
    let senders = input
        .ours
        .iter()
        .map(|flow| flow.key.src)
        .collect::<BTreeSet<_>>()
        .len();
    let way_out = match (one, senders) {
        (false, 2..) => {
            "do two digitisers send the same polarisation? one of them is another antenna's, or has a wrong number"
        }
        _ => {
            "is this a mirror port of a switch, or are there two ways to this host? the first copy counts"
        }
    };
    Some(Finding::new(
        Ailment::Duplicates,
        "heaps come more than once",
        [
            format!(
                "{} of {} heaps had come before",
                grouped(repeats),
                grouped(all)
            ),
            input.total.seen(case.seconds()),
            DropCause::Duplicate.explanation().to_owned(),
        ],
        way_out,
    ))
}

/// Heaps by whose timestamps nothing else is judged.
fn strays(case: Case<'_>, input: &Input<'_>) -> Option<Finding> {
    let samples = case.asked.recv.packet_samples;
    let mut evidence = Vec::new();
    for (number, pol) in input.pols.iter().enumerate() {
        let unaligned = match pol.is_unaligned {
            true => &[][..],
            false => &pol.unaligned[..],
        };
        let all = pol.timestamps.len() + pol.far.len() + unaligned.len();
        let is_multiple = format!("is no multiple of {samples}");
        let kinds = [
            (&pol.far[..], "is more than a second away from others"),
            (unaligned, is_multiple.as_str()),
        ];
        for (timestamps, what) in kinds {
            let Some(first) = timestamps.first() else {
                continue;
            };
            let senders = input.ours.iter().filter(|flow| {
                let sent = &flow.pols[number].timestamps;
                timestamps
                    .iter()
                    .any(|timestamp| sent.contains_key(timestamp))
            });
            let senders: Vec<_> = senders.copied().collect();
            evidence.push(format!(
                "the timestamp {what} in {} of {} heaps of polarisation {number}: {first}, from {}",
                grouped(timestamps.len() as u64),
                grouped(all as u64),
                Total::of(&senders).senders
            ));
        }
    }
    (!evidence.is_empty()).then(|| {
        Finding::new(
            Ailment::StrayTimestamps,
            "some heaps have timestamps that do not go with those of the others",
            evidence,
            "does another digitiser send the same polarisation, or did one begin anew? else look at cables and at the \
             counters of switches: heaps may be damaged on their way",
        )
    })
}

fn vlan(case: Case<'_>, ours: &[&Flow]) -> Option<Finding> {
    let tagged: Vec<_> = ours
        .iter()
        .filter(|flow| flow.key.vlan.is_some() && flow.heaps() > 0)
        .copied()
        .collect();
    let vlan = tagged.first()?.key.vlan?;
    let total = Total::of(&tagged);
    let on = total.interfaces.join(", ");
    let rate = per_second(total.heaps as f64 / case.seconds().max(1e-9));
    Some(Finding::new(
        Ailment::VlanTag,
        format!("heaps come to {on} with the tag of VLAN {vlan}"),
        [
            total.seen(case.seconds()),
            format!(
                "{rate} heaps/s are tagged; this host's IGMP reports, by which it asks for them, are not"
            ),
        ],
        format!(
            "let the switch's port have VLAN {vlan} untagged, or make an interface of it: ip link add link {on} name \
                 {on}.{vlan} type vlan id {vlan}, and --recv-interface {on}.{vlan}"
        ),
    ))
}
