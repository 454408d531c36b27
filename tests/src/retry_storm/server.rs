//! The service with finite capacity.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tower::Service;
use tower_triage_core::AnyError;

use super::meter::Meter;
use super::model::Model;

/// The service, as its clients see it: cheap to clone, always ready.
#[derive(Clone, Debug)]
pub(super) struct Server {
    queue: Arc<Mutex<VecDeque<oneshot::Sender<()>>>>,
    meter: Arc<Meter>,
    longest: usize,
}

impl Server {
    pub(super) fn new(model: &Model, meter: Arc<Meter>) -> Self {
        Self { queue: Arc::default(), meter, longest: model.queue_length() }
    }

    /// Works until the end, a tick's worth of requests at a time.
    pub(super) async fn work(self, model: Model) {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(model.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut credit = 0.0;
        loop {
            ticks.tick().await;
            credit += model.capacity_at(begun.elapsed()) * model.tick.as_secs_f64();
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            while credit >= 1.0 {
                let Some(answer) = queue.pop_front() else {
                    // What was not used is gone.
                    credit = 0.0;
                    break;
                };
                credit -= 1.0;
                // Nobody waits for it any more? The work was done all the same.
                if answer.send(()).is_err() {
                    self.meter.wasted();
                }
            }
        }
    }
}

impl Service<()> for Server {
    type Response = ();
    type Error = AnyError;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Answer {
        self.meter.arrived();
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= self.longest {
            return Answer(None);
        }
        let (answer, awaited) = oneshot::channel();
        queue.push_back(answer);
        Answer(Some(awaited))
    }
}

/// Pending until the request was worked on; a refused connection if the queue was full.
#[derive(Debug)]
pub(super) struct Answer(Option<oneshot::Receiver<()>>);

impl Future for Answer {
    type Output = Result<(), AnyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(awaited) => Pin::new(awaited).poll(cx).map_err(AnyError::from),
            None => {
                let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                Poll::Ready(Err(AnyError::from(refused)))
            }
        }
    }
}
