//! Errors of tokio and tower that only their owners can make: brought about on purpose.

use std::future::{Future, Ready, pending, ready};
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream;
use tokio::task::JoinError;
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::Change;
use tower::load::Constant;
use tower::{Service, ServiceExt};
use tower_triage_core::BoxError;

/// A time limit that has passed.
pub(super) fn tokio_elapsed() -> tokio::time::error::Elapsed {
    run(async { tokio::time::timeout(Duration::ZERO, pending::<()>()).await.unwrap_err() })
}

/// A task that panicked, or that was cancelled.
pub(super) fn join_error(panicked: bool) -> JoinError {
    run(async move {
        let task = tokio::spawn(async move {
            if panicked {
                // Not `panic!`: that would print.
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            pending::<()>().await;
        });
        if !panicked {
            task.abort();
        }
        task.await.unwrap_err()
    })
}

/// A buffer whose worker is gone.
pub(super) fn buffer_closed() -> BoxError {
    run(async {
        let (mut buffer, worker) = Buffer::pair(Failing, 1);
        drop(worker);
        buffer.ready().await.map(|_| ()).unwrap_err()
    })
}

/// What a buffer gives when its service failed with `error`.
pub(super) fn buffer_service_error() -> BoxError {
    run(async {
        let mut buffer = Buffer::new(Failing, 1);
        loop {
            if let Err(error) = buffer.ready().await {
                return error;
            }
            if let Err(error) = buffer.call(()).await {
                return error;
            }
        }
    })
}

/// A balancer whose discovery failed.
pub(super) fn balance_discover() -> BoxError {
    run(async {
        let failed = Err::<Change<u8, Constant<Failing, u8>>, _>(refused());
        let mut balance = Balance::<_, ()>::new(stream::iter([failed]));
        balance.ready().await.map(|_| ()).unwrap_err()
    })
}

fn refused() -> io::Error {
    io::ErrorKind::ConnectionRefused.into()
}

/// A service that is never ready.
struct Failing;

impl Service<()> for Failing {
    type Response = ();
    type Error = io::Error;
    type Future = Ready<Result<(), io::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Err(refused()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Err(refused()))
    }
}

/// Runs `future` on a thread of its own, so that rows may also be run from within a runtime.
fn run<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime without I/O needs nothing").block_on(future)
    });
    thread.join().expect("nothing in the futures above panics outside of a task")
}

#[cfg(test)]
mod tests {
    use tower_triage_core::{Chain, ClassifyError, Disposition, ErrorClass};

    use super::*;

    /// Whatever made the discovery fail: there was nobody to send to.
    #[test]
    fn a_balancer_without_endpoints_has_sent_nothing() {
        let failure = Chain.error(&balance_discover());
        assert_eq!((failure.class, failure.reason), (ErrorClass::Transient, "no_endpoint"));
        assert_eq!(failure.disposition, Disposition::NotSent);
    }
}
