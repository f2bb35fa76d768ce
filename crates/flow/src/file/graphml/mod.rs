//! GraphML as Laminar's exporter writes it from Simulink: every node with the parameters of its
//! block.

mod choices;
mod ends;
mod kinds;
mod radio;
mod translate;
mod wires;
mod xml;

use super::Loaded;
use crate::problem::Problems;

pub(super) fn read(text: &str, file: &str) -> Result<Loaded, Problems> {
    let document = xml::parse(text, file)?;
    translate::translate(document, file)
}
