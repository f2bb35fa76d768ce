use proptest::prelude::*;

use super::*;

/// Descriptors of 64 channels by 256 spectra, with free text as long as the golden packet's.
fn golden_lengths() -> Vec<Descriptor> {
    let mut descriptors = Descriptor::spectra(64, 256, 8);
    for (descriptor, len) in descriptors.iter_mut().zip([87, 53, 74, 87]) {
        descriptor.description = "x".repeat(len);
    }
    descriptors
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

#[test]
fn golden_heap() {
    let golden = bytes(
        "5304 0206 0000 0008 8001 0000 0000 006a 8002 0000 0000 02fd 8003 0000 0000 0000
         8004 0000 0000 02fd 0005 0000 0000 0000 0005 0000 0000 00b3 0005 0000 0000 0142
         0005 0000 0000 01e8
         5304 0206 0000 0009 8001 0000 0000 0001 8002 0000 0000 0063 8003 0000 0000 0000
         8004 0000 0000 0063 8014 0000 0000 1600 0010 0000 0000 0000 0011 0000 0000 0009
         0013 0000 0000 0060 0012 0000 0000 0063",
    );
    let heap = emit_heap(0x6a, &golden_lengths());
    assert_eq!(heap.len(), 837);
    assert_eq!(heap[..golden.len()], golden);
    assert_eq!(&heap[golden.len()..golden.len() + 9], b"timestamp");
    assert_eq!(heap[72 + 80 + 0x60..72 + 80 + 0x63], [0x75, 0x00, 0x30]);
    assert!(heap.ends_with(b"{'descr': '|i1', 'fortran_order': False, 'shape': (64, 256, 2, 2)}"));
}

#[test]
fn four_bit_heap_has_no_dtype() {
    let mut descriptors = golden_lengths();
    descriptors[3].element = ElementType::Format(vec![('i', 4)]);
    let heap = emit_heap(0x6a, &descriptors);
    assert_eq!(heap.len(), 766);
    let shape = bytes("00 000000000040 00 000000000100 00 000000000002 00 000000000002");
    assert!(heap.ends_with(&shape));
    let format = heap.len() - shape.len() - 3;
    assert_eq!(heap[format..format + 3], [0x69, 0x00, 0x04]);
}

#[test]
fn heaps_are_read_back() {
    for descriptors in [
        Descriptor::spectra(64, 256, 8),
        Descriptor::digitiser(4096, 10),
    ] {
        let heap = emit_heap(3, &descriptors);
        let packet = Packet::new_checked(&heap).unwrap();
        let read: Result<Vec<_>, _> = parse_heap(&packet).collect();
        assert_eq!(read, Ok(descriptors));
    }
}

#[test]
fn dtype_of_one_axis() {
    let header = numpy_header("<i2", true, &[Some(5)]);
    assert_eq!(
        header,
        "{'descr': '<i2', 'fortran_order': True, 'shape': (5,)}"
    );
    let (element, shape) = parse_dtype(&header).unwrap();
    assert_eq!(shape, [5]);
    assert_eq!(
        element,
        ElementType::Numpy {
            descr: "<i2".to_owned(),
            fortran_order: true
        }
    );
    for wrong in [
        "",
        "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': ()}",
        "{'descr': '<i2'}",
    ] {
        assert_eq!(
            parse_dtype(wrong).unwrap_err().cause(),
            "descriptor-bad-dtype"
        );
    }
}

#[test]
fn damage_has_a_cause() {
    let whole = Descriptor::digitiser(4096, 10)[3].emit();
    assert_eq!(
        Descriptor::parse(&whole[..20]).unwrap_err().cause(),
        "items-past-end"
    );
    let mut without_id = whole.clone();
    without_id[41] = 0x7f;
    assert_eq!(
        Descriptor::parse(&without_id),
        Err(DescriptorError::Missing("identifier"))
    );
    let mut without_name = whole.clone();
    without_name[49] = 0x7f;
    assert_eq!(
        Descriptor::parse(&without_name),
        Err(DescriptorError::Missing("name"))
    );
    let mut ragged = whole.clone();
    // The shape begins one byte early, so that format and shape are both ragged.
    ragged[79] -= 1;
    assert_eq!(
        Descriptor::parse(&ragged).unwrap_err().cause(),
        "descriptor-ragged"
    );
}

proptest! {
    #[test]
    fn emit_then_parse_is_identity(
        id in 0..1u64 << 48,
        name in "\\PC{0,20}",
        description in "\\PC{0,60}",
        dims in proptest::collection::vec(0..1u64 << 48, 0..5),
        variable: bool,
        numpy in proptest::option::of(any::<bool>()),
        fields in proptest::collection::vec(
            (prop_oneof![Just('u'), Just('i'), Just('f'), Just('c')], any::<u16>()), 1..4),
    ) {
        let mut shape: Vec<Option<u64>> = dims.into_iter().map(Some).collect();
        let element = match numpy {
            Some(fortran_order) => ElementType::Numpy { descr: "<f4".to_owned(), fortran_order },
            None => {
                if variable {
                    shape.push(None);
                }
                ElementType::Format(fields)
            }
        };
        let descriptor = Descriptor { id, name, description, shape, element };
        prop_assert_eq!(Descriptor::parse(&descriptor.emit()), Ok(descriptor));
    }
}
