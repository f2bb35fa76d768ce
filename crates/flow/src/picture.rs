//! Pictures of boxes with arrows between them, as SVG.

use std::fmt::Write;

use quick_xml::escape::escape;

const WIDTH: usize = 210;
const GAP: usize = 130;
/// Beside the boxes: arrows back leave and come as wide as this.
const MARGIN: usize = 40;
const LINE: usize = 16;
/// Characters that fit a line of a box.
const FITS: usize = 30;

/// A box. The first line is its name.
pub(crate) struct Block {
    pub lines: Vec<String>,
    pub red: bool,
}

/// An arrow between two boxes, by their indices.
pub(crate) struct Arrow {
    pub from: usize,
    pub to: usize,
    pub label: String,
    pub red: bool,
}

/// Where a box lies.
struct BoxPlace {
    column: usize,
    y: usize,
    height: usize,
}

fn escaped(text: &str) -> String {
    // XML has no control characters but tabs and ends of lines.
    let text: String = text.chars().filter(|sign| !sign.is_control()).collect();
    escape(text).into_owned()
}

fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= FITS {
        return text.into();
    }
    let tail: String = text.chars().skip(count - FITS + 1).collect();
    format!("…{tail}")
}

/// The first of many names, and how many are left out.
pub(crate) fn some(names: &[String], most: usize) -> Vec<String> {
    let mut shown: Vec<String> = names.iter().take(most).cloned().collect();
    if names.len() > most {
        shown.push(format!("and {} more", names.len() - most));
    }
    shown
}

/// Draws boxes from left to right as the arrows go. Arrows back, and those past a column, go below.
pub(crate) fn draw(blocks: &[Block], arrows: &[Arrow]) -> String {
    let columns = columns(blocks.len(), arrows);
    let mut places: Vec<BoxPlace> = Vec::new();
    for (block, &column) in blocks.iter().zip(&columns) {
        let above = places.iter().filter(|place| place.column == column);
        let y = 20 + above.map(|place| place.height + 40).sum::<usize>();
        let height = block.lines.len() * LINE + 14;
        places.push(BoxPlace { column, y, height });
    }
    let last = columns.iter().max().copied().unwrap_or(0);
    let width = last * (WIDTH + GAP) + WIDTH + 2 * MARGIN;
    let height = places
        .iter()
        .map(|place| place.y + place.height)
        .max()
        .unwrap_or(0)
        + 80;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{MARGIN} 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    );
    for arrow in arrows {
        let (from, to) = (&places[arrow.from], &places[arrow.to]);
        let (x1, x2) = (
            from.column * (WIDTH + GAP) + WIDTH,
            to.column * (WIDTH + GAP),
        );
        let (y1, y2) = (from.y + from.height / 2, to.y + to.height / 2);
        let low = if to.column == from.column + 1 {
            0
        } else {
            from.height.max(to.height) / 2 + 40
        };
        let color = if arrow.red { "#c00" } else { "#555" };
        let _ = writeln!(
            svg,
            "<path d=\"M{x1} {y1}C{} {} {} {} {x2} {y2}\" fill=\"none\" stroke=\"{color}\" \
             marker-end=\"url(#tip)\"/>\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" \
             fill=\"{color}\">{}</text>",
            x1 + GAP / 2,
            y1 + low,
            x2 as i64 - GAP as i64 / 2,
            y2 + low,
            usize::midpoint(x1, x2),
            usize::midpoint(y1, y2) + low * 3 / 4 - 4,
            escaped(&arrow.label)
        );
    }
    for (block, place) in blocks.iter().zip(&places) {
        let x = place.column * (WIDTH + GAP);
        let (color, stroke) = if block.red { ("#c00", 2) } else { ("#333", 1) };
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"{WIDTH}\" height=\"{}\" rx=\"4\" fill=\"#fff\" \
             stroke=\"{color}\" stroke-width=\"{stroke}\"/>",
            place.y, place.height
        );
        for (number, line) in block.lines.iter().enumerate() {
            let weight = if number == 0 {
                " font-weight=\"bold\""
            } else {
                ""
            };
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\"{weight}>{}</text>",
                x + 8,
                place.y + 18 + number * LINE,
                escaped(&shortened(line))
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The column of each box: one behind the furthest that it has an arrow from, without those that go
/// back.
fn columns(count: usize, arrows: &[Arrow]) -> Vec<usize> {
    const NEW: u8 = 0;
    const OPEN: u8 = 1;
    const DONE: u8 = 2;
    // Depth first: an arrow to a box that is still being followed goes back.
    let mut state = vec![NEW; count];
    let mut forward: Vec<(usize, usize)> = Vec::new();
    for start in 0..count {
        if state[start] != NEW {
            continue;
        }
        state[start] = OPEN;
        let mut stack = vec![(start, 0)];
        while let Some((at, next)) = stack.pop() {
            let Some(arrow) = arrows.get(next) else {
                state[at] = DONE;
                continue;
            };
            stack.push((at, next + 1));
            if arrow.from != at || arrow.to == at {
                continue;
            }
            if state[arrow.to] != OPEN {
                forward.push((at, arrow.to));
            }
            if state[arrow.to] == NEW {
                state[arrow.to] = OPEN;
                stack.push((arrow.to, 0));
            }
        }
    }
    let mut columns = vec![0; count];
    for _ in 0..count {
        for &(from, to) in &forward {
            columns[to] = columns[to].max(columns[from] + 1);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow(from: usize, to: usize) -> Arrow {
        Arrow {
            from,
            to,
            label: "a<b".into(),
            red: false,
        }
    }

    #[test]
    fn boxes_stand_behind_what_they_read_from() {
        let arrows = [arrow(2, 0), arrow(0, 1), arrow(2, 1), arrow(1, 1)];
        assert_eq!(columns(3, &arrows), [1, 2, 0]);
        // One arrow of a loop goes back, and nothing else does.
        let arrows = [arrow(0, 1), arrow(1, 2), arrow(2, 0), arrow(2, 3)];
        assert_eq!(columns(4, &arrows), [0, 1, 2, 3]);
    }

    #[test]
    fn a_picture_has_all_boxes_and_is_xml() {
        let block = |name: &str| Block {
            lines: vec![name.into(), "x".repeat(99)],
            red: true,
        };
        let svg = draw(&[block("a & b"), block("<c>")], &[arrow(0, 1), arrow(1, 0)]);
        let mut reader = quick_xml::Reader::from_str(&svg);
        let mut boxes = 0;
        loop {
            match reader.read_event().unwrap() {
                quick_xml::events::Event::Eof => break,
                quick_xml::events::Event::Empty(tag) => {
                    boxes += usize::from(tag.name().0 == b"rect")
                }
                _ => {}
            }
        }
        assert_eq!(boxes, 2);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;c&gt;"));
    }
}
