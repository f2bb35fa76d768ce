use super::*;

const WIDEBAND: &str = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=2048";

fn steering(requests: usize) -> (ControlHandle, RequestQueues) {
    let config = crate::config::tests::engine(WIDEBAND, |config| config.gain = 0.5);
    ControlHandle::new(&config, requests)
}

fn gains(gain: f32) -> Gains {
    Gains::uniform(64, Complex32::from(gain))
}

fn model(start: i64) -> LinearDelay {
    LinearDelay::new(start, 0.0, 0.0, 0.0, 0.0).expect("valid model")
}

#[test]
fn requests_arrive_in_order_with_their_times() {
    let (steering, steered) = steering(3);
    let output = steering.output("w").unwrap();
    steered.outputs[0].publish_end(Timestamp(1000));
    assert_eq!(output.set_gains(1, gains(2.0)), Ok(Timestamp(1000)));
    let timed = steering.at(Timestamp(77));
    assert_eq!(
        timed.outputs()[0].set_delays([model(1), model(2)]),
        Ok(Timestamp(77))
    );
    assert_eq!(steering.steady_state(), Timestamp(1000));
    steered.outputs[0].publish_end(Timestamp(2000));
    assert_eq!(output.set_all_gains(gains(3.0)), Ok(Timestamp(2000)));
    assert_eq!(steering.steady_state(), Timestamp(2000));
    let taken: Vec<_> = std::iter::from_fn(|| steered.outputs[0].take()).collect();
    let expected = [
        (None, Change::Gains([None, Some(gains(2.0))])),
        (
            Some(Timestamp(77)),
            Change::Delays {
                models: [model(1), model(2)],
                asked: None,
            },
        ),
        (None, Change::Gains([Some(gains(3.0)), Some(gains(3.0))])),
    ];
    assert_eq!(taken, expected.map(|(at, change)| Request { at, change }));
}

#[test]
fn the_gains_told_are_those_that_were_queued() {
    let (steering, steered) = steering(1);
    let output = steering.output("w").unwrap();
    assert_eq!(output.gains(0).as_ref(), Some(output.default_gains()));
    assert_eq!(output.default_gains(), &gains(0.5));
    output.set_gains(0, gains(2.0)).unwrap();
    // A refused request changes nothing.
    let full = output.set_all_gains(gains(9.0)).unwrap_err();
    assert!(
        full.to_string().contains("'w' has 1 requests waiting"),
        "{full}"
    );
    assert_eq!(
        (output.gains(0), output.gains(1)),
        (Some(gains(2.0)), Some(gains(0.5)))
    );
    steered.outputs[0].spend(steered.outputs[0].take().unwrap());
    output.set_gains(1, gains(4.0)).unwrap();
    assert_eq!((output.gains(1), output.gains(2)), (Some(gains(4.0)), None));
    assert_eq!(output.set_gains(2, gains(1.0)), Err(EnqueueError::Input(2)));
    let other = Gains::uniform(128, Complex32::from(1.0));
    assert!(matches!(
        output.set_gains(0, other),
        Err(EnqueueError::Channels { given: 128, .. })
    ));
    assert!(steering.output("v").is_none());
}

/// The engine's thread frees nothing that control can free.
#[test]
fn what_is_spent_is_freed_by_who_asks_next() {
    let (steering, steered) = steering(2);
    let (output, end) = (steering.output("w").unwrap(), &steered.outputs[0]);
    output.set_gains(0, gains(2.0)).unwrap();
    end.spend(end.take().unwrap());
    end.spend_gains(gains(0.5));
    assert_eq!(end.0.spent.len(), 2);
    output.set_gains(0, gains(3.0)).unwrap();
    assert!(end.0.spent.is_empty());
}

#[test]
fn models_that_are_yet_to_begin_are_bounded() {
    let (steering, steered) = steering(1);
    let output = steering.output("w").unwrap();
    output.set_delays([model(1000); 2]).unwrap();
    assert!(steered.outputs[0].take().is_some());
    steered.outputs[0].publish_models(MODELS);
    let refused = output.set_delays([model(1001); 2]).unwrap_err();
    assert!(
        matches!(
            refused,
            EnqueueError::Models {
                waiting: MODELS,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(steered.outputs[0].take(), None);
    // One that begins no later than the last takes the place of at least one.
    for start in [1000, 5] {
        assert!(output.set_delays([model(start); 2]).is_ok(), "{start}");
        assert!(steered.outputs[0].take().is_some());
    }
    assert!(output.set_delays([model(6); 2]).is_err());
    steered.outputs[0].publish_models(MODELS - 1);
    assert!(output.set_delays([model(6); 2]).is_ok());
}

/// An engine that begins chunk after chunk, and control that asks all the time: each request is
/// taken no later than before the chunk that begins at the timestamp that it was given.
#[test]
fn no_request_is_later_than_its_steady_state() {
    const CHUNK: u64 = 10;
    const REQUESTS: i64 = 2_000;
    let (steering, steered) = steering(4);
    let promised = std::thread::scope(|scope| {
        let control = scope.spawn(|| {
            let output = &steering.outputs()[0];
            let ask = |start| loop {
                if let Ok(effective) = output.set_delays([model(start); N_POL]) {
                    break effective.0;
                }
                std::thread::yield_now();
            };
            (0..REQUESTS).map(ask).collect::<Vec<_>>()
        });
        let mut taken = Vec::new();
        let mut start = 0;
        while taken.len() < REQUESTS as usize {
            steered.outputs[0].publish_end(Timestamp(start + CHUNK));
            while let Some(request) = steered.outputs[0].take() {
                taken.push(start);
                steered.outputs[0].spend(request);
            }
            start += CHUNK;
        }
        (control.join().unwrap(), taken)
    });
    for (promised, taken) in promised.0.iter().zip(&promised.1) {
        assert!(
            taken <= promised,
            "taken at {taken}, promised for {promised}"
        );
    }
}

#[test]
fn events_make_up_for_those_that_were_displaced() {
    let published = Published::new(1);
    let active = ActiveDelay {
        output: 0,
        pol: 1,
        model: model(5),
    };
    published.tell(EngineEvent::Delay(active));
    let sent = |n| {
        EngineEvent::Sent(Sent {
            clipped_samples: [n, 0],
            ..Sent::default()
        })
    };
    (0..5000).for_each(|n| published.tell(sent(n)));
    let kept: Vec<_> = std::iter::from_fn(|| published.next_event()).collect();
    assert_eq!(kept.len() as u64 + published.overwritten(), 5001);
    assert_eq!(kept.last(), Some(&sent(4999)));
    assert_eq!(published.delay(0, 1), Some(model(5)));
    assert_eq!(published.delay(0, 0), Some(LinearDelay::ZERO));
    assert_eq!((published.delay(1, 0), published.delay(0, 2)), (None, None));

    let test = |pattern| {
        EngineEvent::Test(TestChange {
            output: 0,
            from: Timestamp(7),
            pattern,
        })
    };
    assert_eq!(
        (published.has_test(0), published.has_test(1)),
        (Some(false), None)
    );
    published.tell(test(Some(crate::engine::TestPattern::Ramp)));
    (0..5000).for_each(|n| published.tell(sent(n)));
    assert_eq!(published.has_test(0), Some(true));
    published.tell(test(None));
    assert_eq!(published.has_test(0), Some(false));
}
