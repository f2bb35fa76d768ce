//! Descriptors that a receiver has learnt.

use std::collections::BTreeMap;

use crate::descriptor::{Descriptor, DescriptorError};
use crate::heap::{Heap, Item};
use crate::value::{ItemArray, ItemError};

/// Most descriptors that a [`DescriptorTable`] keeps. Each has at most the bytes of a packet.
pub const MAX_DESCRIPTORS: usize = 4096;

/// Descriptors that a receiver has learnt, by which it interprets items.
///
/// Of several descriptors with one identifier or one name the last one counts.
///
/// ```
/// use spead::{Descriptor, DescriptorTable, HeapAssembler, HeapBuilder, PacketSize};
///
/// let power = Descriptor::array(0x1700, "power", "Power of each channel", &[2], "<f4");
/// let bytes: Vec<u8> = [0.5f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
/// let sent = HeapBuilder::new(1).descriptor(&power).addressed(0x1700, &bytes);
///
/// let (mut assembler, mut table) = (HeapAssembler::default(), DescriptorTable::default());
/// for packet in sent.packets(PacketSize::Whole(1472))? {
///     let Some(heap) = assembler.add_packet(&packet)? else { continue };
///     table.learn(&heap)?;
///     let power = table.by_name("power").expect("a descriptor");
///     let item = heap.item(power.id).expect("an item");
///     assert_eq!(table.interpret(&item)?.to_f64(), Some(vec![0.5, 2.0]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DescriptorTable {
    descriptors: BTreeMap<u64, Descriptor>,
    /// Identifier of each of them by its name.
    names: BTreeMap<String, u64>,
}

impl DescriptorTable {
    /// Learns the descriptors that a heap carries, and returns their number.
    ///
    /// # Errors
    ///
    /// The first error of [`Heap::descriptors`], or [`DescriptorError::TableFull`]. The other
    /// descriptors of the heap are learnt all the same.
    pub fn learn(&mut self, heap: &Heap) -> Result<usize, DescriptorError> {
        let mut learnt = 0;
        let mut first_error = None;
        for descriptor in heap.descriptors() {
            match descriptor.and_then(|descriptor| self.insert(descriptor)) {
                Ok(()) => learnt += 1,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(learnt), Err)
    }

    /// Adds a descriptor, such as one that the sender of a stream without descriptors has told by
    /// other ways.
    ///
    /// # Errors
    ///
    /// [`DescriptorError::TableFull`] if there are [`MAX_DESCRIPTORS`].
    pub fn insert(&mut self, descriptor: Descriptor) -> Result<(), DescriptorError> {
        let id = descriptor.id;
        self.remove(id);
        if let Some(&other) = self.names.get(&descriptor.name) {
            self.remove(other);
        }
        if self.descriptors.len() >= MAX_DESCRIPTORS {
            return Err(DescriptorError::TableFull { id });
        }
        self.names.insert(descriptor.name.clone(), id);
        self.descriptors.insert(id, descriptor);
        Ok(())
    }

    fn remove(&mut self, id: u64) {
        if let Some(descriptor) = self.descriptors.remove(&id) {
            self.names.remove(&descriptor.name);
        }
    }

    /// Descriptor of the item `id`.
    pub fn by_id(&self, id: u64) -> Option<&Descriptor> {
        self.descriptors.get(&id)
    }

    /// Descriptor of the item with this name.
    pub fn by_name(&self, name: &str) -> Option<&Descriptor> {
        self.by_id(*self.names.get(name)?)
    }

    /// Descriptors, by identifier.
    pub fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        self.descriptors.values()
    }

    /// Interprets an item by its descriptor.
    ///
    /// # Errors
    ///
    /// [`ItemError::NotDescribed`], and those of [`Descriptor::interpret`].
    pub fn interpret<'a>(&self, item: &Item<'a>) -> Result<ItemArray<'a>, ItemError> {
        let descriptor = self.by_id(item.id);
        let descriptor = descriptor.ok_or(ItemError::NotDescribed { id: item.id })?;
        descriptor.interpret(item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::heap::ItemContent;

    proptest! {
        #[test]
        fn the_last_descriptors_are_found_by_identifier_and_by_name(
            inserted in prop::collection::vec((0u64..6, 0u8..6), 0..30),
        ) {
            let mut table = DescriptorTable::default();
            let mut expected: Vec<Descriptor> = Vec::new();
            for (id, name) in inserted {
                let descriptor = Descriptor::immediate(id, &name.to_string(), "");
                expected.retain(|other| other.id != id && other.name != descriptor.name);
                expected.push(descriptor.clone());
                prop_assert_eq!(table.insert(descriptor), Ok(()));
            }
            for n in 0..6 {
                let by_id = expected.iter().find(|it| it.id == n);
                prop_assert_eq!(table.by_id(n), by_id);
                let name = n.to_string();
                let by_name = expected.iter().find(|it| it.name == name);
                prop_assert_eq!(table.by_name(&name), by_name);
            }
            prop_assert_eq!(table.descriptors().count(), expected.len());
        }
    }

    #[test]
    fn a_table_has_the_last_descriptor_of_an_identifier_and_of_a_name() {
        let mut table = DescriptorTable::default();
        let add = |table: &mut DescriptorTable, id, name: &str| {
            table.insert(Descriptor::immediate(id, name, "")).unwrap();
        };
        add(&mut table, 1, "one");
        add(&mut table, 2, "two");
        add(&mut table, 1, "first");
        add(&mut table, 3, "two");
        let names: Vec<_> = table
            .descriptors()
            .map(|it| (it.id, &it.name[..]))
            .collect();
        assert_eq!(names, [(1, "first"), (3, "two")]);
        assert_eq!(table.by_name("two").map(|it| it.id), Some(3));
        assert!(table.by_id(2).is_none());
        let item = Item {
            id: 0x1000,
            content: ItemContent::Immediate(0),
            immediate_bits: 48,
        };
        assert_eq!(
            table.interpret(&item).unwrap_err(),
            ItemError::NotDescribed { id: 0x1000 }
        );
        for id in 10..10 + MAX_DESCRIPTORS as u64 - 2 {
            add(&mut table, id, &id.to_string());
        }
        let more = Descriptor::immediate(5, "more", "");
        assert_eq!(
            table.insert(more),
            Err(DescriptorError::TableFull { id: 5 })
        );
        add(&mut table, 10, "in the place of another");
    }
}
