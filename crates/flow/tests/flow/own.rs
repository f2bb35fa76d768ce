//! What nodes of one's own may do wrong: it is named, and changes nothing that comes out.

use std::collections::BTreeMap;

use karoo_flow::{Builder, Executor, Mismatch, Node, Settings, Step, Type, Value};

/// Sums all that comes, under the name of a kind of the library.
#[derive(Debug)]
struct Total;

struct Totalling(f32);

impl Step for Totalling {
    fn compute(&mut self, inputs: &[Value], outputs: &mut [Value]) {
        self.0 += inputs[0].to_f64s()[0] as f32;
        outputs[0] = Value::from(self.0);
    }
}

impl Node for Total {
    fn kind(&self) -> &str {
        "gain"
    }
    fn inputs(&self) -> usize {
        1
    }
    fn types(&self, inputs: &[Type]) -> Result<Vec<Type>, Mismatch> {
        Ok(inputs.to_vec())
    }
    fn start(&self, _: &[Type], _: &[Type]) -> Box<dyn Step> {
        Box::new(Totalling(0.0))
    }
    fn parameters(&self) -> Option<toml::Table> {
        None
    }
}

#[test]
fn a_node_with_the_name_of_a_kind_of_the_library_is_not_copied_for_that() {
    let g = Builder::new("named");
    let x = g.input("x", Type::F32);
    let y = g.scope("s", || {
        g.partition(1);
        g.add(Total, [x]).named("total")
    });
    g.output("y", y);
    let settings = Settings {
        copies: BTreeMap::from([(1, vec![None])]),
        ..Settings::default()
    };
    let refused = Executor::new(&g.build().unwrap(), settings).unwrap_err();
    assert!(
        refused.to_string().contains("s/total has a state"),
        "{refused}"
    );
}
