//! Bytes that nobody should send.

use proptest::collection::vec;
use proptest::prelude::*;

mod packet;

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..256)) {
        packet::read(&bytes);
    }

    #[test]
    fn arbitrary_pointers_never_panic(words in vec(any::<u64>(), 0..16), tail in 0..64usize) {
        let mut bytes = (0x5304_0206_0000_0000 | words.len() as u64).to_be_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        bytes.resize(bytes.len() + tail, 0x5a);
        packet::read(&bytes);
    }
}
