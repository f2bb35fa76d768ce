//! Nodes become operations.

use super::*;
use crate::kernels::Making;
use crate::kernels::lane::bits;
use crate::literal::Literals;
use crate::number::Number;
use crate::value::Value;

impl CodeBuilder<'_> {
    /// Takes a unit in, as code if all its nodes have some.
    pub(super) fn add_unit(&mut self, unit: Unit) {
        let (items, kind) = match unit {
            Unit::Whole(item) => (vec![item], Kind::Vector),
            Unit::Recall(item) => (vec![item], Kind::Cut),
            Unit::BySample(items) => (items, Kind::Loop),
            // Made of the delay that was met before.
            Unit::Remember(_) => return,
        };
        let found = items
            .iter()
            .filter_map(|&item| self.partition.items[item].as_ref());
        let Some(period) = found.clone().map(|item| item.period).next() else {
            return;
        };
        let enables = found.clone().map(|item| &item.enables).next();
        let alike = found
            .clone()
            .all(|item| Some(&item.enables) == enables && item.period == period);
        let context = enables.filter(|enables| alike && !enables.is_empty());
        let context = context.map(|enables| self.context(&items, enables, period));
        let mark = self.code.mark();
        self.now = items.clone();
        if alike && items.iter().all(|&item| self.emit(item, context)) {
            let ops = std::mem::take(&mut self.code.ops);
            self.units.push(OpGroup {
                items: items.clone(),
                ops,
                kind,
                period,
                context,
            });
            self.hold(&items, period, context);
            return;
        }
        self.code.back_to(mark);
        self.compacted
            .retain(|_, planes| (planes.re.0 as usize) < mark.0);
        let partition = self.partition;
        let items_of = items
            .iter()
            .filter_map(|&item| partition.items[item].as_ref());
        for signal in items_of.flat_map(|item| &item.to) {
            self.inner.remove(signal);
        }
        let (ops, kind, context) = (vec![], Kind::Slow, None);
        self.units.push(OpGroup {
            items,
            ops,
            kind,
            period,
            context,
        });
    }

    /// The context of some enable signals at one rate, for a constant may enable nodes of several.
    /// Where it is new, its samples are found from here on, for
    /// the nodes that are the first in it.
    fn context(&mut self, items: &[usize], enables: &[usize], period: u64) -> usize {
        if let Some(known) = self
            .contexts
            .iter()
            .position(|known| known.enables == enables && known.period == period)
        {
            return known;
        }
        let context = self.contexts.len();
        self.contexts.push(Context {
            enables: enables.to_vec(),
            period,
        });
        (self.code.period, self.code.context) = (period, None);
        let from = enables
            .iter()
            .map(|&signal| self.input(signal, None).re)
            .collect();
        self.units.push(OpGroup {
            items: items.to_vec(),
            ops: vec![Op::Enable { context, from }],
            kind: Kind::Vector,
            period,
            context: None,
        });
        context
    }

    /// What is made in a context, for all samples: each time the last that there was.
    fn hold(&mut self, items: &[usize], period: u64, context: Option<usize>) {
        let Some(context) = context else {
            return;
        };
        let partition = self.partition;
        let mut ops = Vec::new();
        for item in items
            .iter()
            .filter_map(|&item| partition.items[item].as_ref())
        {
            for &signal in &item.to {
                let (outer, inner) = (self.signals[signal], self.inner[&signal].1);
                let (re, im) = Initial::of(std::slice::from_ref(&partition.shapes[signal].rest));
                let mut expand = |d: Reg, a: Reg, initial: Initial| {
                    ops.push(Op::Expand { d, a, context });
                    (self.code.period, self.code.context) = (period, None);
                    // This asks for the room that the sample before lies in.
                    let plane = self.code.plane(d);
                    let past = self.code.reg(plane.scalar, plane.len);
                    ops.push(Op::Past {
                        d: past,
                        a: d,
                        by: 1,
                        initial,
                    });
                };
                expand(outer.re, inner.re, re);
                if let Some((d, a)) = outer.im.zip(inner.im) {
                    expand(d, a, im);
                }
            }
        }
        self.units.push(OpGroup {
            items: items.to_vec(),
            ops,
            kind: Kind::Vector,
            period,
            context: None,
        });
    }

    /// Whether a node has code, which is then taken.
    fn emit(&mut self, index: usize, context: Option<usize>) -> bool {
        let partition = self.partition;
        let Some(item) = partition.items[index].as_ref() else {
            return true;
        };
        (self.code.period, self.code.context) = (item.period, context);
        self.code.parameter = None;
        let inputs: Vec<Planes> = item
            .from
            .iter()
            .map(|&signal| self.input(signal, context))
            .collect();
        let outputs: Vec<Planes> = item
            .to
            .iter()
            .map(|&signal| self.output(signal, context))
            .collect();
        self.code.parameter = item.parameter;
        let emitted = item.node.emit(&mut self.code, &inputs, &outputs);
        self.code.parameter = None;
        emitted
    }

    /// The runs of an output, made where they are needed first.
    fn output(&mut self, signal: usize, context: Option<usize>) -> Planes {
        let Some(context) = context else {
            return self.signals[signal];
        };
        if let Some(&(_, planes)) = self.inner.get(&signal) {
            return planes;
        }
        let planes = self.code.port(self.partition.shapes[signal].kind);
        self.inner.insert(signal, (context, planes));
        planes
    }

    /// The runs of an input; a constant gets some of its reader's rate.
    fn input(&mut self, signal: usize, context: Option<usize>) -> Planes {
        let shape = &self.partition.shapes[signal];
        if let Some(value) = &shape.constant {
            let kind = value.kind();
            if shape.parameter.is_some() {
                return self.changeable(value, shape.parameter);
            }
            let re = self.code.constant(kind.scalar, kind.len, value.re());
            let im = kind
                .complex
                .then(|| self.code.constant(kind.scalar, kind.len, value.im()));
            return Planes { kind, re, im };
        }
        let outer = self.signals[signal];
        let Some(context) = context else {
            return outer;
        };
        if self.makes(signal, context) {
            return self.output(signal, Some(context));
        }
        if let Some(&known) = self.compacted.get(&(signal, context)) {
            return known;
        }
        let planes = self.code.port(outer.kind);
        self.code.push(Op::Compact {
            d: planes.re,
            a: outer.re,
            context,
        });
        if let Some((d, a)) = planes.im.zip(outer.im) {
            self.code.push(Op::Compact { d, a, context });
        }
        self.compacted.insert((signal, context), planes);
        planes
    }

    /// A constant that may change.
    fn changeable(&mut self, value: &Value, parameter: Option<usize>) -> Planes {
        let kind = value.kind();
        let parts = (0..kind.len).map(|index| value.element(index)).collect();
        let numbers = Literals::new(parts).unwrap_or(0.into());
        let code = &mut self.code;
        let mut run = |part: fn(&Value) -> &[Number]| {
            let making = Making::new(move |numbers: &Literals| {
                let value = numbers.value(kind).unwrap_or_else(|_| Value::zero(kind));
                let parts = part(&value).iter();
                parts.map(|&number| bits(number, kind.scalar)).collect()
            });
            code.parameter = parameter;
            let reg = code.numbers(kind.scalar, kind.len, &numbers, making);
            code.parameter = None;
            reg
        };
        let re = run(Value::re);
        let im = kind.complex.then(|| run(Value::im));
        Planes { kind, re, im }
    }

    /// Whether a signal is made in a context, of nodes that have code.
    fn makes(&self, signal: usize, context: usize) -> bool {
        let made = self.inner.get(&signal);
        made.is_some_and(|&(made, _)| made == context)
            || self.now.iter().any(|&item| {
                let item = self.partition.items[item].as_ref();
                item.is_some_and(|item| item.to.contains(&signal))
            })
    }
}
