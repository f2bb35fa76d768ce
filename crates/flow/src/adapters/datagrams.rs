//! Which datagrams are samples.

/// Decides which datagrams of an input are taken. A sample may span datagrams. But where all so far
/// were whole samples, one that is not is another program's, or damaged: all samples behind it
/// would be made of parts of two.
pub struct TakenDatagrams {
    /// Bytes of a sample.
    sample: usize,
    /// Whether any was taken, and all were whole samples.
    whole: Option<bool>,
    left_out: u64,
    tell: Box<dyn FnMut(usize, u64) + Send>,
}

impl TakenDatagrams {
    /// Of an input with samples of so many bytes. For each datagram that is left out `tell` gets
    /// its bytes, and how many have been left out by now.
    pub fn of_samples(
        sample: usize,
        tell: impl FnMut(usize, u64) + Send + 'static,
    ) -> TakenDatagrams {
        TakenDatagrams {
            sample: sample.max(1),
            whole: None,
            left_out: 0,
            tell: Box::new(tell),
        }
    }

    /// Whether a datagram of so many bytes, the next one, is taken.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let whole = bytes.is_multiple_of(self.sample);
        if self.whole == Some(true) && !whole {
            self.left_out += 1;
            (self.tell)(bytes, self.left_out);
            return false;
        }
        // An empty one says nothing of the others.
        if bytes > 0 {
            self.whole = Some(whole && self.whole != Some(false));
        }
        true
    }
}

/// Takes all datagrams: samples of a byte.
impl Default for TakenDatagrams {
    fn default() -> TakenDatagrams {
        TakenDatagrams::of_samples(1, |_, _| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sample: usize, datagrams: &[usize]) -> Vec<usize> {
        let mut taken = TakenDatagrams::of_samples(sample, |_, _| {});
        let all = datagrams.iter().copied();
        all.filter(|&bytes| taken.takes(bytes)).collect()
    }

    #[test]
    fn among_whole_samples_parts_are_left_out() {
        assert_eq!(taken(4, &[8, 1, 8, 0, 6, 12]), [8, 8, 0, 12]);
        assert_eq!(taken(1, &[8, 1, 7]), [8, 1, 7]);
    }

    #[test]
    fn samples_may_span_datagrams() {
        assert_eq!(taken(8, &[100, 100, 8, 100]), [100, 100, 8, 100]);
    }

    #[test]
    fn each_datagram_that_is_left_out_is_told() {
        let (to, told) = std::sync::mpsc::channel();
        let mut taken = TakenDatagrams::of_samples(2, move |bytes, so_far| {
            to.send((bytes, so_far)).unwrap();
        });
        for bytes in [4, 3, 4, 1] {
            taken.takes(bytes);
        }
        drop(taken);
        assert_eq!(told.iter().collect::<Vec<_>>(), [(3, 1), (1, 2)]);
    }
}
