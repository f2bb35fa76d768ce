//! Where no machine code is made.

use super::execute::{Operation, View};
use super::lane::Lane;

/// A loop that can be called: there is none.
pub(crate) enum Compiled {}

impl Compiled {
    pub fn run(&mut self, _: &mut [Lane], _: usize) -> bool {
        match *self {}
    }
}

/// No code.
pub(crate) fn compile(_: &[Operation], _: &dyn Fn(View) -> bool, _: usize) -> Option<Compiled> {
    None
}
