//! How deep a text of TOML nests, before anything follows it by calls of its own. The `toml` crate
//! limits tables within tables and the parts of a key, but not the product of both.

use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, parse_document};
use toml_parser::{ErrorSink, Source, Span};

/// The deepest nesting of tables and lists, those of dotted keys too.
pub(super) const MAX_NESTING: usize = 64;

/// Where the text first nests deeper than that.
pub(super) fn too_deep(text: &str) -> Option<usize> {
    let mut depth = Depth::default();
    parse_document(&Source::new(text).lex().into_vec(), &mut depth, &mut ());
    depth.too_deep
}

#[derive(Default)]
struct Depth {
    /// Tables and lists that the last header in brackets stands for.
    header: usize,
    /// Those that each value around stands for, its key's parts too.
    open: Vec<usize>,
    /// Tables that the key which is read stands for.
    key: usize,
    too_deep: Option<usize>,
}

impl Depth {
    fn look(&mut self, span: Span) -> bool {
        let fits = self.header + self.open.iter().sum::<usize>() + self.key <= MAX_NESTING;
        if !fits {
            self.too_deep.get_or_insert(span.start());
        }
        fits
    }

    fn begin_header(&mut self) {
        (self.header, self.key) = (0, 0);
        self.open.clear();
    }

    fn end_header(&mut self) {
        // A list and a table, at most.
        (self.header, self.key) = (self.key + 2, 0);
    }

    fn open(&mut self, span: Span) -> bool {
        self.open.push(self.key + 1);
        self.key = 0;
        self.look(span)
    }

    fn close(&mut self) {
        self.open.pop();
        self.key = 0;
    }
}

impl EventReceiver for Depth {
    fn std_table_open(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.begin_header();
    }

    fn std_table_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.end_header();
    }

    fn array_table_open(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.begin_header();
    }

    fn array_table_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.end_header();
    }

    fn inline_table_open(&mut self, span: Span, _error: &mut dyn ErrorSink) -> bool {
        self.open(span)
    }

    fn inline_table_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.close();
    }

    fn array_open(&mut self, span: Span, _error: &mut dyn ErrorSink) -> bool {
        self.open(span)
    }

    fn array_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.close();
    }

    fn key_sep(&mut self, span: Span, _error: &mut dyn ErrorSink) {
        self.key += 1;
        self.look(span);
    }

    fn scalar(&mut self, _span: Span, _kind: Option<Encoding>, _error: &mut dyn ErrorSink) {
        self.key = 0;
    }

    fn value_sep(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.key = 0;
    }
}
