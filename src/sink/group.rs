//! Which destinations make up a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use spead::descriptor::ElementType;
use spead::{Descriptor, item};

use super::{Kind, Route};

/// Streams of one engine's that may have the same end are few.
const MOST_ALIKE: usize = 8;

/// What the first pass learns of one destination.
#[derive(Debug, Default)]
pub(super) struct Substream {
    /// Senders: one, but for an engine with several send interfaces, of which the first sends
    /// descriptors and stop heaps of all.
    pub sources: Vec<Ipv4Addr>,
    pub feng_id: Option<u64>,
    pub first_channel: Option<u64>,
    pub heap_bytes: u64,
    /// Axes of feng_raw and its type, from the last descriptor.
    pub described: Option<(Vec<Option<u64>>, ElementType)>,
    pub timestamps: Vec<u64>,
    pub counts: Vec<u64>,
    pub control_counts: Vec<u64>,
    pub descriptor_heaps: u64,
    pub stop_heaps: u64,
}

/// Port and address of a destination: those of a stream are in this order.
pub(super) type Place = (u16, Ipv4Addr);
/// The destinations of one stream.
pub(super) type Group = BTreeMap<Place, Substream>;

impl Substream {
    pub fn add(&mut self, kind: &Kind<'_>) {
        match kind {
            Kind::Spectra(spectra, _) => {
                self.feng_id.get_or_insert(spectra.feng_id);
                if self.first_channel.is_none() {
                    self.first_channel = Some(spectra.first_channel);
                    self.heap_bytes = spectra.heap_length;
                }
                // Packets of a heap follow one another, so this keeps about one entry per heap.
                if self.timestamps.last() != Some(&spectra.timestamp) {
                    self.timestamps.push(spectra.timestamp);
                }
                if self.counts.last() != Some(&spectra.heap_count) {
                    self.counts.push(spectra.heap_count);
                }
            }
            Kind::Descriptors(count, descriptors) => {
                self.descriptor_heaps += 1;
                self.control_counts.push(*count);
                let raw = descriptors.iter().find(|d| d.id == item::FENG_RAW);
                if let Some(Descriptor { shape, element, .. }) = raw {
                    self.described = Some((shape.clone(), element.clone()));
                }
            }
            Kind::Stop(count) => {
                self.stop_heaps += 1;
                self.control_counts.push(*count);
            }
            Kind::Other => {}
        }
    }

    /// Takes over what came of it from another source: one of both has spectra.
    fn join(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.feng_id = self.feng_id.or(other.feng_id);
        self.first_channel = self.first_channel.or(other.first_channel);
        self.heap_bytes = self.heap_bytes.max(other.heap_bytes);
        if self.described.is_none() {
            self.described = other.described;
        }
        self.timestamps.extend(other.timestamps);
        self.counts.extend(other.counts);
        self.control_counts.extend(other.control_counts);
        self.descriptor_heaps += other.descriptor_heaps;
        self.stop_heaps += other.stop_heaps;
    }
}

/// Makes streams of destinations.
pub(super) fn group(found: BTreeMap<Route, Substream>) -> Vec<Group> {
    join(by_source(found))
}

/// Splits destinations, in order, where channels begin again or the shape changes.
fn by_source(found: BTreeMap<Route, Substream>) -> Vec<Group> {
    let mut sorted: Vec<_> = found.into_iter().collect();
    sorted.sort_by_key(|((src, dst), _)| (*src, dst.port(), *dst.ip()));
    let mut groups: Vec<Group> = Vec::new();
    // What is known of the last group: looking at all of it again would take long where there are
    // very many destinations.
    let (mut feng_id, mut described, mut last_channel) = (None, None, None);
    let mut last_source = None;
    for ((src, dst), mut sub) in sorted {
        let same = |a: Option<u64>, b: Option<u64>| a.is_none() || b.is_none() || a == b;
        let continues = last_source == Some(src)
            && same(feng_id, sub.feng_id)
            && (described.is_none() || sub.described.is_none() || described == sub.described)
            && (last_channel.is_none()
                || sub.first_channel.is_none()
                || last_channel < sub.first_channel);
        if !continues {
            (feng_id, described, last_channel) = (None, None, None);
            groups.push(Group::new());
        }
        last_source = Some(src);
        feng_id = feng_id.or(sub.feng_id);
        last_channel = sub.first_channel.or(last_channel);
        if described.is_none() {
            described.clone_from(&sub.described);
        }
        sub.sources = vec![src];
        if let Some(group) = groups.last_mut() {
            group.insert((dst.port(), *dst.ip()), sub);
        }
    }
    groups
}

/// Where the spectra of a group begin and end.
struct Ends {
    /// F-engine number, and bytes of a heap.
    of: (u64, u64),
    /// First channel of the first destination with spectra, and of the last.
    first: (u64, Place),
    last: (u64, Place),
}

impl Ends {
    /// None where there are no spectra.
    fn of(group: &Group) -> Option<Self> {
        let end = |(&place, sub): (&Place, &Substream)| Some((sub.first_channel?, place));
        let sub = group.values().find(|sub| sub.first_channel.is_some())?;
        Some(Self {
            of: (sub.feng_id?, sub.heap_bytes),
            first: group.iter().find_map(end)?,
            last: group.iter().rev().find_map(end)?,
        })
    }
}

/// Joins what an engine sends through several interfaces, each with a source address of its own:
/// blocks of channels, one behind the other.
fn join(groups: Vec<Group>) -> Vec<Group> {
    let groups = groups.into_iter().map(|group| (Ends::of(&group), group));
    let mut groups: Vec<_> = groups.collect();
    groups.sort_by_key(|(ends, _)| ends.as_ref().map(|ends| ends.first));
    let mut joined: Vec<Group> = Vec::new();
    let mut by_end = BTreeSet::new();
    let none = (0, Ipv4Addr::UNSPECIFIED);
    for (ends, group) in groups {
        let Some(Ends { of, first, last }) = ends else {
            joined.push(group);
            continue;
        };
        let before = by_end.range((of, (0, none), 0)..(of, (first.0, none), 0));
        let before = before.rev().take(MOST_ALIKE).copied();
        let before = before
            .filter(|(_, end, _)| end.1.0 == first.1.0 && end.1 < first.1)
            .find(|&(.., index)| goes_on(&joined[index], &group));
        let index = match before {
            None => {
                joined.push(group);
                joined.len() - 1
            }
            Some(key @ (.., index)) => {
                by_end.remove(&key);
                let to = &mut joined[index];
                for (place, sub) in group {
                    to.entry(place).or_default().join(sub);
                }
                index
            }
        };
        by_end.insert((of, last, index));
    }
    let source = |group: &Group| {
        let (&place, sub) = group.first_key_value()?;
        Some((sub.sources.first().copied(), place))
    };
    joined.sort_by_key(source);
    joined
}

/// Whether a group may be the next block of another: the source is a different one, the shape is
/// not.
fn goes_on(before: &Group, group: &Group) -> bool {
    let ends = |group: &'_ Group| {
        let first = group.first_key_value()?.1;
        let last = group.last_key_value()?.1;
        Some((
            [first.sources.first().copied(), last.sources.last().copied()],
            first.described.clone(),
        ))
    };
    let (Some((sources, described)), Some((others, shape))) = (ends(before), ends(group)) else {
        return false;
    };
    !sources.iter().any(|source| others.contains(source))
        && (described.is_none() || shape.is_none() || described == shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Ipv4Addr {
        [10, 0, 0, last].into()
    }

    /// Spectra of engine `feng_id` that begin at `channel`.
    fn spectra(feng_id: u64, channel: u64) -> Substream {
        Substream {
            feng_id: Some(feng_id),
            first_channel: Some(channel),
            heap_bytes: 128,
            ..Substream::default()
        }
    }

    /// Groups as first channels by sources.
    fn grouped(found: Vec<(u8, u8, Substream)>) -> Vec<Vec<(Vec<Ipv4Addr>, Option<u64>)>> {
        let found = found.into_iter().map(|(src, dst, sub)| {
            let dst = std::net::SocketAddrV4::new([239, 10, 0, dst].into(), 7148);
            ((source(src), dst), sub)
        });
        let groups = group(found.collect()).into_iter();
        let subs = groups.map(|group| {
            let subs = group.into_values();
            subs.map(|sub| (sub.sources, sub.first_channel)).collect()
        });
        subs.collect()
    }

    /// The interfaces' addresses are in no order, and the first sends control heaps of all.
    #[test]
    fn blocks_of_several_interfaces_are_one_stream() {
        for [one, other] in [[1, 2], [2, 1]] {
            let found = vec![
                (one, 0, spectra(3, 0)),
                (one, 1, spectra(3, 4)),
                (one, 2, Substream::default()),
                (one, 3, Substream::default()),
                (other, 2, spectra(3, 8)),
                (other, 3, spectra(3, 12)),
            ];
            let expected = vec![
                (vec![source(one)], Some(0)),
                (vec![source(one)], Some(4)),
                (vec![source(one), source(other)], Some(8)),
                (vec![source(one), source(other)], Some(12)),
            ];
            assert_eq!(grouped(found), [expected]);
        }
    }

    /// Engines of an array send to the same groups, each through two interfaces.
    #[test]
    fn engines_are_told_apart() {
        let engine = |feng_id: u64, one: u8| {
            [
                (one, 0, spectra(feng_id, 0)),
                (one, 1, Substream::default()),
                (one + 1, 1, spectra(feng_id, 4)),
            ]
        };
        let groups = grouped(engine(0, 1).into_iter().chain(engine(1, 3)).collect());
        let expected = [1, 3].map(|one| {
            vec![
                (vec![source(one)], Some(0)),
                (vec![source(one), source(one + 1)], Some(4)),
            ]
        });
        assert_eq!(groups, expected);
    }

    /// Those of an engine that sends the same output again, such as to other groups.
    #[test]
    fn whole_streams_are_not_joined() {
        let found = vec![
            (1, 0, spectra(3, 0)),
            (1, 1, spectra(3, 4)),
            (2, 2, spectra(3, 0)),
            (2, 3, spectra(3, 4)),
        ];
        assert_eq!(grouped(found).len(), 2);
    }
}
