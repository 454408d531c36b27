//! What the curves come to.

use std::time::Duration;

use tower_triage_core::ConfigError;

use super::clients::Setup;
use super::meter::Curves;
use super::model::Model;
use super::run;

/// The clients are back when so much of what they ask is answered in time, in every second from then
/// on.
pub const BACK: f64 = 0.95;

/// The figures of one run; rates are shares of what the clients ask without any retry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The load over the worst ten seconds.
    pub load: f64,
    /// What was answered while capacity was lost.
    pub during: f64,
    /// When the clients were back, in seconds after the capacity was; `None` if they were not when
    /// the simulation ended.
    pub back: Option<f64>,
    /// What was answered in the last ten seconds.
    pub at_the_end: f64,
}

impl Figures {
    /// Of the curves of a run of `model`.
    #[must_use]
    pub fn new(model: &Model, curves: &Curves) -> Self {
        let offered = model.offered();
        let answered = |from, to| curves.goodput.rate_between(from, to) / offered;
        let back = curves.goodput.stays_above(BACK * offered);
        Self {
            load: curves.load.peak_over(10) / offered,
            during: answered(model.begin, model.end),
            back: back.map(|back| back.saturating_sub(model.end).as_secs_f64()),
            at_the_end: answered(model.length - Duration::from_secs(10), model.length),
        }
    }
}

/// The worst of a setup over a range of outages, each between `seconds` long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// The load over the worst ten seconds.
    pub load: f64,
    /// How long it took the clients to come back; `None` if they did not once.
    pub back: Option<f64>,
    /// The outage that took them longest, in seconds.
    pub outage: u64,
}

/// Breakers that opened together come back together, so it matters how long the outage was: tries
/// outages of 16 to 44 seconds, with little capacity to spare and with much.
///
/// # Errors
/// A setup that does not build.
pub fn worst(model: Model, setup: &Setup, seed: u64) -> Result<Worst, ConfigError> {
    let mut worst = Worst { load: 0.0, back: Some(0.0), outage: 0 };
    for outage in (16..=44).step_by(2) {
        for capacity in [1.2, 1.5] {
            let end = model.begin + Duration::from_secs(outage);
            let model = Model { capacity, end, ..model };
            let figures = Figures::new(&model, &run(model, setup, seed)?);
            worst.load = worst.load.max(figures.load);
            let longer = match (worst.back, figures.back) {
                (Some(worst), Some(back)) => back > worst,
                (worst, back) => worst.is_some() && back.is_none(),
            };
            if longer {
                (worst.back, worst.outage) = (figures.back, outage);
            }
        }
    }
    Ok(worst)
}
