//! Values that the program picks where no option gives them.

use serde::Serialize;

/// A value that the program picked.
#[derive(Clone, Debug, Serialize)]
pub struct Decision {
    /// Option that would set it.
    pub option: String,
    /// Value picked.
    pub value: String,
    /// Why this value.
    pub why: String,
}
