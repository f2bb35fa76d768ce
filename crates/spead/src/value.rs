//! Items interpreted by their descriptors.

use std::borrow::Cow;

use crate::descriptor::{Descriptor, ElementType};
use crate::heap::{Item, ItemContent};

/// Reason for which an item cannot be interpreted. Its bytes can still be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// Item without descriptor.
    #[error("item {id:#x} has no descriptor yet; wait for a heap with its descriptor")]
    NotDescribed {
        /// Identifier of the item.
        id: u64,
    },
    /// Field of bits that is no number, truth value or character of a known size.
    #[error(
        "item {name:?} has fields of type {kind:?} with {bits} bits; known are u and i up to 64 \
         bits, b up to 64, f of 32 or 64, c of 8"
    )]
    UnknownField {
        /// Name of the item.
        name: String,
        /// Type of the field.
        kind: char,
        /// Bits of the field.
        bits: u16,
    },
    /// Type of numpy's that is no number, truth value or character of a known size.
    #[error(
        "item {name:?} has numpy's type {descr:?}; known are b1, S1, i and u of 1 to 8 bytes, f of \
         4 or 8, c of 8 or 16, with < or > or |"
    )]
    UnknownDtype {
        /// Name of the item.
        name: String,
        /// Type string of numpy's.
        descr: String,
    },
    /// Shape with several axes of variable length.
    #[error("item {name:?} has {axes} axes of variable length; one is the most that has a meaning")]
    SeveralVariableAxes {
        /// Name of the item.
        name: String,
        /// Axes of variable length.
        axes: usize,
    },
    /// Item of too few bits for its shape.
    #[error(
        "item {name:?} has {bits} bits, too few for its shape {shape:?} of {element}-bit elements"
    )]
    TooShort {
        /// Name of the item.
        name: String,
        /// Bits of the item.
        bits: u64,
        /// Shape that it should have.
        shape: Vec<u64>,
        /// Bits of an element.
        element: u32,
    },
    /// Immediate item whose elements are not whole bytes, which senders pad differently.
    #[error(
        "immediate item {name:?} has {bits} bits, no whole bytes, and SPEAD does not say where \
         they stand; read its value itself"
    )]
    RaggedImmediate {
        /// Name of the item.
        name: String,
        /// Bits that the shape needs.
        bits: u64,
    },
}

/// One number, truth value or character of an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementValue {
    /// Truth value.
    Bool(bool),
    /// Character in ASCII.
    Character(u8),
    /// Integer without sign.
    Unsigned(u64),
    /// Integer with sign.
    Signed(i64),
    /// Float.
    Float(f64),
    /// Complex number.
    Complex {
        /// Real part.
        re: f64,
        /// Imaginary part.
        im: f64,
    },
}

impl ElementValue {
    /// Value as a float, rounded if need be. Truth values are 0 and 1; complex numbers and
    /// characters are none.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Bool(value) => Some(f64::from(u8::from(value))),
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            Self::Character(_) | Self::Complex { .. } => None,
        }
    }
}

/// Kind of a field, of which elements consist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    Bool,
    Character,
    Unsigned,
    Signed,
    Float,
    Complex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    kind: FieldKind,
    bits: u32,
    is_little_endian: bool,
}

/// Item as an array of numbers, whose bytes are read as the values are asked for.
#[derive(Clone, Debug)]
pub struct ItemArray<'a> {
    shape: Vec<u64>,
    fields: Vec<Field>,
    fortran_order: bool,
    elements: u64,
    bytes: Cow<'a, [u8]>,
}

impl ItemArray<'_> {
    /// Length of each axis. A scalar has none.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Whether the first axis varies fastest in [`values`](Self::values). Otherwise the last does.
    pub fn is_fortran_order(&self) -> bool {
        self.fortran_order
    }

    /// Number of values: elements times fields of an element.
    pub fn len(&self) -> usize {
        self.elements as usize * self.fields.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values in the order of the item's bytes. Elements of several fields have as many values.
    pub fn values(&self) -> impl Iterator<Item = ElementValue> + '_ {
        let mut at = 0;
        (0..self.elements).flat_map(move |_| {
            let first = at;
            at += element_bits(&self.fields);
            let mut at = first;
            self.fields.iter().map(move |field| {
                let value = field.read(&self.bytes, at);
                at += u64::from(field.bits);
                value
            })
        })
    }

    /// The only value; `None` for an array of none or several.
    pub fn scalar(&self) -> Option<ElementValue> {
        let mut values = self.values();
        values.next().filter(|_| self.len() == 1)
    }

    /// Values as floats, rounded if need be; `None` if one of them is complex or a character.
    pub fn to_f64(&self) -> Option<Vec<f64>> {
        self.values().map(ElementValue::as_f64).collect()
    }

    /// Text of an array of characters; `None` for other arrays, and for characters beyond ASCII.
    pub fn text(&self) -> Option<String> {
        let character = |value| match value {
            ElementValue::Character(byte) if byte.is_ascii() => Some(char::from(byte)),
            _ => None,
        };
        self.values().map(character).collect()
    }
}

fn element_bits(fields: &[Field]) -> u64 {
    fields.iter().map(|field| u64::from(field.bits)).sum()
}

impl Field {
    fn from_format(kind: char, bits: u16) -> Option<Self> {
        let kind = match (kind, bits) {
            ('u', 1..=64) => FieldKind::Unsigned,
            ('i', 1..=64) => FieldKind::Signed,
            ('b', 1..=64) => FieldKind::Bool,
            ('f', 32 | 64) => FieldKind::Float,
            ('c', 8) => FieldKind::Character,
            _ => return None,
        };
        Some(Self {
            kind,
            bits: bits.into(),
            is_little_endian: false,
        })
    }

    fn from_dtype(descr: &str) -> Option<Self> {
        let mut characters = descr.chars();
        let (order, kind) = (characters.next()?, characters.next()?);
        let (kind, bytes) = match (kind, characters.as_str()) {
            ('b', "1") => (FieldKind::Bool, 1),
            ('S', "1") => (FieldKind::Character, 1),
            ('u', size @ ("1" | "2" | "4" | "8")) => (FieldKind::Unsigned, size.parse().ok()?),
            ('i', size @ ("1" | "2" | "4" | "8")) => (FieldKind::Signed, size.parse().ok()?),
            ('f', size @ ("4" | "8")) => (FieldKind::Float, size.parse().ok()?),
            ('c', size @ ("8" | "16")) => (FieldKind::Complex, size.parse().ok()?),
            _ => return None,
        };
        if !matches!((order, bytes), ('<' | '>', _) | ('|', 1)) {
            return None;
        }
        Some(Self {
            kind,
            bits: 8 * bytes,
            is_little_endian: order == '<',
        })
    }

    /// Reads the field whose first bit is `at`.
    fn read(&self, bytes: &[u8], at: u64) -> ElementValue {
        let word = |part: u32, bits: u32| {
            let word = bits_at(bytes, at + u64::from(part), bits);
            match self.is_little_endian {
                true => word.swap_bytes() >> (64 - bits),
                false => word,
            }
        };
        let float = |part: u32, bits: u32| match bits {
            32 => f64::from(f32::from_bits(word(part, 32) as u32)),
            _ => f64::from_bits(word(part, 64)),
        };
        let half = self.bits / 2;
        match self.kind {
            FieldKind::Bool => ElementValue::Bool(word(0, self.bits) != 0),
            FieldKind::Character => ElementValue::Character(word(0, self.bits) as u8),
            FieldKind::Unsigned => ElementValue::Unsigned(word(0, self.bits)),
            FieldKind::Signed => {
                let unused = 64 - self.bits;
                ElementValue::Signed((word(0, self.bits) << unused) as i64 >> unused)
            }
            FieldKind::Float => ElementValue::Float(float(0, self.bits)),
            FieldKind::Complex => ElementValue::Complex {
                re: float(0, half),
                im: float(half, half),
            },
        }
    }
}

/// Reads up to 64 bits from bit `at` on, the most significant one first. Past the end they are 0.
fn bits_at(bytes: &[u8], at: u64, bits: u32) -> u64 {
    let first = (at / 8) as usize;
    let skipped = (at % 8) as u32;
    let count = (skipped + bits).div_ceil(8);
    let byte = |n: u32| bytes.get(first + n as usize).copied().unwrap_or(0);
    let word = (0..count).fold(0, |word: u128, n| word << 8 | u128::from(byte(n)));
    let word = word >> (8 * count - skipped - bits);
    (word & ((1 << bits) - 1)) as u64
}

impl Descriptor {
    /// Interprets an item that has this descriptor.
    ///
    /// ```
    /// use spead::descriptor::ElementType;
    /// use spead::{Descriptor, ElementValue, HeapAssembler, HeapBuilder, PacketSize};
    ///
    /// // Three samples of 12 bits: 1, -1, 2.
    /// let sent = HeapBuilder::new(1).addressed(0x3300, &[0x00, 0x1f, 0xff, 0x00, 0x20]);
    /// let packet = sent.packets(PacketSize::Whole(1472))?.next().expect("a packet");
    /// let heap = HeapAssembler::default().add_packet(&packet)?.expect("a heap");
    ///
    /// let descriptor = Descriptor {
    ///     id: 0x3300,
    ///     name: "adc_samples".into(),
    ///     description: "Voltages".into(),
    ///     shape: vec![None],
    ///     element: ElementType::Format(vec![('i', 12)]),
    /// };
    /// let samples = descriptor.interpret(&heap.item(0x3300).expect("samples"))?;
    /// assert_eq!(samples.shape(), [3]);
    /// assert_eq!(samples.to_f64(), Some(vec![1.0, -1.0, 2.0]));
    /// assert_eq!(samples.values().next(), Some(ElementValue::Signed(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ItemError`] has a variant for each way in which item and descriptor do not fit. The item's
    /// identifier is not compared.
    pub fn interpret<'a>(&self, item: &Item<'a>) -> Result<ItemArray<'a>, ItemError> {
        let name = || self.name.clone();
        let (fields, fortran_order) = self.fields()?;
        let element = element_bits(&fields);
        let bits = match item.content {
            ItemContent::Immediate(_) => u64::from(item.immediate_bits),
            ItemContent::Addressed(bytes) => 8 * bytes.len() as u64,
        };
        let shape = self.shape_within(bits / element)?;
        let too_short = || ItemError::TooShort {
            name: name(),
            bits,
            shape: shape.clone(),
            element: element as u32,
        };
        let elements = element_count(&shape).ok_or_else(too_short)?;
        if elements > bits / element {
            return Err(too_short());
        }
        let bytes = match item.content {
            ItemContent::Addressed(bytes) => Cow::Borrowed(bytes),
            // The value stands in the low bits.
            ItemContent::Immediate(_) if !(elements * element).is_multiple_of(8) => {
                return Err(ItemError::RaggedImmediate {
                    name: name(),
                    bits: elements * element,
                });
            }
            ItemContent::Immediate(value) => {
                let unused = 8 - (elements * element / 8) as usize;
                Cow::Owned(value.to_be_bytes()[unused..].to_vec())
            }
        };
        Ok(ItemArray {
            shape,
            fields,
            fortran_order,
            elements,
            bytes,
        })
    }

    /// Returns the fields of an element, and whether the first axis varies fastest.
    fn fields(&self) -> Result<(Vec<Field>, bool), ItemError> {
        match &self.element {
            ElementType::Format(format) => {
                let field = |&(kind, bits): &(char, u16)| {
                    Field::from_format(kind, bits).ok_or_else(|| ItemError::UnknownField {
                        name: self.name.clone(),
                        kind,
                        bits,
                    })
                };
                let fields: Vec<Field> = format.iter().map(field).collect::<Result<_, _>>()?;
                if fields.is_empty() {
                    return Err(ItemError::UnknownField {
                        name: self.name.clone(),
                        kind: ' ',
                        bits: 0,
                    });
                }
                Ok((fields, false))
            }
            ElementType::Numpy {
                descr,
                fortran_order,
            } => match Field::from_dtype(descr) {
                Some(field) => Ok((vec![field], *fortran_order)),
                None => Err(ItemError::UnknownDtype {
                    name: self.name.clone(),
                    descr: descr.clone(),
                }),
            },
        }
    }

    /// Returns the shape of an item with room for `elements` elements: an axis of variable length
    /// takes what the others leave.
    fn shape_within(&self, elements: u64) -> Result<Vec<u64>, ItemError> {
        let axes = self.shape.iter().filter(|length| length.is_none()).count();
        if axes > 1 {
            return Err(ItemError::SeveralVariableAxes {
                name: self.name.clone(),
                axes,
            });
        }
        let fixed: Vec<u64> = self.shape.iter().copied().flatten().collect();
        let length = match element_count(&fixed) {
            Some(product @ 1..) => elements / product,
            _ => 0,
        };
        Ok(self
            .shape
            .iter()
            .map(|axis| axis.unwrap_or(length))
            .collect())
    }
}

/// Elements of an array; `None` if there are more than 64 bits can count.
fn element_count(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1u64, |product, axis| product.checked_mul(*axis))
}

#[cfg(test)]
mod tests;
