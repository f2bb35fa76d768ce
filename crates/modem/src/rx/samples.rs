//! Samples of the stream by their positions.

/// Samples of the stream from an absolute position on.
#[derive(Clone, Copy)]
pub(crate) struct Samples<'a> {
    /// Real and imaginary parts in turn.
    pub values: &'a [f32],
    /// Position of the first.
    pub first: i64,
}

impl<'a> Samples<'a> {
    /// Samples `from..to`; `None` if they are not all there.
    pub fn range(&self, from: i64, to: i64) -> Option<&'a [f32]> {
        let at = |position: i64| usize::try_from(position - self.first).ok().map(|n| 2 * n);
        self.values.get(at(from)?..at(to)?)
    }
}
