//! Changes of numbers that a command line asks for.

use std::str::FromStr;

use karoo_flow::Literals;
use serde::Deserialize;

/// Other numbers for a node from a tick on.
#[derive(Clone, Debug)]
pub struct ChangeAt {
    pub path: String,
    pub numbers: Literals,
    pub tick: u64,
}

impl FromStr for ChangeAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Holder {
            numbers: Literals,
        }
        let form = || "write PATH=NUMBERS@TICK, such as low=[0.5, 0.5]@1000".to_owned();
        let (path, rest) = text.split_once('=').ok_or_else(form)?;
        let (numbers, tick) = rest.rsplit_once('@').ok_or_else(form)?;
        let tick = tick
            .trim()
            .parse()
            .map_err(|_| format!("`{tick}` is no tick; {}", form()))?;
        let read: Result<Holder, _> = toml::from_str(&format!("numbers = {numbers}"));
        let holder = read.map_err(|_| format!("`{numbers}` are no numbers; {}", form()))?;
        Ok(ChangeAt {
            path: path.trim().to_owned(),
            numbers: holder.numbers,
            tick,
        })
    }
}
