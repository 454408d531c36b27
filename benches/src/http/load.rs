//! Load: so many connections, each with one request in flight, for a while.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use ::http::Uri;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What one run brought.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Requests per second.
    pub throughput: f64,
    /// Microseconds within which half, 99 % and 99.9 % of the requests were answered.
    pub percentiles: [f64; 3],
}

/// The percentiles of an [`Outcome`].
pub const PERCENTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// A client that can be measured: it asks for a page, body included.
pub trait Get: Clone + Send + 'static {
    /// The bytes of the page.
    fn get(&mut self, uri: &Uri) -> impl Future<Output = usize> + Send;
}

/// Lets every client call `address` for `time`.
pub async fn run<C: Get>(clients: &[C], address: SocketAddr, time: Duration) -> Outcome {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(get_until(client.clone(), address, begun + time));
    }
    let mut micros: Vec<f64> = tasks.join_all().await.into_iter().flatten().collect();
    let throughput = micros.len() as f64 / begun.elapsed().as_secs_f64();
    micros.sort_unstable_by(f64::total_cmp);
    Outcome { throughput, percentiles: PERCENTILES.map(|share| percentile(&micros, share)) }
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

async fn get_until<C: Get>(mut client: C, address: SocketAddr, end: Instant) -> Vec<f64> {
    let uri: Uri = format!("http://{address}/orders").parse().expect("it is a URI");
    let mut micros = Vec::with_capacity(16_384);
    let mut now = Instant::now();
    while now < end {
        assert_eq!(client.get(&uri).await, 8, "the fallback answered, not the server");
        let done = Instant::now();
        micros.push((done - now).as_secs_f64() * 1e6);
        now = done;
    }
    micros
}
