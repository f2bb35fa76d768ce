//! JSON documents: each says what it is and in which version, and has a JSON Schema.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Value, json};

/// What is written as a JSON document of its own.
pub trait Documented: Serialize + JsonSchema {
    /// Name of its schema, such as `replay-report`.
    const NAME: &'static str;
    /// Version of its schema: fields may be added within one, what is there keeps its name and its
    /// meaning.
    const VERSION: u32 = 1;
    /// What it is, in a sentence.
    const TITLE: &'static str;
}

/// A document and what it says.
#[derive(Serialize, JsonSchema)]
struct Enveloped<'a, T> {
    /// What this is.
    schema: String,
    /// In which version.
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// What `schema` says in a document of this name.
fn identity(name: &str) -> String {
    format!("karoo/{name}")
}

/// A document as text, with line breaks.
pub fn to_json<T: Documented>(body: &T) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Enveloped {
        schema: identity(T::NAME),
        version: T::VERSION,
        body,
    })
}

/// A document on one line.
pub fn to_json_line<T: Documented>(body: &T) -> serde_json::Result<String> {
    serde_json::to_string(&Enveloped {
        schema: identity(T::NAME),
        version: T::VERSION,
        body,
    })
}

/// The JSON Schema of documents of this kind, in the dialect 2020-12.
pub fn schema_of<T: Documented>() -> Value {
    let schema = SchemaSettings::draft2020_12().for_serialize();
    let schema = schema
        .into_generator()
        .into_root_schema_for::<Enveloped<'_, T>>();
    identified(schema, T::NAME, T::VERSION, T::TITLE)
}

/// A schema of documents that say themselves which they are.
pub fn identified(schema: Schema, name: &str, version: u32, title: &str) -> Value {
    let mut schema = schema.to_value();
    let identity = json!({ "const": identity(name), "description": "What this is." });
    schema["properties"]["schema"] = identity;
    let version = json!({ "const": version, "description": "In which version." });
    schema["properties"]["version"] = version;
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), title.into());
        object.insert("$id".to_owned(), format!("{name}.json").into());
        object.remove("description");
    }
    schema
}
