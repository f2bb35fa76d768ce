//! The program's commands, run as a user runs them, on files.

#[path = "../support/mod.rs"]
mod support;

mod bench_engine;
mod bench_ports;
mod cli;
mod documents;
mod dsim;
mod dsim_signals;
mod dsim_times;
mod examples;
mod extremes;
mod face;
mod fgpu;
mod flow;
mod flow_bench;
mod flow_blocks;
mod flow_mistakes;
mod flow_waits;
mod full_disk;
mod logs;
mod manual;
mod memory;
mod mistakes;
mod modem;
mod modem_hostile;
mod modem_input;
mod modem_link;
mod modem_mistakes;
mod modem_numbers;
mod modem_recordings;
mod modem_streams;
mod outputs;
mod pipes;
mod plan;
mod qualify;
mod rejections;
mod replay;
mod spead2;
mod top;
mod tune;
mod upgrade;
mod version;
