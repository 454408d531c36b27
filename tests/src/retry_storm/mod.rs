//! Retry storms: what a thousand clients do to a service that loses half of its capacity for a while.
//!
//! Nothing is modelled but the service: the clients are our layers, with their own decisions, waits,
//! budgets and breakers, on a runtime whose time is virtual. A seed makes a run repeatable to the last
//! request.

mod clients;
mod figures;
mod jitter;
mod meter;
mod model;
mod page;
mod server;
mod svg;

use std::sync::Arc;

use tower_triage_core::ConfigError;

pub use self::clients::Setup;
pub use self::figures::{BACK, Figures, Worst, worst};
pub use self::jitter::{Needed, contend, strategies};
pub use self::meter::{Curves, Series};
pub use self::model::Model;
pub use self::page::Page;

use self::meter::Meter;
use self::server::Server;

/// Runs `model` with clients of `setup`.
///
/// # Errors
/// A setup that does not build.
pub fn run(model: Model, setup: &Setup, seed: u64) -> Result<Curves, ConfigError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the system");
    runtime.block_on(async {
        let meter = Arc::new(Meter::new(&model));
        let server = Server::new(&model, Arc::clone(&meter));
        let work = tokio::spawn(server.clone().work(model));
        let setup = Arc::new(setup.clone());
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..u64::from(model.clients) {
            let (setup, meter) = (Arc::clone(&setup), Arc::clone(&meter));
            let seed = (seed << 32) | number;
            clients.spawn(clients::client(setup, model, server.clone(), meter, seed));
        }
        while let Some(ended) = clients.join_next().await {
            ended.expect("a client does not panic")?;
        }
        work.abort();
        Ok(meter.read())
    })
}
