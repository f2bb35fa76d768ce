//! The page of complaints: the tests that it names are there.

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_page_of_complaints_names_is_there() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = fs::read_to_string(docs.join("complaints.md")).unwrap();
    let mut named = 0;
    for link in page.split("[`").skip(1) {
        let (name, rest) = link.split_once("`](").expect("a link");
        let (file, _) = rest.split_once(')').expect("the link's end");
        let text = fs::read_to_string(docs.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert!(
            text.contains(&format!("#[test]\nfn {name}()")),
            "{file}: {name}"
        );
        named += 1;
    }
    assert!(named >= 20, "{named} tests");
}
