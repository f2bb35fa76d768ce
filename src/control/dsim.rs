//! A simulated digitiser as a KATCP device: katgpucbf's requests, sensors and names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use ground::{StopFlag, Timestamp};
use katcp::number::format_float;
use katcp::reading::{DEVICE_STATUS, unix_now};
use katcp::value::{excerpt, integer, text};
use katcp::{
    Device, Message, Parameters, Refusal, ReplyFuture, RequestHelp, ReservedAddress, Response,
    SensorId, SensorInfo, SensorReading, Sensors, ServerLimits, Value, ValueType,
};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, oneshot};

use super::{Control, ControlEnd, ControlError, build};
use crate::assembly::{Demand, DemandError};
use crate::sim::config::MAX_PERIOD;
use crate::sim::live::SignalsChange;
use crate::sim::window::Making;
use crate::sim::{DigitiserConfig, Signal, Windows, parse};

/// The interface that it has, which is katgpucbf's.
const VERSION: &str = "katgpucbf-dsim-1.0";
/// How long the sending lcore may take to change to other signals.
const TAKEN_UP: Duration = Duration::from_secs(10);

const HELP: &[RequestHelp] = &[
    RequestHelp {
        name: "signals",
        parameters: "signals [period]",
        summary: "Send other signals, one for each polarisation, that repeat after so many samples; tell from which timestamp on.",
    },
    RequestHelp {
        name: "time",
        parameters: "",
        summary: "Tell this host's UNIX time.",
    },
];

/// Bytes that signals may have, as a client writes them: sensors keep them.
const LONGEST: usize = 64 << 10;

/// Signals that cannot be sent. Clients look for the first words of some.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum SignalsError {
    #[error(
        "signals of {0} bytes are longer than {LONGEST}: leave blanks out, and name what repeats by a variable"
    )]
    Long(usize),
    #[error("expected {expected} signals, received {received}")]
    Count { expected: usize, received: usize },
    #[error(
        "period {period} must be positive and divide the longest period, {max_period}, a sensor of its own"
    )]
    Period { period: i64, max_period: u64 },
    #[error("{0}; the samples come beside those that are sent: ask for a shorter period")]
    Memory(DemandError),
    #[error("the sender has ended, or does not come to change its signals")]
    Sender,
    #[error("the signals cannot be computed: {0}")]
    Compute(String),
}

/// A digitiser that can be controlled.
pub struct Dsim {
    shared: Arc<Shared>,
}

struct Shared {
    config: DigitiserConfig,
    changes: Arc<ArrayQueue<SignalsChange>>,
    /// Makes seeds for noise that has none of its own.
    seeds: Mutex<ChaCha8Rng>,
    /// How long the sending lcore may take to change to other signals.
    taken_up: Duration,
    /// Held while signals are being changed: one change at a time.
    turn: Arc<Turn<()>>,
    sensors: Sensors,
    original: SensorId,
    signals: SensorId,
    period: SensorId,
    steady_state: SensorId,
    /// The newest timestamp that a change was made at.
    steady: AtomicU64,
}

impl Dsim {
    /// The digitiser of `config`, whose signals were given as `original`; adds its sensors.
    pub fn new(
        config: DigitiserConfig,
        original: &str,
        seed: u64,
        changes: Arc<ArrayQueue<SignalsChange>>,
        sensors: &Sensors,
    ) -> Self {
        let add = |name: &str, what: &str, units, of, value| {
            sensors.add(
                SensorInfo::new(name, what, units, of),
                SensorReading::now(value),
            )
        };
        let string = |text: String| Value::String(text.into());
        let count = |value: u64| Value::Integer(value as i64);
        let clock = config.clock;
        add(
            "dither-seed",
            "Seed of the dither",
            "",
            ValueType::String,
            string(config.dither_seed.to_string()),
        );
        add(
            "max-period",
            "Samples after which everything repeats, whatever the signals",
            "samples",
            ValueType::Integer,
            count(config.max_period),
        );
        add(
            "adc-sample-rate",
            "Rate of the samples",
            "Hz",
            ValueType::Float,
            Value::Float(clock.adc_sample_rate),
        );
        add(
            "sample-bits",
            "Bits of a sample",
            "",
            ValueType::Integer,
            count(config.sample_bits.get().into()),
        );
        add(
            "sync-time",
            "UNIX time of timestamp 0",
            "s",
            ValueType::Float,
            Value::Float(clock.sync_time),
        );
        let shared = Shared {
            original: add(
                "signals-orig",
                "Signals as they were given",
                "",
                ValueType::String,
                string(original.to_owned()),
            ),
            signals: add(
                "signals",
                "Signals, written out so that they can be given again",
                "",
                ValueType::String,
                string(canonical(&config.signals, config.dests.len())),
            ),
            period: add(
                "period",
                "Samples after which the signals repeat",
                "samples",
                ValueType::Integer,
                count(config.period),
            ),
            steady_state: add(
                "steady-state-timestamp",
                "Heaps with this timestamp or a later one reflect all requests so far",
                "",
                ValueType::Integer,
                Value::Integer(0),
            ),
            steady: AtomicU64::new(0),
            seeds: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            taken_up: TAKEN_UP,
            turn: Arc::new(Turn::new(())),
            sensors: sensors.clone(),
            changes,
            config,
        };
        let status = "Whether all sensors are nominal";
        sensors.add_aggregate(
            SensorInfo::new("device-status", status, "", DEVICE_STATUS),
            |_| true,
        );
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The signals and their period that a request asks for.
    fn asked(&self, request: &Message<'_>) -> Result<(String, Vec<Signal>, u64), Refusal> {
        let mut parameters = Parameters::new(request);
        let original = parameters.required("signals", text)?.to_owned();
        let period = parameters.optional("period", integer)?;
        parameters.end()?;
        if original.len() > LONGEST {
            return Err(SignalsError::Long(original.len()).into());
        }
        let shared = &self.shared;
        let signals = {
            let seeds = shared.seeds.lock();
            let mut seeds = seeds.unwrap_or_else(PoisonError::into_inner);
            parse(&original, || seeds.next_u64())?
        };
        let (expected, received) = (shared.config.dests.len(), signals.len());
        if expected != received {
            return Err(SignalsError::Count { expected, received }.into());
        }
        let max_period = shared.config.max_period;
        let period = match period {
            None => max_period,
            Some(period) => match u64::try_from(period) {
                Ok(given @ 1..=MAX_PERIOD) if max_period.is_multiple_of(given) => given,
                _ => return Err(SignalsError::Period { period, max_period }.into()),
            },
        };
        Ok((original, signals, period))
    }
}

impl Device for Dsim {
    fn version(&self) -> &str {
        VERSION
    }

    fn build(&self) -> &str {
        build()
    }

    fn requests(&self) -> &'static [RequestHelp] {
        HELP
    }

    fn handle(&self, request: &Message<'_>, response: &mut Response) -> Result<(), Refusal> {
        // The other one is slow.
        Parameters::new(request).end()?;
        response.argument(format_float(unix_now()));
        Ok(())
    }

    fn begin(&self, request: &Message<'_>) -> Option<ReplyFuture> {
        if request.name() != "signals" {
            return None;
        }
        let asked = self.asked(request);
        let shared = self.shared.clone();
        Some(Box::pin(async move {
            let (original, signals, period) = asked?;
            let turn = shared.turn.clone().lock_owned().await;
            let demand = Windows::demand(&shared.config, period, "period");
            Demand::check(vec![demand]).map_err(SignalsError::Memory)?;
            let text = canonical(&signals, signals.len());
            let (turn, windows) = shared.clone().compute(turn, signals, period).await?;
            // From here on to its end, whether or not the client stays: sensors go with the
            // signals.
            let change = tokio::spawn(shared.change(turn, windows, original, text, period));
            let timestamp = change.await??;
            Ok(vec![timestamp.to_string()])
        }))
    }
}

/// Calls a computation off when it is dropped.
struct CallOff(StopFlag);

impl Drop for CallOff {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl Shared {
    /// Computes signals, as long as somebody waits for them. The turn is kept until that has ended.
    async fn compute(
        self: Arc<Self>,
        turn: OwnedMutexGuard<()>,
        signals: Vec<Signal>,
        period: u64,
    ) -> Result<(OwnedMutexGuard<()>, Arc<Windows>), SignalsError> {
        let stop = StopFlag::default();
        let _call_off = CallOff(stop.clone());
        let (computed, windows) = oneshot::channel();
        let compute = move || {
            let mut making = Making::new(&self.config, &signals, period, &stop);
            while making.step() {
                if stop.is_set() {
                    return;
                }
            }
            // Nobody waits for them where the client or the server has gone.
            let _ = computed.send((turn, Arc::new(making.finish())));
        };
        let thread = thread::Builder::new().name("windows".to_owned());
        let failed = |error: &dyn ToString| SignalsError::Compute(error.to_string());
        thread.spawn(compute).map_err(|error| failed(&error))?;
        windows.await.map_err(|error| failed(&error))
    }

    /// Has signals sent, and tells from which timestamp on.
    async fn change(
        self: Arc<Self>,
        _turn: OwnedMutexGuard<()>,
        windows: Arc<Windows>,
        original: String,
        text: String,
        period: u64,
    ) -> Result<Timestamp, SignalsError> {
        let (done, mut taken) = oneshot::channel();
        if self.changes.push(SignalsChange { windows, done }).is_err() {
            return Err(SignalsError::Sender);
        }
        let told = tokio::time::timeout(self.taken_up, &mut taken).await;
        // From here on the sender leaves these signals alone, unless it has just begun to send
        // them.
        taken.close();
        let told = told.map_or_else(|_| taken.try_recv().ok(), Result::ok);
        let Some((timestamp, unused)) = told else {
            return Err(SignalsError::Sender);
        };
        drop(unused);
        let steady = self.steady.fetch_max(timestamp.0, Ordering::Relaxed);
        let steady = Value::Integer(steady.max(timestamp.0) as i64);
        let shown = excerpt(original.as_bytes());
        tracing::info!(original = shown, period, from = timestamp.0, "signals");
        for (sensor, value) in [
            (self.original, Value::String(original.into())),
            (self.signals, Value::String(text.into())),
            (self.period, Value::Integer(period as i64)),
            (self.steady_state, steady),
        ] {
            self.sensors.set(sensor, SensorReading::now(value));
        }
        Ok(timestamp)
    }
}

/// The signals of so many polarisations written out; one may stand for all.
pub fn canonical(signals: &[Signal], pols: usize) -> String {
    let texts = signals.iter().map(ToString::to_string);
    let texts: Vec<_> = match signals.len() {
        1 => texts.cycle().take(pols).collect(),
        _ => texts.collect(),
    };
    texts.join(" ")
}

/// Serves a digitiser at `address`. `on_end` is called once if control wants it to end.
pub fn start(
    address: ReservedAddress,
    config: DigitiserConfig,
    original: &str,
    seed: u64,
    changes: Arc<ArrayQueue<SignalsChange>>,
    on_end: impl FnOnce(ControlEnd) + Send + 'static,
) -> Result<Control, ControlError> {
    let sensors = Sensors::default();
    let dsim = Dsim::new(config, original, seed, changes, &sensors);
    let limits = ServerLimits::default();
    Control::start(address, Arc::new(dsim), sensors, limits, async {}, on_end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::live::tests::config as silent;

    fn config() -> DigitiserConfig {
        DigitiserConfig {
            signals: parse("cw(1.0, 1e5);", || 0).unwrap(),
            max_period: 8192,
            ..silent(0.0)
        }
    }

    /// The signals that a request has for the sender.
    async fn handed_over(
        changes: &ArrayQueue<SignalsChange>,
        request: &mut ReplyFuture,
    ) -> SignalsChange {
        let handed_over = async {
            loop {
                match changes.pop() {
                    Some(change) => break change,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        tokio::select! {
            reply = request => panic!("{reply:?}"),
            sent = handed_over => sent,
            () = tokio::time::sleep(Duration::from_secs(60)) => panic!("others block them"),
        }
    }

    #[test]
    fn signals_can_be_given_again() {
        let sensors = Sensors::default();
        let mut config = config();
        config.dests.push(config.dests[0].clone());
        let dsim = Dsim::new(
            config,
            "wgn(0.1);",
            1,
            Arc::new(ArrayQueue::new(1)),
            &sensors,
        );
        let sensor = sensors.find("signals").unwrap();
        let Value::String(text) = sensors.reading(sensor).value else {
            panic!("a string");
        };
        let request = format!("?signals {}", text.replace(' ', "\\_"));
        let request = Message::parse(request.as_bytes()).unwrap().unwrap();
        let (_, signals, _) = dsim.asked(&request).unwrap();
        assert_eq!(canonical(&signals, 2), *text);
    }

    #[test]
    fn signals_are_kept_as_given_and_no_longer_than_sensors_should_be() {
        let sensors = Sensors::default();
        let changes = Arc::new(ArrayQueue::new(1));
        let dsim = Dsim::new(config(), "cw(1.0, 1e5);", 1, changes, &sensors);
        let asked = |bytes: usize, blanks: usize| {
            let more = "+0.0".repeat((bytes - 4) / 4);
            let blanks = "\\_".repeat(blanks);
            let request = format!("?signals {blanks}0.0{more};{blanks}");
            let request = Message::parse(request.as_bytes()).unwrap().unwrap();
            dsim.asked(&request)
        };
        let (original, ..) = asked(8, 2).unwrap();
        assert_eq!(original, "  0.0+0.0;  ");
        for (bytes, blanks) in [(LONGEST + 4, 0), (8, LONGEST / 2 - 2)] {
            let refused = asked(bytes, blanks).unwrap_err();
            let Refusal::Fail(why) = refused else {
                panic!("{refused:?}");
            };
            let words = "signals of 65540 bytes are longer than 65536";
            assert!(why.starts_with(words), "{why}");
        }
    }

    #[tokio::test]
    async fn signals_that_the_sender_does_not_take_up_stay_as_they_are() {
        let sensors = Sensors::default();
        let changes = Arc::new(ArrayQueue::new(1));
        let mut dsim = Dsim::new(config(), "cw(1.0, 1e5);", 1, changes.clone(), &sensors);
        Arc::get_mut(&mut dsim.shared).unwrap().taken_up = Duration::ZERO;
        let request = Message::parse(b"?signals cw(0.5,\\_2e5);")
            .unwrap()
            .unwrap();
        assert!(dsim.begin(&request).unwrap().await.is_err());
        // It comes to it later.
        let late = changes.pop().unwrap();
        assert!(late.done.send((Timestamp(4096), Vec::new())).is_err());
        let sensor = sensors.find("signals-orig").unwrap();
        let unchanged = Value::String("cw(1.0, 1e5);".into());
        assert_eq!(sensors.reading(sensor).value, unchanged);
    }

    #[tokio::test]
    async fn sensors_go_with_the_signals_when_the_client_has_gone() {
        let sensors = Sensors::default();
        let changes = Arc::new(ArrayQueue::new(1));
        let dsim = Dsim::new(config(), "cw(1.0, 1e5);", 1, changes.clone(), &sensors);
        let request = Message::parse(b"?signals cw(0.5,\\_2e5);")
            .unwrap()
            .unwrap();
        let mut change = dsim.begin(&request).unwrap();
        // The client is gone when they are handed over.
        let sent = handed_over(&changes, &mut change).await;
        drop(change);
        assert!(sent.done.send((Timestamp(4096), Vec::new())).is_ok());
        let sensor = sensors.find("signals-orig").unwrap();
        while sensors.reading(sensor).value != Value::String("cw(0.5, 2e5);".into()) {
            tokio::task::yield_now().await;
        }
    }

    /// These take hours.
    #[tokio::test]
    async fn signals_of_a_client_that_has_gone_are_called_off() {
        let sensors = Sensors::default();
        let changes = Arc::new(ArrayQueue::new(1));
        let dsim = Dsim::new(config(), "cw(1.0, 1e5);", 1, changes.clone(), &sensors);
        let tones = ["multicw(65536,0,0,1,1)"; 500].join("+");
        let request = format!("?signals {tones};");
        let request = Message::parse(request.as_bytes()).unwrap().unwrap();
        let mut slow = dsim.begin(&request).unwrap();
        // The client is gone as soon as it has asked.
        tokio::select! {
            biased;
            reply = &mut slow => panic!("{reply:?}"),
            () = async {} => drop(slow),
        }
        let request = Message::parse(b"?signals cw(0.5,\\_2e5);");
        let mut change = dsim.begin(&request.unwrap().unwrap()).unwrap();
        let sent = handed_over(&changes, &mut change).await;
        assert!(sent.done.send((Timestamp(4096), Vec::new())).is_ok());
        assert_eq!(change.await.unwrap(), ["4096"]);
    }
}
