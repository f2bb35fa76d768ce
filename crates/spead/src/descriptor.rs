//! Descriptors of items, and heaps that have nothing but descriptors.
//!
//! A descriptor is a SPEAD packet of its own, nested in the payload of a heap.

use crate::item;
use crate::packet::{ItemPointer, Packet, PacketError, PacketHeader};

/// Type of an item's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// Fields of bits, each with a type and a number of bits, such as `('u', 48)`. Types are `u`
    /// and `i` for integers without and with sign, `f` for floats, `b` for truth values, `c` for
    /// characters.
    Format(Vec<(char, u16)>),
    /// Type of numpy's.
    Numpy {
        /// numpy's type string, such as `<i2`.
        descr: String,
        /// Whether the first axis varies fastest.
        fortran_order: bool,
    },
}

/// Descriptor of an item: its name, shape and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Identifier of the described item.
    pub id: u64,
    /// Name of the item. spead2 reads and writes names in ASCII alone.
    pub name: String,
    /// Free text; for spead2 also in ASCII.
    pub description: String,
    /// Length of each axis, slowest first; `None` for an axis of variable length, of which types of
    /// numpy's have none. A scalar has no axes.
    pub shape: Vec<Option<u64>>,
    /// Type of the elements.
    pub element: ElementType,
}

/// Reason for which a nested packet is no descriptor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// No packet.
    #[error("descriptor is not a SPEAD packet")]
    Packet(#[from] PacketError),
    /// Descriptor without a part that it must have.
    #[error("descriptor has no {0}")]
    Missing(&'static str),
    /// Text that is not UTF-8.
    #[error("descriptor's {0} is not text")]
    NotText(&'static str),
    /// List whose bytes are not a whole number of entries.
    #[error("descriptor's {part} of {len} bytes is not a whole number of {entry}-byte entries")]
    Ragged {
        /// Shape or format.
        part: &'static str,
        /// Bytes found.
        len: usize,
        /// Bytes of an entry.
        entry: usize,
    },
    /// Header of numpy's that is not the dictionary of an array of plain elements.
    #[error("descriptor's dtype {0:?} is not a numpy header of a plain array")]
    BadDtype(String),
    /// Descriptor without room in a table.
    #[error(
        "descriptor of item {id:#x} is one too many: tables have {}",
        crate::table::MAX_DESCRIPTORS
    )]
    TableFull {
        /// Identifier of the described item.
        id: u64,
    },
}

impl DescriptorError {
    /// Stable name of the reason, for counters.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Packet(error) => error.cause(),
            Self::Missing(_) => "descriptor-incomplete",
            Self::NotText(_) => "descriptor-not-text",
            Self::Ragged { .. } => "descriptor-ragged",
            Self::BadDtype(_) => "descriptor-bad-dtype",
            Self::TableFull { .. } => "descriptor-table-full",
        }
    }
}

/// Bytes of an axis, as written.
const SHAPE_ENTRY: usize = 7;

impl Descriptor {
    /// Descriptor of an unsigned scalar of 48 bits, which an immediate item has.
    pub fn immediate(id: u64, name: &str, description: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            description: description.to_owned(),
            shape: Vec::new(),
            element: ElementType::Format(vec![('u', 48)]),
        }
    }

    /// Descriptor of an array of numpy's type `descr`, such as `<f4` for little-endian floats of 4
    /// bytes, `>i2` for big-endian integers of 2 bytes, or `|u1` for bytes. The last axis varies
    /// fastest.
    pub fn array(id: u64, name: &str, description: &str, shape: &[u64], descr: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            description: description.to_owned(),
            shape: shape.iter().copied().map(Some).collect(),
            element: ElementType::Numpy {
                descr: descr.to_owned(),
                fortran_order: false,
            },
        }
    }

    /// Descriptors of a stream of spectra, as an F-engine sends it: heaps of `channels` channels by
    /// `spectra` spectra. Real and imaginary parts have `bits` bits. 8 bits give a type of numpy's;
    /// other numbers, which numpy does not have, give a field of bits.
    pub fn spectra(channels: u64, spectra: u64, bits: u16) -> Vec<Self> {
        let element = match bits {
            8 => ElementType::Numpy {
                descr: "|i1".to_owned(),
                fortran_order: false,
            },
            _ => ElementType::Format(vec![('i', bits)]),
        };
        vec![
            Self::immediate(
                item::TIMESTAMP,
                "timestamp",
                "ADC sample count since the sync time, of the first sample of the first spectrum",
            ),
            Self::immediate(
                item::FENG_ID,
                "feng_id",
                "Number of the F-engine in the array",
            ),
            Self::immediate(
                item::FREQUENCY,
                "frequency",
                "Channel number of the first channel in the heap",
            ),
            Self {
                id: item::FENG_RAW,
                name: "feng_raw".to_owned(),
                description:
                    "Channelised voltages: channel, spectrum, polarisation, real and imaginary part"
                        .to_owned(),
                shape: [channels, spectra, 2, 2].map(Some).to_vec(),
                element,
            },
        ]
    }

    /// Descriptors of a digitiser's stream: heaps of `samples` samples of `bits` bits.
    pub fn digitiser(samples: u64, bits: u16) -> Vec<Self> {
        vec![
            Self::immediate(
                item::TIMESTAMP,
                "timestamp",
                "ADC sample count since the sync time, of the first sample in the heap",
            ),
            Self::immediate(
                item::DIGITISER_ID,
                "digitiser_id",
                "Number of the digitiser; bit 0 is the polarisation",
            ),
            Self::immediate(
                item::DIGITISER_STATUS,
                "digitiser_status",
                "Saturated samples in bits 47 to 32, saturation flag in bit 1",
            ),
            Self {
                id: item::ADC_SAMPLES,
                name: "adc_samples".to_owned(),
                description: "Digitised voltages, packed most significant bit first".to_owned(),
                shape: vec![Some(samples)],
                element: ElementType::Format(vec![('i', bits)]),
            },
        ]
    }

    /// Reads a nested packet.
    ///
    /// # Errors
    ///
    /// Each rule of the format has a variant of [`DescriptorError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let packet = Packet::new_checked(bytes)?;
        packet.whole_heap()?;
        let id = packet
            .immediate(item::DESCRIPTOR_ID)
            .ok_or(DescriptorError::Missing("identifier"))?;
        let (mut name, mut description, mut shape, mut format, mut dtype) =
            (None, "", None, None, None);
        for (id, bytes) in packet.addressed() {
            match id {
                item::DESCRIPTOR_NAME => name = Some(text(bytes, "name")?),
                item::DESCRIPTOR_DESCRIPTION => description = text(bytes, "description")?,
                item::DESCRIPTOR_SHAPE => shape = Some(parse_shape(bytes, packet.address_bits())?),
                item::DESCRIPTOR_FORMAT => {
                    format = Some(parse_format(bytes, packet.address_bits())?)
                }
                item::DESCRIPTOR_DTYPE => dtype = Some(parse_dtype(text(bytes, "dtype")?)?),
                _ => {}
            }
        }
        let (shape, element) = match dtype {
            Some((element, dims)) => (dims.into_iter().map(Some).collect(), element),
            None => (
                shape.ok_or(DescriptorError::Missing("shape"))?,
                ElementType::Format(
                    format
                        .filter(|fields| !fields.is_empty())
                        .ok_or(DescriptorError::Missing("format and no dtype"))?,
                ),
            ),
        };
        Ok(Self {
            id,
            name: name.ok_or(DescriptorError::Missing("name"))?.to_owned(),
            description: description.to_owned(),
            shape,
            element,
        })
    }

    /// Writes the nested packet. Headers of numpy's have no axes of variable length: there they
    /// become 0, which [`HeapBuilder`](crate::HeapBuilder) refuses.
    pub fn emit(&self) -> Vec<u8> {
        let (format, dtype) = match &self.element {
            ElementType::Format(fields) => {
                let entry = |&(kind, bits): &(char, u16)| {
                    let [high, low] = bits.to_be_bytes();
                    [kind as u8, high, low]
                };
                (fields.iter().flat_map(entry).collect(), None)
            }
            ElementType::Numpy {
                descr,
                fortran_order,
            } => (
                Vec::new(),
                Some(numpy_header(descr, *fortran_order, &self.shape)),
            ),
        };
        let shape: Vec<u8> = self
            .shape
            .iter()
            .flat_map(|dim| shape_entry(*dim))
            .collect();
        let mut parts = vec![
            (item::DESCRIPTOR_NAME, self.name.as_bytes()),
            (item::DESCRIPTOR_DESCRIPTION, self.description.as_bytes()),
            (item::DESCRIPTOR_FORMAT, &format),
            (item::DESCRIPTOR_SHAPE, &shape),
        ];
        if let Some(dtype) = &dtype {
            parts.push((item::DESCRIPTOR_DTYPE, dtype.as_bytes()));
        }
        heap(
            1,
            &[ItemPointer::immediate(item::DESCRIPTOR_ID, self.id)],
            &parts,
        )
    }
}

/// Writes the one packet of a heap of descriptors.
///
/// The packet may come to be longer than [`MAX_PACKET`](crate::packet::MAX_PACKET), which no
/// receiver accepts: [`HeapBuilder`](crate::HeapBuilder) divides longer heaps into packets.
pub fn emit_heap(heap_count: u64, descriptors: &[Descriptor]) -> Vec<u8> {
    let nested: Vec<Vec<u8>> = descriptors.iter().map(Descriptor::emit).collect();
    let parts: Vec<(u64, &[u8])> = nested
        .iter()
        .map(|bytes| (item::DESCRIPTOR, &bytes[..]))
        .collect();
    heap(heap_count, &[], &parts)
}

/// Reads the descriptors in a packet. A packet that is not a descriptor heap's has none.
pub fn parse_heap(
    packet: &Packet<'_>,
) -> impl Iterator<Item = Result<Descriptor, DescriptorError>> {
    packet
        .addressed()
        .filter(|(id, _)| *id == item::DESCRIPTOR)
        .map(|(_, bytes)| Descriptor::parse(bytes))
}

/// Writes a heap in one packet: immediate items, then addressed items, whose bytes follow one
/// another.
fn heap(heap_count: u64, immediates: &[ItemPointer], parts: &[(u64, &[u8])]) -> Vec<u8> {
    let mut items = immediates.to_vec();
    let mut length = 0;
    for (id, bytes) in parts {
        items.push(ItemPointer::addressed(*id, length));
        length += bytes.len() as u64;
    }
    let header = PacketHeader {
        heap_count,
        heap_length: length,
        payload_offset: 0,
        payload_length: length,
    };
    let mut packet = vec![0; PacketHeader::len(items.len())];
    header.emit(&items, &mut packet);
    for (_, bytes) in parts {
        packet.extend_from_slice(bytes);
    }
    packet
}

fn text<'a>(bytes: &'a [u8], part: &'static str) -> Result<&'a str, DescriptorError> {
    std::str::from_utf8(bytes).map_err(|_| DescriptorError::NotText(part))
}

/// Writes an axis: a flag byte, whose bit 0 means variable length, then 48 bits of length.
fn shape_entry(dim: Option<u64>) -> [u8; SHAPE_ENTRY] {
    let word = match dim {
        Some(length) => length & crate::IMMEDIATE_MASK,
        None => 1 << 48,
    };
    let [_, entry @ ..] = word.to_be_bytes();
    entry
}

/// Reads axes: a flag byte each, whose bit 0 means variable length, then as many bits of length as
/// a heap address has.
fn parse_shape(bytes: &[u8], address_bits: u32) -> Result<Vec<Option<u64>>, DescriptorError> {
    let axis = |flag: u8, length: u64| (flag & 1 == 0).then_some(length);
    parse_entries("shape", bytes, address_bits / 8, axis)
}

/// Reads fields: a type character each, then as many bits of width as an item pointer has beside
/// its address.
fn parse_format(bytes: &[u8], address_bits: u32) -> Result<Vec<(char, u16)>, DescriptorError> {
    // No field is as wide as what does not fit.
    let field = |kind: u8, bits: u64| (char::from(kind), u16::try_from(bits).unwrap_or(u16::MAX));
    parse_entries("format", bytes, 8 - address_bits / 8, field)
}

/// Reads entries of one byte and a big-endian number of `width` bytes.
fn parse_entries<T>(
    part: &'static str,
    bytes: &[u8],
    width: u32,
    make: impl Fn(u8, u64) -> T,
) -> Result<Vec<T>, DescriptorError> {
    let entry = 1 + width as usize;
    if !bytes.len().is_multiple_of(entry) {
        let len = bytes.len();
        return Err(DescriptorError::Ragged { part, len, entry });
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0, |it, byte| it << 8 | u64::from(*byte));
    let entries = bytes.chunks_exact(entry);
    Ok(entries.map(|it| make(it[0], number(&it[1..]))).collect())
}

/// Writes the dictionary of a `.npy` header as Python prints it.
fn numpy_header(descr: &str, fortran_order: bool, shape: &[Option<u64>]) -> String {
    let order = if fortran_order { "True" } else { "False" };
    let dims: Vec<String> = shape
        .iter()
        .map(|dim| dim.unwrap_or(0).to_string())
        .collect();
    let dims = match &dims[..] {
        [one] => format!("{one},"),
        dims => dims.join(", "),
    };
    format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims})}}")
}

fn parse_dtype(header: &str) -> Result<(ElementType, Vec<u64>), DescriptorError> {
    let parse = || {
        let after = |key: &str| {
            let start = header.find(&format!("'{key}'"))? + key.len() + 2;
            header[start..]
                .trim_start()
                .strip_prefix(':')
                .map(str::trim_start)
        };
        let descr = after("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
        let order = after("fortran_order")?;
        let fortran_order = order.starts_with("True");
        if !fortran_order && !order.starts_with("False") {
            return None;
        }
        let dims = after("shape")?.strip_prefix('(')?.split_once(')')?.0;
        let dims: Option<Vec<u64>> = dims
            .split(',')
            .map(str::trim)
            .filter(|dim| !dim.is_empty())
            .map(|dim| dim.parse().ok())
            .collect();
        let element = ElementType::Numpy {
            descr: descr.to_owned(),
            fortran_order,
        };
        Some((element, dims?))
    };
    parse().ok_or_else(|| DescriptorError::BadDtype(header.to_owned()))
}

#[cfg(test)]
mod tests;
