//! When requests took effect, as the engine tells.

use std::f64::consts::PI;

use ground::{SampleClock, Timestamp};
use karoo::config::EngineConfig;
use karoo::control::fgpu::{interpret, replay_lines};
use karoo::engine::steer::{ControlHandle, EngineEvent};
use katcp::{Message, Response};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::requests::noise;
use crate::support::rig::{self, Feed, Outcome, backends, config, with_chunks};

const CHANNELS: usize = 64;

fn perform(config: &EngineConfig, steering: &ControlHandle, request: &str) {
    let request = Message::parse(request.as_bytes()).unwrap().unwrap();
    let action = interpret(config.clock, steering, &request).unwrap();
    action
        .perform(steering, &mut Response::to(&request))
        .unwrap();
}

fn request(config: &EngineConfig, random: &mut StdRng) -> String {
    let mut number = |limit: f64| random.random_range(-limit..limit);
    let kind = number(1.0);
    if kind < 0.0 {
        let rate = config.clock.adc_sample_rate;
        // Some begin later, some began before.
        let start = config.clock.sync_time + number(1.0).abs() * 1e6 / rate;
        let mut model = || {
            let [delay, slope] = [number(500.0) / rate, number(1e-3)];
            format!("{delay},{slope}:{},{}", number(PI), number(1e-4) * rate)
        };
        return format!("?delays wideband {start} {} {}", model(), model());
    }
    let count = if kind < 0.5 { 1 } else { CHANNELS };
    let gains: Vec<_> = (0..count)
        .map(|_| format!("{}{:+}j", number(0.3), number(0.3)))
        .collect();
    let gains = gains.join(" ");
    match number(1.0) {
        x if x < -0.3 => format!("?gain-all wideband {gains}"),
        x if x < 0.3 => format!("?gain wideband 0 {gains}"),
        _ => format!("?gain wideband 1 {gains}"),
    }
}

fn lines(outcome: &Outcome, clock: SampleClock) -> Vec<String> {
    let applied = outcome.events.iter().filter_map(|event| match event {
        EngineEvent::Applied(applied) => Some(replay_lines("wideband", applied, clock)),
        _ => None,
    });
    applied.flatten().collect()
}

/// Requests while data flows take effect when they happen to. Asked for again at the timestamps
/// that the engine told, they make the same output, whatever the size of chunks.
#[test]
fn what_took_effect_can_be_done_again() {
    for backend in backends() {
        let config = with_chunks(&config(CHANNELS, 4, 32), 1, 3);
        let chunk = config.recv.chunk_samples as u64;
        let mut random = StdRng::seed_from_u64(9);
        let feed = Feed::new(&noise, 0..40);
        let live = rig::run(
            &config,
            backend,
            &feed,
            |_| (),
            |steering, event| {
                if matches!(event, EngineEvent::Received(_) | EngineEvent::Sent(_)) {
                    perform(&config, steering, &request(&config, &mut random));
                }
            },
        );
        let told = lines(&live, config.clock);
        let at = |line: &str| line.split_once(' ').unwrap().0.parse::<u64>().unwrap();
        let amid = |line: &&String| (chunk..30 * chunk).contains(&at(line));
        for name in ["?gain ", "?gain-all", "?delays"] {
            let all = told.iter().filter(|line| line.contains(name));
            assert!(all.filter(amid).count() > 0, "{name}: {told:?}");
        }
        for (input, output) in [(1, 1), (3, 2)] {
            let config = with_chunks(&config, input, output);
            let feed = Feed::new(&noise, 0..40 / input as u64);
            let again = rig::run(
                &config,
                backend,
                &feed,
                |steering| {
                    let mut told: Vec<_> = told.iter().collect();
                    told.sort_by_key(|line| at(line));
                    for line in told {
                        let (_, request) = line.split_once(' ').unwrap();
                        perform(&config, &steering.at(Timestamp(at(line))), request);
                    }
                },
                |_, _| (),
            );
            // Chunks of the input that are no multiple of `input` are not there.
            let end = again.batches[0].keys().last().unwrap() + 1;
            let live: Vec<_> = live.batches[0].range(..end).collect();
            assert!(live.len() > 30);
            assert!(live.into_iter().eq(&again.batches[0]), "{input}, {output}");
        }
    }
}
