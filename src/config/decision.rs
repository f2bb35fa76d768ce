//! Values that the program picks where no option gives them.

use schemars::JsonSchema;
use serde::Serialize;

/// A value that the program picked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Decision {
    /// Option that would set it.
    pub option: String,
    /// Value picked.
    pub value: String,
    /// Why this value.
    pub why: String,
}
