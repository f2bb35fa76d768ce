//! Where the entry of a number is in a table.

/// The place of a float: its distance from `first`, times or over `by`, rounded down or to the
/// nearest, and within the table. That of not-a-number is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub nearest: bool,
    pub first: f64,
    pub by: f64,
    pub divide: bool,
    /// The last place that there is.
    pub last: f64,
}

impl Places {
    #[inline(always)]
    pub fn of(&self, number: f64) -> i32 {
        let from = number - self.first;
        let at = if self.divide {
            from / self.by
        } else {
            from * self.by
        };
        let at = if self.nearest { at + 0.5 } else { at };
        // Below the table is 0, not-a-number too.
        let at = if at > 0.0 { at } else { 0.0 };
        (if at < self.last { at } else { self.last }) as i32
    }
}
