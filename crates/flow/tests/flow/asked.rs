//! Nodes of all kinds, made of wires of any types.

use karoo_flow::nodes::{
    Atan2, Bitwise, BitwiseOp, Comparison, Complex, Concat, Counter, Criterion, Demodulate, Dot,
    Fir, FirFromPort, Function, FunctionOf, Gain, Logic, LogicOp, Lookup, Lut, Modulate, Mux, Nco,
    Order, Product, Reinterpret, Saturate, SelectAt, Shift, ShiftKind, Sum, Switch, TappedDelay,
    constellation,
};
use karoo_flow::{Builder, Literals, Node, Number, Rounding, Scalar, Type, Wire};

use crate::fused::RELATIONS;
use crate::kinds::{Typed, number};

fn literals(parts: impl Iterator<Item = (Number, Number)>) -> Literals {
    Literals::new(parts.collect()).expect("there is a number")
}

fn longest(all: &[Typed]) -> usize {
    all.iter().map(|one| one.kind.len).max().unwrap_or(1)
}

/// What a node is made of: wires of one rate, and numbers that say all else.
pub struct Asked<'g> {
    pub g: &'g Builder,
    pub x: Typed<'g>,
    pub y: Typed<'g>,
    pub z: Typed<'g>,
    pub bits: u32,
    /// The number of the turn.
    pub number: u32,
}

impl<'g> Asked<'g> {
    /// A node of this number; none where it does not go with the wires.
    pub fn make(&self, what: u8) -> Option<Typed<'g>> {
        Some(match what % 33 {
            0 | 1 => self.sum(false),
            2 => self.sum(true),
            3 => self.gain(),
            4 => self.converted(),
            5 => self.saturated(),
            6 | 7 => self.compared(),
            8..=10 => self.switched()?,
            11 => self.selected(),
            12 => self.logic(),
            13 => self.bitwise(),
            14 => self.shifted(),
            15 | 16 => self.looked_up(),
            17 => self.oscillator(),
            18 => self.function(),
            19 => self.angle(),
            20 => self.dot(),
            21 => self.folded(),
            22 => self.joined()?,
            23 => self.window(),
            24 => self.delayed(),
            25 => self.filtered(),
            26 => self.filtered_by_port(),
            27 => self.picked(),
            28 => self.counted(),
            29 => self.modulated(),
            30 => self.at_other_rate(),
            31 => self.reinterpreted()?,
            _ => self.held(),
        })
    }

    fn scalar(&self) -> Scalar {
        Scalar::ALL[self.bits as usize % 11]
    }

    fn one_of<T: Copy>(&self, all: &[T]) -> T {
        all[(self.bits / 11) as usize % all.len()]
    }

    fn small(&self) -> f64 {
        f64::from(self.bits % 16) * 0.25 - 1.5
    }

    fn factor(&self) -> f64 {
        f64::from(self.bits % 4096) / 1024.0 - 2.0
    }

    fn constant(&self, scalar: Scalar) -> Typed<'g> {
        let value: Literals = match scalar.is_float() {
            true => self.factor().into(),
            false => i64::from(self.bits % 2).into(),
        };
        let kind = Type::of(scalar);
        self.x.with(self.g.constant(kind, value), kind)
    }

    fn add(&self, node: impl Node + 'static, inputs: &[Typed<'g>], kind: Type) -> Typed<'g> {
        let wires: Vec<Wire> = inputs.iter().map(|input| input.wire).collect();
        self.x.with(self.g.add(node, wires), kind)
    }

    fn sum(&self, product: bool) -> Typed<'g> {
        let Asked { x, y, z, bits, .. } = *self;
        let of = match bits % 5 {
            0 => number(self.scalar()),
            _ => x.number(),
        };
        let output = (of != x.kind.scalar || bits.is_multiple_of(3)).then_some(of);
        let signs = self.one_of(&["++", "+-", "-+", "--", "+-+", "-++"]);
        let len = longest(&[x, y, z]);
        let fit = |one: Typed<'g>| match output {
            Some(_) => one.beside(len),
            None => one.beside(len).to(of),
        };
        let all: Vec<Typed> = [x, y, z][..signs.len()]
            .iter()
            .map(|&one| fit(one))
            .collect();
        let kind = Type {
            scalar: of,
            complex: all.iter().any(|one| one.kind.complex),
            len: longest(&all),
        };
        if product {
            let operations = signs.replace('+', "*").replace('-', "/");
            return self.add(Product { operations, output }, &all, kind);
        }
        let signs = signs.into();
        self.add(Sum { signs, output }, &all, kind)
    }

    fn gain(&self) -> Typed<'g> {
        let of = self.x.number();
        let complex = of.is_float() && self.bits.is_multiple_of(7);
        let gain = match (of.is_float(), complex) {
            (true, true) => {
                let parts = (
                    Number::F64(self.factor()),
                    Number::F64(self.small() + 0.125),
                );
                literals(std::iter::once(parts))
            }
            (true, false) => self.factor().into(),
            _ => i64::from(self.bits % 4).into(),
        };
        let output = (of != self.x.kind.scalar).then_some(of);
        let kind = Type {
            scalar: of,
            complex: self.x.kind.complex || complex,
            ..self.x.kind
        };
        self.x.then(Gain { gain, output }, kind)
    }

    fn converted(&self) -> Typed<'g> {
        let roundings = [Rounding::Zero, Rounding::Floor, Rounding::Nearest];
        self.x.rounded(self.scalar(), self.one_of(&roundings))
    }

    fn saturated(&self) -> Typed<'g> {
        let from = self.x.real().to(self.x.number());
        let low = self.small().max(-0.5);
        let high = low + 1.25;
        from.then(Saturate { low, high }, from.kind)
    }

    fn compared(&self) -> Typed<'g> {
        let relation = self.one_of(&RELATIONS);
        let other = match self.bits % 4 {
            0 => self.constant(self.x.kind.scalar),
            _ => self.y.beside(self.x.kind.len),
        };
        let all = match relation {
            Comparison::Equal | Comparison::Unequal => [self.x, other],
            _ => [self.x.real(), other.real()],
        };
        let kind = Type::BOOL.vector(longest(&all));
        self.x
            .with(all[0].wire.compare(relation, all[1].wire), kind)
    }

    fn switched(&self) -> Option<Typed<'g>> {
        let Asked { x, y, z, bits, .. } = *self;
        let criterion = self.one_of(&[Criterion::Above, Criterion::AtLeast, Criterion::NotZero]);
        let len = longest(&[x, y, z]);
        let (from, control) = (x.beside(len), y.real().beside(len));
        let other = match bits % 5 {
            0 => self.constant(from.kind.scalar),
            _ => z.beside(len),
        };
        let output = (from.kind.scalar != other.kind.scalar).then(|| self.scalar());
        let complex = from.kind.complex || other.kind.complex;
        let compares = criterion != Criterion::NotZero;
        let threshold = if compares && bits.is_multiple_of(2) {
            self.small()
        } else {
            0.0
        };
        let all = match bits % 7 {
            0..3 => [from, control, other],
            _ => [other, control, from],
        };
        let kind = Type {
            scalar: output.unwrap_or(from.kind.scalar),
            complex,
            len: longest(&all),
        };
        let switch = Switch {
            criterion,
            threshold,
            output,
        };
        let fits = !(complex && kind.scalar == Scalar::Bool);
        fits.then(|| self.add(switch, &all, kind))
    }

    fn selected(&self) -> Typed<'g> {
        let len = longest(&[self.y, self.z]);
        let z = self.z.beside(len).to(self.y.kind.scalar);
        let y = self.y.beside(len).to(z.kind.scalar);
        let mux = Mux {
            choices: 3,
            first: i64::from(self.bits % 3) - 1,
            output: None,
        };
        let complex = y.kind.complex || z.kind.complex;
        let kind = Type {
            complex,
            len,
            ..y.kind
        };
        self.add(mux, &[self.x.real().single(), y, z, y], kind)
    }

    fn logic(&self) -> Typed<'g> {
        use LogicOp::{And, Nand, Nor, Nxor, Or, Xor};
        let operation = self.one_of(&[And, Or, Nand, Nor, Xor, Nxor]);
        let all = [self.x.real(), self.y.real().beside(self.x.kind.len)];
        let kind = Type::BOOL.vector(longest(&all));
        let inputs = 2;
        self.add(Logic { operation, inputs }, &all, kind)
    }

    fn bitwise(&self) -> Typed<'g> {
        let from = self.x.whole();
        let other = self.y.beside(from.kind.len).real().to(from.kind.scalar);
        let unused = 64 - 8 * from.kind.scalar.bytes() as u32;
        let node = Bitwise {
            operation: self.one_of(&[BitwiseOp::And, BitwiseOp::Or, BitwiseOp::Xor]),
            inputs: 2,
            mask: self
                .bits
                .is_multiple_of(2)
                .then_some(((i64::from(self.bits) - (1 << 31)) << unused) >> unused),
        };
        let kind = from.kind.vector(longest(&[from, other]));
        self.add(node, &[from, other], kind)
    }

    fn shifted(&self) -> Typed<'g> {
        use ShiftKind::{Left, RightArithmetic, RightLogical};
        let from = self.x.whole();
        let (direction, by) = (
            self.one_of(&[Left, RightArithmetic, RightLogical]),
            self.bits % 64,
        );
        from.then(Shift { direction, by }, from.kind)
    }

    fn looked_up(&self) -> Typed<'g> {
        let (from, output) = (self.x.real(), self.scalar());
        let complex = self.bits.is_multiple_of(5) && output != Scalar::Bool;
        let part = |at: u32| Number::Int(i128::from(at * 7 % 13));
        let entry = |at| (part(at), part(if complex { at + 1 } else { 0 }));
        let table = literals((0..1 + self.bits % 30).map(entry));
        let kind = Type {
            scalar: output,
            complex: table.is_complex(),
            ..from.kind
        };
        let lut = Lut {
            first: self.small(),
            step: if self.bits.is_multiple_of(2) {
                0.25
            } else {
                0.3
            },
            table,
            between: self.one_of(&[Lookup::Below, Lookup::Nearest, Lookup::Linear]),
            output,
        };
        from.then(lut, kind)
    }

    fn oscillator(&self) -> Typed<'g> {
        let (bits, address_bits) = self.one_of(&[(16, 8), (32, 20), (12, 12), (20, 13)]);
        let nco = Nco {
            bits,
            address_bits,
            initial: self.bits >> (32 - bits),
            output: if self.bits.is_multiple_of(2) {
                Scalar::F32
            } else {
                Scalar::F64
            },
        };
        let kind = Type::of(nco.output).complex();
        self.x.whole().single().then(nco, kind)
    }

    fn function(&self) -> Typed<'g> {
        use FunctionOf::{Atan, Cos, Exp, Ln, Sin, Sqrt};
        let of = self.one_of(&[Sin, Cos, Atan, Exp, Ln, Sqrt]);
        let from = self.x.float();
        from.then(Function { of }, from.kind)
    }

    fn angle(&self) -> Typed<'g> {
        let from = self.x.float();
        let other = self.y.real().beside(from.kind.len).to(from.kind.scalar);
        let kind = from.kind.vector(longest(&[from, other]));
        self.add(Atan2 {}, &[from, other], kind)
    }

    fn dot(&self) -> Typed<'g> {
        let (x, of) = (self.x, self.x.number());
        let other = if self.y.kind.len == x.kind.len {
            self.y
        } else {
            x
        };
        let kind = Type {
            scalar: of,
            complex: x.kind.complex || other.kind.complex,
            len: 1,
        };
        let dot = Dot {
            conjugate: self.bits.is_multiple_of(2),
            output: Some(of),
        };
        self.add(dot, &[x, other], kind)
    }

    /// The elements of one vector, added or multiplied.
    fn folded(&self) -> Typed<'g> {
        let of = self.x.number();
        let kind = Type {
            scalar: of,
            len: 1,
            ..self.x.kind
        };
        let sign: String = self.one_of(&["+", "-", "*", "/"]).into();
        let output = Some(of);
        match sign.as_str() {
            "+" | "-" => self.x.then(
                Sum {
                    signs: sign,
                    output,
                },
                kind,
            ),
            _ => {
                let operations = sign;
                self.x.then(Product { operations, output }, kind)
            }
        }
    }

    fn joined(&self) -> Option<Typed<'g>> {
        let (x, y) = (self.x.real(), self.y.real().to(self.x.kind.scalar));
        if self.bits.is_multiple_of(2) {
            let len = x.kind.len + y.kind.len;
            return (len <= 40)
                .then(|| self.add(Concat { inputs: 2 }, &[x, y], x.kind.vector(len)));
        }
        let y = y.beside(x.kind.len);
        let kind = x.kind.complex().vector(longest(&[x, y]));
        (x.kind.scalar != Scalar::Bool).then(|| self.add(Complex {}, &[x, y], kind))
    }

    fn window(&self) -> Typed<'g> {
        let vectors = self.x.kind.len <= 4 && self.bits.is_multiple_of(3);
        let from = if vectors { self.x } else { self.x.single() };
        let length = 1 + self.bits as usize % 5;
        let current = self.bits.is_multiple_of(2);
        let reset = self.bits.is_multiple_of(7);
        let node = TappedDelay {
            length,
            current,
            order: self.one_of(&[Order::Oldest, Order::Newest]),
            reset,
            initial: 1.into(),
            of: None,
        };
        let kind = from
            .kind
            .vector(from.kind.len * (length + usize::from(current)));
        let on = self.y.single().to(Scalar::Bool);
        self.add(node, &[from, on][..1 + usize::from(reset)], kind)
    }

    fn reinterpreted(&self) -> Option<Typed<'g>> {
        let from = self.x;
        let fits = |to: &Scalar| *to != Scalar::Bool && to.bytes() == from.kind.scalar.bytes();
        let all: Vec<Scalar> = Scalar::ALL.into_iter().filter(fits).collect();
        let to = self.one_of(&all);
        let kind = Type {
            scalar: to,
            ..from.kind
        };
        (from.kind.scalar != Scalar::Bool).then(|| from.then(Reinterpret { to }, kind))
    }

    fn delayed(&self) -> Typed<'g> {
        let length = 1 + self.bits as usize % 70;
        let delayed = self.x.wire.delay(length, i64::from(self.bits % 2));
        self.x.with(delayed, self.x.kind)
    }

    fn filtered(&self) -> Typed<'g> {
        let (from, of) = (self.x.single(), self.x.number());
        let whole = |number: u32| Number::Int(i128::from(number));
        let tap = |tap: u32| match of.is_float() {
            true if self.bits.is_multiple_of(3) => (
                Number::F64(self.small() - f64::from(tap)),
                Number::F64(f64::from(tap) * 0.37),
            ),
            true => (Number::F64(self.small() - f64::from(tap) * 0.3), whole(0)),
            false => (whole(tap % 4), whole(0)),
        };
        let taps = literals((0..1 + self.bits % 40).map(tap));
        let kind = Type {
            scalar: of,
            complex: from.kind.complex || taps.is_complex(),
            len: 1,
        };
        let output = Some(of);
        let initial = 1.into();
        from.then(
            Fir {
                taps,
                initial,
                output,
            },
            kind,
        )
    }

    fn filtered_by_port(&self) -> Typed<'g> {
        let (from, of) = (self.x.single(), self.x.number());
        let kind = Type {
            scalar: of,
            complex: from.kind.complex || self.y.kind.complex,
            len: 1,
        };
        let output = Some(of);
        self.add(FirFromPort { output }, &[from, self.y], kind)
    }

    fn picked(&self) -> Typed<'g> {
        let at = SelectAt {
            first: i64::from(self.bits % 5) - 2,
            length: None,
        };
        let kind = self.x.kind.vector(self.y.kind.len);
        self.add(at, &[self.x, self.y.real()], kind)
    }

    /// A counter, added to another signal for its rate.
    fn counted(&self) -> Typed<'g> {
        let output = number(self.scalar());
        let counter = Counter {
            period: u64::from(self.bits % 100) + 1,
            initial: 0,
            output,
        };
        let other = self.x.single().real().to(output);
        let sum = self.g.add(counter, []) + other.wire;
        self.x.with(sum, other.kind)
    }

    fn modulated(&self) -> Typed<'g> {
        let output = number(self.scalar());
        let points = constellation(4).expect("16 points");
        if self.bits.is_multiple_of(2) {
            let kind = Type::of(output).vector(self.x.kind.len);
            return self.x.then(Demodulate { points, output }, kind);
        }
        let points = match output.is_float() {
            true => points,
            false => literals((0..5).map(|at| (Number::Int(at), Number::Int(4 - at)))),
        };
        let from = self.x.whole();
        let kind = Type::of(output).complex().vector(from.kind.len);
        from.then(Modulate { points, output }, kind)
    }

    fn at_other_rate(&self) -> Typed<'g> {
        let (wire, slow) = match self.x.slow {
            true => (self.x.wire.repeat(2), false),
            false => (self.x.wire.down(2), true),
        };
        Typed {
            wire,
            slow,
            ..self.x
        }
    }

    /// Out of a subsystem that runs now and then.
    fn held(&self) -> Typed<'g> {
        let on = self.y.single().to(Scalar::Bool);
        let of = self.x.kind.scalar;
        let z = self.z.beside(self.x.kind.len).real().to(of);
        let name = format!("on{}", self.number);
        let held = self.g.enabled(&name, on.wire, || {
            let past = self.x.wire.delay(1 + self.bits as usize % 3, 1);
            let sum = if of == Scalar::Bool {
                past
            } else {
                past + z.wire
            };
            sum.hold(0)
        });
        let len = if of == Scalar::Bool {
            self.x.kind.len
        } else {
            longest(&[self.x, z])
        };
        self.x.with(held, self.x.kind.vector(len))
    }
}
