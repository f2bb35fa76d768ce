//! SPEAD wire format.
