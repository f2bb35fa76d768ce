//! Measurements of this machine, for `karoo bench`.
