//! A plan as a picture: sockets, caches and cores, coloured by what runs there, and the devices
//! below.

use std::fmt::Write as _;

use super::{EnginePlan, HostPlan, Role};
use crate::topology::Machine;

const CELL: usize = 36;
const GAP: usize = 8;
const LINE: usize = 18;
const PER_ROW: usize = 8;
const WIDTH: usize = 3 * GAP + 2 * (PER_ROW * CELL + 3 * GAP);

/// The plan as SVG. Each square is a CPU; frames are last-level caches; letters say what runs
/// there.
pub fn picture(plan: &HostPlan) -> String {
    let mut canvas = Canvas::default();
    canvas.text(GAP, &plan.machine.model, "title");
    canvas.y += LINE;
    for node in plan.machine.nodes.keys() {
        canvas.text(GAP, &format!("node {node}"), "");
        canvas.y += LINE / 2;
        caches(&mut canvas, plan, *node);
        devices(&mut canvas, plan, Some(*node));
    }
    devices(&mut canvas, plan, None);
    legend(&mut canvas);
    canvas.finish()
}

#[derive(Default)]
struct Canvas {
    y: usize,
    body: String,
}

impl Canvas {
    fn text(&mut self, x: usize, text: &str, class: &str) {
        self.y += LINE;
        let text = quick_xml::escape::escape(text);
        let _ = writeln!(
            self.body,
            r#"<text x="{x}" y="{}" class="{class}">{text}</text>"#,
            self.y
        );
    }

    fn frame(&mut self, [x, y, width, height]: [usize; 4], class: &str, title: &str) {
        let title = quick_xml::escape::escape(title);
        let _ = writeln!(
            self.body,
            r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" class="{class}"><title>{title}</title></rect>"#
        );
    }

    fn label(&mut self, x: usize, y: usize, text: &str) {
        let text = quick_xml::escape::escape(text);
        let _ = writeln!(
            self.body,
            r#"<text x="{x}" y="{y}" class="cpu">{text}</text>"#
        );
    }

    fn finish(self) -> String {
        let height = self.y + LINE;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"placement of threads on CPUs\">\n<style>\ntext{{font:12px sans-serif;fill:#222}}\n\
             .title{{font-weight:bold}}\n.cpu{{font-size:9px;text-anchor:middle}}\nrect{{stroke:#808080}}\n\
             .l3{{fill:none}}\n.free{{fill:#f4f4f4}}\n.rx{{fill:#8cc7e6}}\n.engine{{fill:#f2c14e}}\n.tx{{fill:#e8a27c}}\n\
             .source{{fill:#c6a5d8}}\n.worker{{fill:#a9d8a0}}\n.house{{fill:#bbb}}\n.shared{{fill:#e05a5a}}\n\
             .device{{fill:#fff}}\n</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\" stroke=\"none\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// What runs on a CPU: a colour, a word in it, and a sentence.
fn tenant(plan: &HostPlan, cpu: usize) -> (&'static str, String, String) {
    let mut names = Vec::new();
    let mut class = "free";
    let mut lcores = 0;
    let many = plan.engines.len() > 1;
    for (number, engine) in plan.engines.iter().enumerate() {
        let of = if many {
            format!(" {number}")
        } else {
            String::new()
        };
        for lcore in engine.lcores.iter().filter(|lcore| lcore.cpu == cpu) {
            names.push(format!("{}{of}", lcore.name));
            lcores += 1;
            class = match lcore.role {
                Role::Rx(_) => "rx",
                Role::Engine => "engine",
                Role::Tx(_) => "tx",
                Role::Source => "source",
            };
        }
        if engine.housekeeping.contains(cpu) {
            names.push(format!("control{of}"));
            lcores += usize::from(class != "free");
            class = if class == "free" { "house" } else { class };
        } else if class == "free" && engine.workers.iter().any(|worker| worker.cpu == cpu) {
            names.push(format!("cpu{of}"));
            class = "worker";
        }
    }
    let class = if lcores > 1 { "shared" } else { class };
    let word = match names.len() {
        0 => String::new(),
        1 => names[0].chars().take(8).collect(),
        count => format!("{count}×"),
    };
    (class, word, format!("CPU {cpu}: {}", names.join(", ")))
}

fn caches(canvas: &mut Canvas, plan: &HostPlan, node: usize) {
    let machine = &plan.machine;
    let mut column = 0;
    let mut tallest = 0;
    for l3 in machine.l3s(node) {
        let cores = cores(machine, node, l3);
        let threads = cores.iter().map(Vec::len).max().unwrap_or(1);
        let rows = cores.len().div_ceil(PER_ROW);
        let (width, height) = (
            cores.len().min(PER_ROW) * CELL + GAP,
            rows * (threads * CELL + GAP),
        );
        let x = GAP + column * (PER_ROW * CELL + 3 * GAP);
        let y = canvas.y + GAP;
        canvas.frame([x, y, width, height], "l3", &format!("cache of CPU {l3}"));
        for (index, core) in cores.iter().enumerate() {
            for (thread, &cpu) in core.iter().enumerate() {
                let at = (
                    x + GAP / 2 + index % PER_ROW * CELL,
                    y + GAP / 2 + index / PER_ROW * (threads * CELL + GAP) + thread * CELL,
                );
                let (class, word, sentence) = tenant(plan, cpu);
                canvas.frame([at.0, at.1, CELL - 2, CELL - 2], class, &sentence);
                canvas.label(at.0 + CELL / 2, at.1 + 11, &cpu.to_string());
                canvas.label(at.0 + CELL / 2, at.1 + 23, &word);
            }
        }
        tallest = tallest.max(height);
        column = (column + 1) % 2;
        if column == 0 {
            canvas.y += tallest + 2 * GAP;
            tallest = 0;
        }
    }
    if column > 0 {
        canvas.y += tallest + 2 * GAP;
    }
}

/// The CPUs of each core that a cache serves.
fn cores(machine: &Machine, node: usize, l3: usize) -> Vec<Vec<usize>> {
    let firsts = machine
        .cpus
        .iter()
        .filter(|(id, cpu)| cpu.node == node && cpu.l3 == l3 && machine.core(**id) == **id);
    firsts
        .map(|(_, cpu)| cpu.siblings.iter().collect())
        .collect()
}

fn devices(canvas: &mut Canvas, plan: &HostPlan, node: Option<usize>) {
    let machine = &plan.machine;
    let users = |used: &dyn Fn(&EnginePlan) -> bool| {
        let engines = plan
            .engines
            .iter()
            .enumerate()
            .filter(|(_, engine)| used(engine));
        let engines: Vec<_> = engines.map(|(number, _)| number.to_string()).collect();
        match engines.is_empty() {
            true => String::new(),
            false => format!(", engine {}", engines.join(", ")),
        }
    };
    let mut lines: Vec<(String, String)> = Vec::new();
    for (index, nic) in machine.nics.iter().enumerate() {
        if nic.pci.node == node {
            let used = users(&|engine| engine.nics.contains(&index));
            lines.push((nic.pci.root.clone(), format!("NIC {}{used}", nic.name)));
        }
    }
    for (index, gpu) in machine.gpus.iter().enumerate() {
        if gpu.pci.node == node {
            let used = users(&|e| e.gpu.as_ref().is_some_and(|g| g.index == index));
            let text = format!("GPU {} {}{used}", gpu.name, gpu.pci.address);
            lines.push((gpu.pci.root.clone(), text));
        }
    }
    lines.sort();
    for (bridge, text) in lines {
        let y = canvas.y + GAP / 2;
        canvas.frame([GAP, y, WIDTH - 2 * GAP, LINE + 4], "device", "device");
        canvas.text(2 * GAP, &format!("{bridge}: {text}"), "");
        canvas.y += GAP;
    }
    canvas.y += GAP;
}

fn legend(canvas: &mut Canvas) {
    const WORDS: [(&str, &str); 8] = [
        ("rx", "receives"),
        ("engine", "engine"),
        ("tx", "sends"),
        ("source", "capture"),
        ("worker", "computes"),
        ("house", "control"),
        ("shared", "shared"),
        ("free", "free"),
    ];
    let y = canvas.y + GAP;
    for (index, (class, word)) in WORDS.into_iter().enumerate() {
        let x = GAP + index * 78;
        canvas.frame([x, y, 10, 10], class, word);
        let _ = writeln!(
            canvas.body,
            r#"<text x="{}" y="{}">{word}</text>"#,
            x + 13,
            y + 10
        );
    }
    canvas.y = y + LINE;
}
