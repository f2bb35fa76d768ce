//! Lines of engines in order, with what they need of a reader.

use std::io::{Read, Write};

use live::{Body, Panel, Verdict};

use super::*;

fn seen(address: &str, state: State, text: &str, lost: f64) -> Seen {
    let verdict = Verdict {
        text: text.to_owned(),
        since: Some(0.0),
        ..Verdict::new(state)
    };
    let figures = vec![
        Figure::new("heaps in", 12345.0, "/s"),
        Figure::new("lost", lost, "%"),
    ];
    let panels = vec![
        Panel::new("verdict", "", Body::Verdict(verdict)),
        Panel::new("figures", "", Body::Figures { figures }),
    ];
    Seen {
        address: address.to_owned(),
        document: Ok(Document::new(address, panels)),
    }
}

#[test]
fn the_worst_engine_comes_first() {
    let mut all = vec![
        seen("a:1", State::Well, "all well", 0.0),
        seen("e:1", State::Bad, "missing-heaps", 0.25),
        seen("b:1", State::Bad, "no-free-chunk", 0.5),
        seen("c:1", State::Warning, "wrong-time", 3.0),
        Seen {
            address: "d:1".to_owned(),
            document: Err("refused".to_owned()),
        },
    ];
    all.sort_by_key(Seen::rank);
    let order: Vec<_> = all.iter().map(|seen| &seen.address[..]).collect();
    assert_eq!(order, ["d:1", "b:1", "e:1", "c:1", "a:1"]);
    let text = text(&all);
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[1].contains("no answer") && lines[1].ends_with("refused"),
        "{text}"
    );
    assert!(
        lines[2].contains("12345") && lines[2].contains("0.50"),
        "{text}"
    );
}

/// Few heaps that are lost cost much output.
#[test]
fn the_share_that_is_not_sent_and_the_longest_latency_have_columns() {
    let mut all = [seen("a:1", State::Bad, "missing-heaps", 5.0)];
    let Ok(document) = &mut all[0].document else {
        unreachable!()
    };
    let figures = vec![
        Figure::new("lost", 5.25, "%"),
        Figure::new("not sent", 24.5, "%"),
        Figure::new("latency p99.9 of v", 0.25, "s"),
        Figure::new("latency p99.9 of w", 0.75, "s"),
    ];
    document.panels[1].body = Body::Figures { figures };
    let line = text(&all).lines().nth(1).unwrap().to_owned();
    assert!(line.contains("24.50") && line.contains("0.75"), "{line}");
    for (width, not_sent, latency) in [(70, false, false), (100, true, false), (160, true, true)] {
        let table = drawn(&all, width);
        let shown = ["24.50", "0.75"].map(|figure| table.contains(figure));
        assert_eq!(shown, [not_sent, latency], "{table}");
    }
}

#[test]
fn an_engine_that_is_not_there_is_told_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let all = ask(&[Address(address)]);
    assert_eq!(all[0].state(), "no answer");
    let said = |seen: &Seen| seen.document.as_ref().unwrap_err().clone();
    assert_eq!(said(&all[0]), "nothing listens there: is it running?");
}

/// It says at once that there is a document, and then nothing.
#[test]
fn a_document_that_does_not_come_in_time_is_no_answer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        // Until the other end has had enough.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let told = fetch(&address).unwrap_err();
    server.join().unwrap();
    assert_eq!(told, "no answer within 2 s");
}

/// An engine's KATCP port, and a server that has other pages.
#[test]
fn a_port_without_a_live_page_is_told_so() {
    for (answer, expected) in [
        (
            "#version-connect katcp-protocol 5.1-MI\n",
            "does not speak HTTP",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "has no live page (HTTP status 404), as karoo dsim",
        ),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 64]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let told = fetch(&address).unwrap_err();
        server.join().unwrap();
        assert!(
            told.contains(expected) && told.contains("--prometheus-port"),
            "{told}"
        );
    }
}

#[test]
fn addresses_are_refused_that_lead_nowhere() {
    for (text, taken) in [
        ("m000h:9100", "m000h:9100"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("[::1]:9100", "[::1]:9100"),
        ("http://m000h:9100/", "m000h:9100"),
    ] {
        assert_eq!(text.parse(), Ok(Address(taken.to_owned())));
    }
    for text in [
        "m000h",
        ":9100",
        "m000h:0",
        "m000h:99999",
        "m000h:",
        "::1:9100",
        "[x]:9100",
        "https://m000h:9100",
        "m000h:9100/live",
        "a b:1",
        "",
    ] {
        let error = text.parse::<Address>().expect_err(text).to_string();
        assert!(
            error.starts_with("HOST:PORT") && error.contains("m000h:9100"),
            "{error}"
        );
    }
}

fn drawn(seen: &[Seen], width: u16) -> String {
    let backend = ratatui::backend::TestBackend::new(width, 12);
    let mut terminal = ratatui::Terminal::new(backend).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| {
        frame.render_widget(table(seen, width.into()), frame.area());
    };
    terminal.draw(draw).unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_verdict_can_be_read_on_a_terminal_of_any_width() {
    let words = "12 heaps/s missing: missing-heaps, they did not reach this host";
    let all = [seen("m000h.example:9100", State::Bad, words, 3.0)];
    for width in [50, 80, 110, 200] {
        let text = drawn(&all, width);
        for word in words.split(' ').take(6) {
            assert!(text.contains(word), "{width}: {word} is not in\n{text}");
        }
    }
}

#[test]
fn what_an_engine_says_does_not_steer_the_terminal() {
    let all = [seen("a:1", State::Bad, "\u{1b}[2Jgone\n\rb:1  well", 0.0)];
    let text = text(&all);
    assert!(
        !text.contains(['\u{1b}', '\r']) && text.lines().count() == 2,
        "{text:?}"
    );
}

#[test]
fn long_words_are_cut_with_a_sign() {
    assert_eq!(lines("a b", 3), ["a b"]);
    assert_eq!(lines("aa bb cc dd ee", 2), ["aa", "bb", " …"]);
    assert_eq!(lines("", 5), [""]);
}

#[test]
fn a_verdict_of_any_length_and_age_is_printed() {
    let mut all = [seen("a:1", State::Bad, &"x".repeat(200_000), 0.0)];
    let text = text(&all);
    assert!(text.contains("xxx…\n"), "{} characters", text.len());
    let Ok(document) = &mut all[0].document else {
        unreachable!()
    };
    document.time = 1e308;
    assert!(!all[0].cells().concat().contains(", for"));
}

/// As that of an engine of a later version.
#[test]
fn panels_of_an_unknown_kind_are_skipped() {
    let document = serde_json::json!({
        "version": VERSION, "name": "a", "program": "later", "time": 1.0,
        "panels": [
            {"id": "new", "title": "", "kind": "new-kind", "what": [1, {"a": null}]},
            {"id": "verdict", "title": "", "kind": "verdict",
             "state": "well", "text": "all well", "since": null, "causes": []},
        ],
    });
    let document: Document = serde_json::from_str(&document.to_string()).unwrap();
    assert_eq!(document.panels.len(), 1);
    assert_eq!(document.verdict().unwrap().state, State::Well);
}
