//! Which destinations make up a stream.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv4Addr;

use num_integer::gcd;
use spead::descriptor::ElementType;
use spead::{Descriptor, SpectraRepr, item};

use super::counts::{self, is_of};
use super::{Kind, Route};

/// An F-engine number of fewer than one in so many packets of a destination is damage.
const LEAST_SHARE: u64 = 16;

/// A descriptor heap or a stop heap.
#[derive(Debug)]
struct Control {
    count: u64,
    stop: bool,
    /// Axes of feng_raw and its type.
    described: Option<(Vec<Option<u64>>, ElementType)>,
}

/// What came to one destination from one source, where engines are not told apart yet.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    /// By F-engine number.
    spectra: BTreeMap<u64, Substream>,
    control: Vec<Control>,
}

impl Arrived {
    pub fn add(&mut self, kind: &Kind<'_>) {
        match kind {
            Kind::Spectra(spectra, _) => {
                let sub = self.spectra.entry(spectra.feng_id).or_default();
                sub.add(spectra);
            }
            Kind::Descriptors(count, descriptors) => {
                let raw = descriptors.iter().find(|d| d.id == item::FENG_RAW);
                let shape = |raw: &Descriptor| (raw.shape.clone(), raw.element.clone());
                self.control.push(Control {
                    count: *count,
                    stop: false,
                    described: raw.map(shape),
                });
            }
            Kind::Stop(count) => self.control.push(Control {
                count: *count,
                stop: true,
                described: None,
            }),
            Kind::Other => {}
        }
    }

    /// The F-engine numbers that are those of engines, with their spectra. A damaged packet has
    /// another number, but is rare, or has the heap count of a heap of the right one.
    fn engines(&mut self, array_size: Option<u64>) -> BTreeMap<u64, Substream> {
        let mut found: Vec<_> = std::mem::take(&mut self.spectra).into_iter().collect();
        found.sort_by_key(|(_, sub)| Reverse(sub.packets));
        let most = found.first().map_or(0, |(_, sub)| sub.packets);
        let mut taken = HashSet::new();
        let mut engines = BTreeMap::new();
        for (number, mut sub) in found {
            let fits = |count| array_size.is_none_or(|size| is_of(count, number, size));
            let own = |count: &&u64| !taken.contains(*count) && fits(**count);
            // Without the array's size, one heap alone may be of a damaged packet.
            let least = if array_size.is_some() { 1 } else { 2 };
            let frequent = sub.packets * LEAST_SHARE >= most
                && sub.counts.iter().filter(own).take(least).count() == least;
            if engines.is_empty() || frequent {
                taken.extend(sub.counts.iter().copied());
                sub.settle(number);
                engines.insert(number, sub);
            }
        }
        engines
    }
}

/// Tells engines of one source address apart: spectra by their F-engine number, descriptors and
/// stop heaps, which have none, by heap count.
pub(super) fn by_engine(
    found: BTreeMap<Route, Arrived>,
    array_size: Option<u64>,
) -> Vec<(Route, Substream)> {
    // Of each source its engines, and what their heap counts less their numbers have in common: a
    // multiple of the array's size.
    let mut sources: BTreeMap<Ipv4Addr, (BTreeSet<u64>, u64)> = BTreeMap::new();
    let mut routes = Vec::new();
    for (route, mut arrived) in found {
        let engines = arrived.engines(array_size);
        let (numbers, common) = sources.entry(route.0).or_default();
        for (&number, sub) in &engines {
            numbers.insert(number);
            let rests = sub.counts.iter().map(|&count| counts::rest(count, number));
            let mut rests: Vec<u64> = rests.collect();
            counts::keep_usual(&mut rests);
            *common = rests.into_iter().fold(*common, gcd);
        }
        routes.push((route, engines, arrived.control));
    }
    let mut all = Vec::new();
    for (route, engines, control) in routes {
        let (numbers, common) = &sources[&route.0];
        let size = array_size.unwrap_or(*common);
        // Where no spectra came `merge` knows more.
        let here = engines.keys().next().copied();
        let mut subs: BTreeMap<Option<u64>, Substream> = engines
            .into_iter()
            .map(|(number, sub)| (Some(number), sub))
            .collect();
        for heap in control {
            let several = numbers.len() > 1;
            let engine = numbers
                .iter()
                .find(|&&n| several && is_of(heap.count, n, size));
            let number = engine.copied().or(here);
            let sub = subs.entry(number).or_default();
            sub.feng_id = number;
            sub.add_control(heap);
        }
        all.extend(subs.into_values().map(|sub| (route, sub)));
    }
    all
}

/// What the first pass learns of one destination.
#[derive(Debug, Default)]
pub(super) struct Substream {
    /// Senders: one, but for an engine with several send interfaces, of which the first sends
    /// descriptors and stop heaps of all.
    pub sources: Vec<Ipv4Addr>,
    pub feng_id: Option<u64>,
    pub first_channel: Option<u64>,
    pub heap_bytes: u64,
    /// Packets of spectra.
    packets: u64,
    /// How many of them have which first channel and bytes of a heap.
    shapes: BTreeMap<(u64, u64), u64>,
    /// Axes of feng_raw and its type, from the last descriptor.
    pub described: Option<(Vec<Option<u64>>, ElementType)>,
    pub timestamps: Vec<u64>,
    pub counts: Vec<u64>,
    pub control_counts: Vec<u64>,
    pub descriptor_heaps: u64,
    pub stop_heaps: u64,
}

/// Port and address of a destination: those of a stream are in this order.
pub(super) type Destination = (u16, Ipv4Addr);
/// The destinations of one stream.
pub(super) type Group = BTreeMap<Destination, Substream>;

impl Substream {
    fn add(&mut self, spectra: &SpectraRepr) {
        self.packets += 1;
        let shape = (spectra.first_channel, spectra.heap_length);
        *self.shapes.entry(shape).or_default() += 1;
        // Packets of a heap follow one another, so this keeps about one entry per heap.
        if self.timestamps.last() != Some(&spectra.timestamp) {
            self.timestamps.push(spectra.timestamp);
        }
        if self.counts.last() != Some(&spectra.heap_count) {
            self.counts.push(spectra.heap_count);
        }
    }

    fn add_control(&mut self, heap: Control) {
        self.control_counts.push(heap.count);
        if heap.stop {
            self.stop_heaps += 1;
        } else {
            self.descriptor_heaps += 1;
            self.described = heap.described.or(self.described.take());
        }
    }

    /// Takes what most packets of this engine say: single ones may be damaged.
    fn settle(&mut self, feng_id: u64) {
        self.feng_id = Some(feng_id);
        let shapes = std::mem::take(&mut self.shapes).into_iter();
        let most = shapes.max_by_key(|&(shape, packets)| (packets, Reverse(shape)));
        if let Some(((first_channel, heap_bytes), _)) = most {
            (self.first_channel, self.heap_bytes) = (Some(first_channel), heap_bytes);
        }
    }

    /// Whether it is of a stream of ours.
    pub fn is_ours(&self) -> bool {
        self.described.is_some() || self.first_channel.is_some()
    }

    /// With spectra from another source, and what else came from there.
    fn with(mut self, other: Self) -> Self {
        self.sources.extend(other.sources);
        self.descriptor_heaps += other.descriptor_heaps;
        self.stop_heaps += other.stop_heaps;
        self.control_counts.extend(other.control_counts);
        Self {
            sources: self.sources,
            described: self.described.or(other.described),
            descriptor_heaps: self.descriptor_heaps,
            stop_heaps: self.stop_heaps,
            control_counts: self.control_counts,
            ..other
        }
    }
}

/// F-engine number, or the source where nothing tells that.
type Engine = Result<u64, Ipv4Addr>;
/// Destinations by engine, and by which of those engines it is: of one number there is one, unless
/// several send spectra to the same destination.
pub(super) type Merged = BTreeMap<(Engine, usize, Destination), Substream>;

/// Makes one of what came to a destination from several interfaces of an engine, each of which has
/// a source address of its own.
pub(super) fn merge(mut sorted: Vec<(Route, Substream)>) -> Merged {
    sorted.sort_by_key(|((src, dst), _)| (*src, dst.port(), *dst.ip()));
    // Where no spectra came the engine is that of the destination before: a source may have more.
    let mut numbers = BTreeMap::new();
    // Of a capture of the last destinations alone, no spectra tell whose descriptors these are.
    let mut bare = BTreeMap::new();
    for ((src, dst), sub) in &sorted {
        if let Some(number) = sub.feng_id {
            numbers.entry(*src).or_insert(number);
            if sub.control_counts.is_empty() {
                bare.entry(*dst).or_insert(number);
            }
        }
    }
    let mut found: BTreeMap<(Engine, Destination), [Vec<Substream>; 2]> = BTreeMap::new();
    for ((src, dst), mut sub) in sorted {
        if let Some(number) = sub.feng_id {
            numbers.insert(src, number);
        }
        sub.sources = vec![src];
        let number = numbers.get(&src).or_else(|| bare.get(&dst));
        let engine = number.copied().ok_or(src);
        let destination = (dst.port(), *dst.ip());
        let [spectra, control] = found.entry((engine, destination)).or_default();
        match sub.first_channel {
            Some(_) => spectra.push(sub),
            None => control.push(sub),
        }
    }
    let mut merged = Merged::new();
    for ((engine, destination), [spectra, control]) in found {
        let mut control = control.into_iter();
        let mut subs: Vec<_> = spectra
            .into_iter()
            .map(|sub| match sub.control_counts.is_empty() {
                true => control.next().unwrap_or_default().with(sub),
                false => sub,
            })
            .collect();
        subs.extend(control);
        for (which, sub) in subs.into_iter().enumerate() {
            merged.insert((engine, which, destination), sub);
        }
    }
    merged
}

/// Splits destinations, in order, into streams: where the port or the shape is another one, or
/// channels begin again.
pub(super) fn split(merged: Merged) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // What is known of the last group: looking at all of it again would take long where there are
    // very many destinations.
    let mut from = None;
    let (mut described, mut heap_bytes, mut last_channel) = (None, 0, None);
    for ((engine, which, destination), sub) in merged {
        let alike = match (&described, &sub.described) {
            (Some(described), Some(shape)) => described == shape,
            _ => heap_bytes == 0 || sub.heap_bytes == 0 || heap_bytes == sub.heap_bytes,
        };
        let ascends = last_channel.is_none()
            || sub.first_channel.is_none()
            || last_channel < sub.first_channel;
        let (port, _) = destination;
        if from != Some((engine, which, port)) || !alike || !ascends {
            from = Some((engine, which, port));
            (described, heap_bytes, last_channel) = (None, 0, None);
            groups.push(Group::new());
        }
        last_channel = sub.first_channel.or(last_channel);
        heap_bytes = heap_bytes.max(sub.heap_bytes);
        if described.is_none() {
            described.clone_from(&sub.described);
        }
        if let Some(group) = groups.last_mut() {
            group.insert(destination, sub);
        }
    }
    groups.sort_by_key(|group| {
        let (&destination, sub) = group.first_key_value()?;
        Some((sub.sources.first().copied(), destination))
    });
    groups
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
        let groups = split(merge(found.collect())).into_iter();
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

    /// Destinations of outputs, each of so many substreams of so many channels, through two
    /// interfaces: the first one has the descriptors if there are any.
    fn outputs(of: &[(u8, u64)], described: bool) -> Vec<(u8, u8, Substream)> {
        let mut found = Vec::new();
        let mut dst = 0;
        for &(substreams, channels) in of {
            for sub in 0..substreams {
                let mut spectra = spectra(3, u64::from(sub) * channels);
                let mut control = Substream::default();
                if described {
                    let element = ElementType::Format(vec![('i', 8)]);
                    let shape = vec![Some(channels), Some(8), Some(2), Some(2)];
                    control.described = Some((shape, element));
                    control.control_counts = vec![u64::from(dst)];
                }
                if 2 * sub < substreams {
                    control.feng_id = spectra.feng_id;
                    control.first_channel = spectra.first_channel;
                    control.heap_bytes = spectra.heap_bytes;
                } else {
                    spectra.counts = vec![1 << 40];
                    found.push((2, dst, spectra));
                }
                if described || 2 * sub < substreams {
                    found.push((1, dst, control));
                }
                dst += 1;
            }
        }
        found
    }

    /// First channels of each stream.
    fn channels(found: Vec<(u8, u8, Substream)>) -> Vec<Vec<Option<u64>>> {
        let groups = grouped(found).into_iter();
        let channels = groups.map(|group| group.into_iter().map(|(_, first)| first).collect());
        channels.collect()
    }

    /// What the second interface sends of both has ascending channels: that of the second output
    /// begins where that of the first ends, or behind it.
    #[test]
    fn outputs_through_several_interfaces_are_told_apart() {
        let expected = |of: &[(u8, u64)]| -> Vec<Vec<_>> {
            let firsts = |&(substreams, channels): &(u8, u64)| {
                let subs = 0..u64::from(substreams);
                subs.map(|sub| Some(sub * channels)).collect()
            };
            of.iter().map(firsts).collect()
        };
        let equal = [(4, 512); 20];
        for of in [&[(8, 512), (8, 4096)][..], &[(8, 512), (8, 1024)], &equal] {
            for described in [false, true] {
                assert_eq!(channels(outputs(of, described)), expected(of), "{of:?}");
            }
        }
    }

    /// Also where the first interface's own destinations are not in the capture.
    #[test]
    fn descriptors_belong_to_spectra_of_their_destination() {
        let mut found = outputs(&[(8, 512), (8, 4096)], true);
        found.retain(|&(_, dst, _)| dst % 8 >= 4);
        let expected = [512, 4096].map(|channels| (4..8).map(|i| Some(i * channels)).collect());
        assert_eq!(channels(found), expected.map(|of: Vec<_>| of));
    }

    #[test]
    fn outputs_on_another_port_are_told_apart() {
        let found = [(7148, 4), (7149, 8)].map(|(port, channel)| {
            let dst = std::net::SocketAddrV4::new([239, 10, 0, 1].into(), port);
            ((source(1), dst), spectra(3, channel))
        });
        assert_eq!(split(merge(Vec::from(found))).len(), 2);
    }

    /// Two engines of the same number to the same groups, by mistake or to be compared.
    #[test]
    fn engines_of_the_same_number_are_told_apart() {
        let found = [1, 2].map(|src| [(src, 0, spectra(3, 0)), (src, 1, spectra(3, 4))]);
        let expected = [1, 2].map(|src| [0, 4].map(|first| (vec![source(src)], Some(first))));
        let groups = grouped(found.into_iter().flatten().collect());
        assert_eq!(groups, expected.map(Vec::from));
    }
}
