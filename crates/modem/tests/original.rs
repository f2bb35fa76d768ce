//! Frames held against the original's own framing code, `cyclopsASCIILink`. It is compiled where
//! `KAROO_CYCLOPS_SOURCE` names its folder (the one with `src/cyclopsFraming.c`); without, the
//! tests say so and pass. `scripts/check-release` wants it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use karoo_modem::waveform::{CheckField, Frame, Header, Modulation, Scrambler, pad_message};

/// Writes symbols of a frame with its message from standard input, then their modulations.
const DRIVER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "cyclopsFraming.h"
int main(int argc, char **argv) {
    static char message[20000];
    static unsigned char scrambler[MAX_PAYLOAD_PLUS_CRC_LEN];
    static uint8_t symbols[MAX_PACKET_SYMBOL_LEN], modulations[MAX_PACKET_SYMBOL_LEN];
    size_t length = fread(message, 1, sizeof message - 1, stdin);
    message[length] = 0;
    if (atoi(argv[3])) {
        srand(999);
        for (int i = 0; i < MAX_PAYLOAD_PLUS_CRC_LEN; i++) scrambler[i] = rand() % 256;
    }
    int address = atoi(argv[2]), used = 0;
    int count = createRawCyclopsFrame(symbols, modulations, address, address, address,
                                      atoi(argv[1]), message, &used, scrambler);
    fwrite(symbols, 1, count, stdout);
    fwrite(modulations, 1, count, stdout);
    return 0;
}
"#;

/// What the generated headers of the original's transmitter and receiver would say.
const HEADERS: [(&str, &str); 5] = [
    (
        "vitisTypes.h",
        "#include <stdbool.h>\ntypedef bool vitisBool_t;\n",
    ),
    ("rx_demo_io_linux_pipe.h", ""),
    ("tx_demo_io_linux_pipe.h", ""),
    (
        "rx_demo_parameters.h",
        "#define RX_DEMO_OUTPUT_BUNDLE1_BLOCKSIZE 40\n",
    ),
    (
        "tx_demo_parameters.h",
        "#define TX_DEMO_INPUT_BUNDLE1_BLOCKSIZE 40\n",
    ),
];

/// The original's framing code as a program in `folder`.
fn build(source: &Path, folder: &Path) -> PathBuf {
    let headers = folder.join("vitisIncludes");
    fs::create_dir(&headers).unwrap();
    for (name, text) in HEADERS {
        fs::write(headers.join(name), text).unwrap();
    }
    let (driver, program) = (folder.join("driver.c"), folder.join("driver"));
    fs::write(&driver, DRIVER).unwrap();
    let code = source.join("src");
    let built = Command::new("cc")
        .args(["-w", "-O1", "-I"])
        .arg(folder)
        .arg("-I")
        .arg(&code)
        .arg(&driver)
        .arg(code.join("cyclopsFraming.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    program
}

#[test]
fn symbols_are_those_of_the_originals_framing_code() {
    let Some(source) = env::var_os("KAROO_CYCLOPS_SOURCE") else {
        println!("no framing code of the original: KAROO_CYCLOPS_SOURCE names no cyclopsASCIILink");
        return;
    };
    let code = Path::new(&source).join("src/cyclopsFraming.c");
    let there = code.is_file();
    assert!(
        there,
        "KAROO_CYCLOPS_SOURCE: {} is not there",
        code.display()
    );
    let folder = tempfile::tempdir().unwrap();
    let program = build(Path::new(&source), folder.path());
    let text: Vec<u8> = (0..15_000u32).map(|i| b'a' + (i * i % 26) as u8).collect();
    for (code, modulation) in (0u8..).zip(Modulation::CYCLOPS) {
        for (length, address, scrambled) in [(0, 0, 1), (1, 5, 0), (1001, 63, 1), (15_000, 17, 1)] {
            let message = &text[..length];
            let path = folder.path().join("message");
            fs::write(&path, message).unwrap();
            let run = Command::new(&program)
                .args([modulation.bits(), address, scrambled].map(|n| n.to_string()))
                .stdin(Stdio::from(fs::File::open(&path).unwrap()))
                .output()
                .unwrap();
            assert!(run.status.success());
            let (symbols, modulations) = run.stdout.split_at(run.stdout.len() / 2);
            let (mut payload, _) = pad_message(message, modulation);
            if scrambled == 1 {
                Scrambler::demo().apply(&mut payload);
            }
            let header = Header {
                source: address as u8,
                destination: address as u8,
                network: address as u16,
                ..Header::new(modulation)
            };
            let frame = Frame::new(header, &payload, CheckField::Pad).unwrap();
            assert!(symbols == frame.symbols(), "{modulation} {length}");
            let ours = |k: usize| {
                if frame.modulation_at(k) == Modulation::Bpsk {
                    0
                } else {
                    code
                }
            };
            let ours: Vec<u8> = (0..symbols.len()).map(ours).collect();
            assert!(modulations == ours, "{modulation} {length}");
        }
    }
}
