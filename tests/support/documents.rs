//! Holding JSON documents against their schemas.

use serde_json::Value;

use super::karoo_ok;

/// The schema of documents of this name, as the program prints it.
pub fn schema(name: &str) -> Value {
    serde_json::from_str(&karoo_ok(["schema", name])).expect("JSON")
}

/// Holds a document against the schema that it names.
pub fn check(name: &str, text: &str) {
    let document: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(document["schema"], format!("karoo/{name}"));
    let schema = schema(name);
    let version = schema["properties"]["version"]["const"]
        .as_u64()
        .expect("a version");
    assert_eq!(document["version"], version, "{name}");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let wrong: Vec<_> = validator
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    // It says something: another document is not one of these.
    let other = serde_json::json!({ "schema": format!("karoo/{name}"), "version": version });
    assert!(!validator.is_valid(&other), "{name}: anything would do");
    let mut later = document.clone();
    later["version"] = (version + 1).into();
    assert!(!validator.is_valid(&later), "{name}: another version");
}
