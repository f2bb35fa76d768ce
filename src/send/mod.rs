//! Packetiser and tx lcore.
