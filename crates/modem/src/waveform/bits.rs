//! Bytes to symbols and back, least significant bit first.

/// Cuts bytes into integers of `bits` bits (1 to 8), in transmission order: the least significant
/// bit of a byte first, and the first bit as an integer's least significant one. Bits that fill no
/// integer at the end are left out.
pub fn unpack_bits(bytes: &[u8], bits: usize, symbols: &mut Vec<u8>) {
    let bits = bits.clamp(1, 8);
    let mask = (1u32 << bits) - 1;
    let (mut held, mut count) = (0u32, 0);
    symbols.reserve(bytes.len() * 8 / bits);
    for &byte in bytes {
        held |= u32::from(byte) << count;
        count += 8;
        while count >= bits {
            symbols.push((held & mask) as u8);
            held >>= bits;
            count -= bits;
        }
    }
}

/// Joins integers of `bits` bits (1 to 8) to bytes: the reverse of [`unpack_bits`]. Bits that fill
/// no byte at the end are left out.
pub fn pack_bits(symbols: &[u8], bits: usize, bytes: &mut Vec<u8>) {
    let bits = bits.clamp(1, 8);
    let mask = (1u32 << bits) - 1;
    let (mut held, mut count) = (0u32, 0);
    bytes.reserve(symbols.len() * bits / 8);
    for &symbol in symbols {
        held |= (u32::from(symbol) & mask) << count;
        count += bits;
        if count >= 8 {
            bytes.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_significant_bit_goes_out_first() {
        let mut symbols = Vec::new();
        unpack_bits(&[0b0001_0110], 1, &mut symbols);
        assert_eq!(symbols, [0, 1, 1, 0, 1, 0, 0, 0]);
        symbols.clear();
        unpack_bits(&[0x24, 0x40, 0x02], 6, &mut symbols);
        assert_eq!(symbols, [0x24, 0, 0x24, 0]);
    }

    proptest! {
        #[test]
        fn bytes_come_back(groups in 0usize..40, bits in 1usize..=8, seed: u8) {
            let bytes: Vec<u8> = (0..groups * bits)
                .map(|i| (i as u8).wrapping_mul(37) ^ seed)
                .collect();
            let (mut symbols, mut back) = (Vec::new(), Vec::new());
            unpack_bits(&bytes, bits, &mut symbols);
            prop_assert_eq!(symbols.len(), groups * 8);
            pack_bits(&symbols, bits, &mut back);
            prop_assert_eq!(back, bytes);
        }
    }
}
