//! A service that answers from a script.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tower_service::Service;

/// Answers the calls in order from a script, then repeats the last line for ever. Always ready;
/// clones share the script and the record of requests.
pub struct Scripted<Req, Res, E> {
    shared: Arc<Mutex<Shared<Req, Res, E>>>,
}

type Line<Res, E> = Box<dyn FnMut() -> Result<Res, E> + Send>;

struct Shared<Req, Res, E> {
    script: VecDeque<Line<Res, E>>,
    requests: Vec<Req>,
}

/// A service that answers with `lines`, in order; the last one repeats. Each line is a function,
/// so that neither response nor error has to be `Clone`.
pub fn scripted<Req, Res, E, const N: usize>(
    lines: [fn() -> Result<Res, E>; N],
) -> Scripted<Req, Res, E>
where
    Res: 'static,
    E: 'static,
{
    let script = lines.into_iter().map(|line| Box::new(line) as Line<Res, E>).collect();
    Scripted { shared: Arc::new(Mutex::new(Shared { script, requests: Vec::new() })) }
}

impl<Req, Res, E> Scripted<Req, Res, E> {
    fn lock(&self) -> MutexGuard<'_, Shared<Req, Res, E>> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many calls were made.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.lock().requests.len()
    }

    /// The requests that came, taken out.
    #[must_use]
    pub fn take_requests(&self) -> Vec<Req> {
        std::mem::take(&mut self.lock().requests)
    }
}

impl<Req, Res, E> Service<Req> for Scripted<Req, Res, E> {
    type Response = Res;
    type Error = E;
    type Future = Ready<Result<Res, E>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let mut shared = self.lock();
        shared.requests.push(request);
        if shared.script.len() > 1 {
            let mut line = shared.script.pop_front().expect("more than one line is left");
            return ready(line());
        }
        let line = shared.script.front_mut().expect("a script has at least one line");
        ready(line())
    }
}

impl<Req, Res, E> Clone for Scripted<Req, Res, E> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<Req, Res, E> fmt::Debug for Scripted<Req, Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("calls", &self.calls()).finish_non_exhaustive()
    }
}
