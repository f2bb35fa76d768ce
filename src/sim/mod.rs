//! Digitiser simulator and fault injection.
