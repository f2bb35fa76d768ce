//! The elements of GraphML: nodes with nested graphs, edges, and their data.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::file::MAX_NODES;
use crate::problem::{Cause, Problems};

/// The deepest nesting of elements.
const MAX_DEPTH: usize = 256;
/// The most edges.
const MAX_EDGES: usize = 1 << 20;

/// What a `<data>` element holds, by its key.
pub(super) type Data = BTreeMap<String, String>;

pub(super) struct Node {
    pub id: String,
    pub line: usize,
    /// The node whose graph this one is in.
    pub parent: Option<usize>,
    pub data: Data,
}

pub(super) struct Edge {
    pub source: String,
    pub target: String,
    pub line: usize,
    pub data: Data,
}

#[derive(Default)]
pub(super) struct Document {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
}

enum Element {
    Node(usize),
    Edge(usize),
    Data { key: String, text: String },
    Other,
}

struct Parser<'a> {
    text: &'a str,
    file: &'a str,
    /// The line of `at`, to count on from.
    line: usize,
    at: usize,
    open: Vec<Element>,
    document: Document,
}

pub(super) fn parse(text: &str, file: &str) -> Result<Document, Problems> {
    let mut reader = Reader::from_str(text);
    let mut parser = Parser {
        text,
        file,
        line: 1,
        at: 0,
        open: vec![],
        document: Document::default(),
    };
    let mut graphml = false;
    loop {
        let start = reader.buffer_position();
        let event = reader.read_event();
        parser.advance(start as usize);
        match event {
            Err(error) => {
                parser.advance(reader.error_position() as usize);
                return Err(parser.wrong(Cause::Format, "", &error.to_string()));
            }
            Ok(Event::Start(tag)) => {
                graphml |= tag.local_name().as_ref() == b"graphml";
                parser.start(&tag)?;
            }
            Ok(Event::Empty(tag)) => {
                parser.start(&tag)?;
                parser.end();
            }
            Ok(Event::End(_)) => parser.end(),
            Ok(Event::Text(text)) => {
                let decoded = text
                    .decode()
                    .map_err(|error| parser.wrong(Cause::Format, "", &error.to_string()))?;
                parser.append(&decoded);
            }
            Ok(Event::CData(text)) => {
                let decoded = text
                    .decode()
                    .map_err(|error| parser.wrong(Cause::Format, "", &error.to_string()))?;
                parser.append(&decoded);
            }
            Ok(Event::GeneralRef(reference)) => {
                let name = reference.decode().unwrap_or_default();
                let resolved = match (&*name, reference.resolve_char_ref()) {
                    (_, Ok(Some(character))) => character.to_string(),
                    (name, _) => match quick_xml::escape::resolve_predefined_entity(name) {
                        Some(text) => text.to_string(),
                        None => {
                            return Err(parser.wrong(
                                Cause::Format,
                                "",
                                &format!("`&{name};` is not known"),
                            ));
                        }
                    },
                };
                parser.append(&resolved);
            }
            Ok(Event::Eof) => break,
            Ok(_) => {}
        }
    }
    if !graphml {
        return Err(parser.wrong(
            Cause::Format,
            "",
            "there is no <graphml> element: this is no GraphML",
        ));
    }
    if !parser.open.is_empty() {
        return Err(parser.wrong(
            Cause::Format,
            "",
            "the file ends inside an element: is it whole?",
        ));
    }
    Ok(parser.document)
}

impl Parser<'_> {
    fn advance(&mut self, to: usize) {
        if let Some(passed) = self.text.as_bytes().get(self.at..to) {
            self.line += passed.iter().filter(|&&byte| byte == b'\n').count();
            self.at = to;
        }
    }

    fn wrong(&self, cause: Cause, element: &str, text: &str) -> Problems {
        let element = if element.is_empty() {
            String::new()
        } else {
            format!(": <{element}>")
        };
        Problems::one(cause, format!("{}:{}{element}", self.file, self.line), text)
    }

    fn attribute(&self, tag: &BytesStart, element: &str, name: &str) -> Result<String, Problems> {
        let wrong = |text: &str| self.wrong(Cause::Format, element, text);
        let malformed = |error: &dyn std::fmt::Display| {
            wrong(&format!("the attribute `{name}` cannot be read: {error}"))
        };
        match tag.try_get_attribute(name) {
            Ok(Some(value)) => match value.unescape_value() {
                Ok(value) => Ok(value.into_owned()),
                Err(error) => Err(malformed(&error)),
            },
            Ok(None) => Err(wrong(&format!("the attribute `{name}` is missing"))),
            Err(error) => Err(malformed(&error)),
        }
    }

    fn start(&mut self, tag: &BytesStart) -> Result<(), Problems> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.wrong(
                Cause::Limit,
                "",
                &format!("elements nest at most {MAX_DEPTH} deep"),
            ));
        }
        let element = match tag.local_name().as_ref() {
            b"node" => {
                let id = self.attribute(tag, "node", "id")?;
                if self.document.nodes.len() >= MAX_NODES {
                    return Err(self.wrong(
                        Cause::Limit,
                        "node",
                        &format!("a file has at most {MAX_NODES} nodes"),
                    ));
                }
                let parent = self.open.iter().rev().find_map(|element| match element {
                    Element::Node(node) => Some(*node),
                    _ => None,
                });
                self.document.nodes.push(Node {
                    id,
                    line: self.line,
                    parent,
                    data: Data::new(),
                });
                Element::Node(self.document.nodes.len() - 1)
            }
            b"edge" => {
                let source = self.attribute(tag, "edge", "source")?;
                let target = self.attribute(tag, "edge", "target")?;
                if self.document.edges.len() >= MAX_EDGES {
                    return Err(self.wrong(
                        Cause::Limit,
                        "edge",
                        &format!("a file has at most {MAX_EDGES} edges"),
                    ));
                }
                self.document.edges.push(Edge {
                    source,
                    target,
                    line: self.line,
                    data: Data::new(),
                });
                Element::Edge(self.document.edges.len() - 1)
            }
            b"data" => Element::Data {
                key: self.attribute(tag, "data", "key")?,
                text: String::new(),
            },
            _ => Element::Other,
        };
        self.open.push(element);
        Ok(())
    }

    fn end(&mut self) {
        let Some(Element::Data { key, text }) = self.open.pop() else {
            return;
        };
        let data = match self.open.last() {
            Some(Element::Node(node)) => &mut self.document.nodes[*node].data,
            Some(Element::Edge(edge)) => &mut self.document.edges[*edge].data,
            _ => return,
        };
        data.insert(key, text);
    }

    fn append(&mut self, more: &str) {
        if let Some(Element::Data { text, .. }) = self.open.last_mut() {
            text.push_str(more);
        }
    }
}
