//! Programs that take part.

use std::process::Command;

use super::contest::{Contestant, Work};

pub fn all(rivals: &[(String, String)], work: Work) -> Vec<Contestant> {
    let contestant = |(name, program): &(String, String)| {
        let program = program.clone();
        Contestant {
            name: name.clone(),
            ours: false,
            counts: true,
            run: Box::new(move |case, pauses| {
                let what = match work {
                    Work::Single => "single",
                    Work::Batch => "batch",
                    Work::Trip => "trip",
                };
                let (first, second) = case.cpus;
                let output = Command::new(program.replace("{bytes}", &case.bytes.to_string()))
                    .arg(what)
                    .args([case.bytes as u64, case.count].map(|number| number.to_string()))
                    .args([first, second, pauses as usize].map(|number| number.to_string()))
                    .arg(case.slots.to_string())
                    .output()
                    .ok()?;
                let text = String::from_utf8(output.stdout).ok()?;
                text.split_whitespace().last()?.parse().ok()
            }),
        }
    };
    rivals.iter().map(contestant).collect()
}
