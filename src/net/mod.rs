//! Endpoints, frames, steering rules, capture files.
