//! Links that go down.

use super::*;

/// An engine at work behind two ports.
fn engine() -> Engine {
    let mut engine = Engine::at_work();
    engine.counts.links = ["k0", "k1"].map(|port| (port.to_owned(), true, 0)).to_vec();
    assert_eq!(engine.run(5, whole), []);
    engine
}

/// A second as it should be with the link of the port of this number up, or down.
fn set(port: usize, up: bool) -> impl FnMut(&mut LossCounts) {
    move |counts| {
        whole(counts);
        let link = &mut counts.links[port];
        link.2 += u64::from(link.1 && !up);
        link.1 = up;
    }
}

#[test]
fn a_link_that_goes_down_is_said_even_if_it_is_back_at_once() {
    for seconds in [0, 4] {
        let mut engine = Engine::at_work();
        engine.counts.links = vec![("k0".to_owned(), true, 0), ("k1".to_owned(), true, 0)];
        let mut said = engine.run(5, whole);
        said.extend(engine.run(1, |counts| {
            whole(counts);
            counts.links[1] = ("k1".to_owned(), seconds == 0, 1);
        }));
        said.extend(engine.run(seconds, whole));
        said.extend(engine.run(20, |counts| {
            whole(counts);
            counts.links[1].1 = true;
        }));
        let cause = Cause::LinkDown;
        assert_eq!(
            lines(&said, cause),
            [(26, LossStage::Begins), (36, LossStage::Ends)]
        );
        let begins = text(&said, cause, LossStage::Begins);
        let how = ["port k1 had no link for a moment", "port k1 has no link"];
        assert!(
            begins.starts_with(how[usize::from(seconds > 0)]),
            "{begins}"
        );
        assert_eq!(said.len(), 2, "{said:?}");
        let summary = engine.watch.summary(engine.counts.clone());
        assert_eq!(
            summary.last().unwrap(),
            "port k1: its link went down 1 time"
        );
    }
}

/// Whichever port was down before.
#[test]
fn a_port_is_down_since_its_own_link_went_down() {
    let mut engine = engine();
    let mut said = engine.run(4, set(0, false));
    let shows = |engine: &Engine, text: &str| {
        let shown = shown(engine, Cause::LinkDown);
        assert!(shown.starts_with(text), "{shown}");
    };
    shows(&engine, "port k0 has no link, since 4.0 s: link-down");
    said.extend(engine.run(4, set(0, true)));
    shows(&engine, "port k0 had no link for 5.0 s: link-down");
    said.extend(engine.run(4, set(1, false)));
    shows(&engine, "port k1 has no link, since 4.0 s: link-down");
    said.extend(engine.run(1, set(0, false)));
    let both =
        "port k0 has no link, since 1.0 s, the last of 2 times; port k1 has no link, since 5.0 s: ";
    shows(&engine, both);
    said.extend(engine.run(1, set(0, true)));
    said.extend(engine.run(30, set(1, true)));
    assert_eq!(
        text(&said, Cause::LinkDown, LossStage::Ends),
        "link-down is over: all links are up, after they went down 3 times in 14.0 s"
    );
}

/// One link that was down once took as long as it was.
#[test]
fn the_end_of_one_outage_tells_how_long_it_was() {
    let mut engine = engine();
    let mut said = engine.run(15, set(1, false));
    said.extend(engine.run(20, set(1, true)));
    assert_eq!(
        text(&said, Cause::LinkDown, LossStage::Ends),
        "link-down is over: all links are up, after 15.0 s"
    );
}

#[test]
fn packets_that_a_port_without_a_link_could_not_send_point_to_it() {
    for (up, mends) in [
        (false, ": see link-down"),
        (true, "is its link up, and fast enough?"),
    ] {
        let mut engine = engine();
        let said = engine.run(3, |counts| {
            set(1, up)(counts);
            counts.ports[0].1.tx_errors += 100;
        });
        let errors = text(&said, Cause::TxErrors, LossStage::Begins);
        assert!(errors.ends_with(mends), "{errors}");
    }
}
