use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn addressed(bytes: &[u8]) -> Item<'_> {
    Item {
        id: 0x1000,
        content: ItemContent::Addressed(bytes),
        immediate_bits: 48,
    }
}

fn immediate(value: u64) -> Item<'static> {
    Item {
        id: 0x1000,
        content: ItemContent::Immediate(value),
        immediate_bits: 48,
    }
}

fn format(shape: &[Option<u64>], fields: &[(char, u16)]) -> Descriptor {
    Descriptor {
        id: 0x1000,
        name: "it".to_owned(),
        description: String::new(),
        shape: shape.to_vec(),
        element: ElementType::Format(fields.to_vec()),
    }
}

fn values(descriptor: &Descriptor, item: Item<'_>) -> Vec<ElementValue> {
    let array = descriptor.interpret(&item).expect("numbers");
    let values: Vec<_> = array.values().collect();
    assert_eq!(values.len(), array.len());
    values
}

fn dtype(descr: &str, bytes: &[u8]) -> ElementValue {
    let descriptor = Descriptor::array(0x1000, "it", "", &[], descr);
    let array = descriptor.interpret(&addressed(bytes));
    array.expect("a number").scalar().expect("one value")
}

#[test]
fn types_of_numpy_are_read() {
    assert_eq!(dtype("|b1", &[1]), ElementValue::Bool(true));
    assert_eq!(dtype("|u1", &[200]), ElementValue::Unsigned(200));
    assert_eq!(dtype("|i1", &[200]), ElementValue::Signed(-56));
    assert_eq!(dtype("<u2", &[1, 2]), ElementValue::Unsigned(0x0201));
    assert_eq!(dtype(">u2", &[1, 2]), ElementValue::Unsigned(0x0102));
    assert_eq!(
        dtype("<i4", &(-7i32).to_le_bytes()),
        ElementValue::Signed(-7)
    );
    assert_eq!(
        dtype(">i8", &i64::MIN.to_be_bytes()),
        ElementValue::Signed(i64::MIN)
    );
    assert_eq!(
        dtype("<f4", &1.5f32.to_le_bytes()),
        ElementValue::Float(1.5)
    );
    assert_eq!(
        dtype(">f8", &0.1f64.to_be_bytes()),
        ElementValue::Float(0.1)
    );
    let complex = [2f32.to_le_bytes(), (-3f32).to_le_bytes()].concat();
    assert_eq!(
        dtype("<c8", &complex),
        ElementValue::Complex { re: 2.0, im: -3.0 }
    );
    let complex = [2f64.to_be_bytes(), (-3f64).to_be_bytes()].concat();
    assert_eq!(
        dtype(">c16", &complex),
        ElementValue::Complex { re: 2.0, im: -3.0 }
    );
    assert_eq!(dtype("|S1", b"x"), ElementValue::Character(b'x'));
    for descr in [
        "", "<", "f4", "=f4", "|f4", "<f2", "<i3", "<U1", "|S5", "|V8", "<i",
    ] {
        let descriptor = Descriptor::array(0x1000, "it", "", &[], descr);
        let error = descriptor.interpret(&addressed(&[0; 16])).unwrap_err();
        let (name, descr) = ("it".to_owned(), descr.to_owned());
        assert_eq!(error, ItemError::UnknownDtype { name, descr });
    }
}

#[test]
fn fields_of_bits_are_read() {
    let descriptor = format(&[Some(2)], &[('i', 4), ('u', 11), ('b', 1)]);
    // -1, 1025, true; 7, 2047, false.
    let bytes = [0b1111_1000, 0b0000_0011, 0b0111_1111, 0b1111_1110];
    assert_eq!(
        values(&descriptor, addressed(&bytes)),
        [
            ElementValue::Signed(-1),
            ElementValue::Unsigned(1025),
            ElementValue::Bool(true),
            ElementValue::Signed(7),
            ElementValue::Unsigned(2047),
            ElementValue::Bool(false),
        ]
    );
    let float = format(&[], &[('f', 32)]);
    assert_eq!(
        values(&float, addressed(&(-2.5f32).to_be_bytes())),
        [ElementValue::Float(-2.5)]
    );
    let text = format(&[None], &[('c', 8)]);
    let array = text.interpret(&addressed(b"MeerKAT")).unwrap();
    assert_eq!(array.text().as_deref(), Some("MeerKAT"));
    assert_eq!(array.to_f64(), None);
    assert_eq!(text.interpret(&addressed(&[0xe9])).unwrap().text(), None);
    for (kind, bits) in [
        ('u', 0),
        ('u', 65),
        ('i', 0),
        ('b', 0),
        ('f', 16),
        ('c', 7),
        ('x', 8),
    ] {
        let error = format(&[], &[('u', 8), (kind, bits)]).interpret(&addressed(&[0; 32]));
        let name = "it".to_owned();
        assert_eq!(
            error.unwrap_err(),
            ItemError::UnknownField { name, kind, bits }
        );
    }
    assert!(format(&[], &[]).interpret(&addressed(b"")).is_err());
}

#[test]
fn immediate_items_have_their_value_in_the_low_bits() {
    assert_eq!(
        values(&format(&[], &[('u', 48)]), immediate(0x1234_5678_9abc)),
        [ElementValue::Unsigned(0x1234_5678_9abc)]
    );
    assert_eq!(
        values(&format(&[], &[('i', 16)]), immediate(0xfffe)),
        [ElementValue::Signed(-2)]
    );
    let pair = Descriptor::array(0x1000, "it", "", &[2], "<u2");
    assert_eq!(
        values(&pair, immediate(0x0100_0200)),
        [1, 2].map(ElementValue::Unsigned)
    );
    assert_eq!(
        format(&[], &[('u', 12)])
            .interpret(&immediate(5))
            .unwrap_err(),
        ItemError::RaggedImmediate {
            name: "it".to_owned(),
            bits: 12
        }
    );
    let wide = Descriptor::array(0x1000, "it", "", &[], "<u8");
    assert!(matches!(
        wide.interpret(&immediate(5)),
        Err(ItemError::TooShort {
            bits: 48,
            element: 64,
            ..
        })
    ));
}

#[test]
fn an_axis_of_variable_length_takes_what_is_left() {
    let shape = |shape: &[Option<u64>], bytes: usize| {
        let bytes = vec![0; bytes];
        let array = format(shape, &[('u', 16)]).interpret(&addressed(&bytes));
        array.map(|array| (array.shape().to_vec(), array.len()))
    };
    assert_eq!(shape(&[None], 10), Ok((vec![5], 5)));
    assert_eq!(shape(&[Some(2), None], 10), Ok((vec![2, 2], 4)));
    assert_eq!(shape(&[None, Some(0)], 10), Ok((vec![0, 0], 0)));
    assert_eq!(shape(&[None, Some(9)], 10), Ok((vec![0, 9], 0)));
    assert_eq!(shape(&[Some(2), Some(2)], 10), Ok((vec![2, 2], 4)));
    assert_eq!(
        shape(&[None, None], 10).unwrap_err(),
        ItemError::SeveralVariableAxes {
            name: "it".to_owned(),
            axes: 2
        }
    );
    let error = shape(&[Some(3), Some(2)], 10).unwrap_err();
    assert_eq!(
        error.to_string(),
        "item \"it\" has 80 bits, too few for its shape [3, 2] of 16-bit elements"
    );
    // More elements than 64 bits can count.
    assert!(shape(&[Some(1 << 40), Some(1 << 40)], 10).is_err());
    assert_eq!(
        shape(&[Some(1 << 40), Some(1 << 40), Some(0)], 0)
            .unwrap()
            .1,
        0
    );
}

proptest! {
    /// Fields of any widths one after another, against a text of ones and zeros.
    #[test]
    fn fields_agree_with_their_bits_as_text(
        fields in vec((any::<bool>(), 1..=64u16), 1..5),
        bytes in vec(any::<u8>(), 0..64),
    ) {
        let format_fields: Vec<_> = fields
            .iter()
            .map(|(signed, bits)| (if *signed { 'i' } else { 'u' }, *bits))
            .collect();
        let descriptor = format(&[None], &format_fields);
        let text: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
        let mut rest = &text[..];
        for (n, value) in values(&descriptor, addressed(&bytes)).into_iter().enumerate() {
            let (signed, bits) = fields[n % fields.len()];
            let (digits, after) = rest.split_at(bits.into());
            rest = after;
            let number = u64::from_str_radix(digits, 2).unwrap();
            let expected = if !signed {
                ElementValue::Unsigned(number)
            } else if digits.starts_with('1') {
                ElementValue::Signed((i128::from(number) - (1 << bits)) as i64)
            } else {
                ElementValue::Signed(number as i64)
            };
            prop_assert_eq!(value, expected);
        }
        let element: usize = fields.iter().map(|(_, bits)| usize::from(*bits)).sum();
        prop_assert!(rest.len() < element);
    }
}
