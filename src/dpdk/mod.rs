//! Safe layer over DPDK.
#![allow(unsafe_code)]
