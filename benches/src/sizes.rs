//! How large the future of a call is.

use std::task::{Context, Poll, Waker};

use tower_layer::{Identity, Layer};
use tower_service::Service;
use tower_triage_core::Classifier;
use tower_triage_http::http as rules;

use crate::http::layers::four;
use crate::http::{Body, ReadyHttp, request, response};
use crate::ours::{self, Window};
use crate::peers;

/// The size of one future.
#[derive(Clone, Debug)]
pub struct Size {
    /// Whose.
    pub who: String,
    /// Bytes of the future itself.
    pub bytes: usize,
    /// Bytes that making and finishing it takes from the heap.
    pub heap: u64,
}

impl Size {
    /// Of a call of `service`, which is ready and answers at once.
    pub fn of_call<S, Req>(who: &str, service: &mut S, request: Req) -> Self
    where
        S: Service<Req>,
    {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(())));
        assert!(ready, "{who}: not ready");
        let mut bytes = 0;
        // The request is the caller's: it was made before.
        let mut request = Some(request);
        let heap = allocation_counter::measure(|| {
            let Some(request) = request.take() else { return };
            let future = service.call(request);
            bytes = size_of_val(&future);
            let mut future = std::pin::pin!(future);
            let done = future.as_mut().poll(&mut cx).is_ready();
            assert!(done, "{who}: did not answer at once");
        });
        Self { who: who.to_owned(), bytes, heap: heap.bytes_total }
    }
}

/// Ours over `u64`; the work's own future is 16 bytes.
#[must_use]
pub fn ours_over_u64() -> Vec<Size> {
    vec![
        Size::of_call("ours, three, u64", &mut ours::three(Window::Count(100)), 0),
        Size::of_call("ours, four, u64", &mut ours::four(Window::Count(100)), 0),
        Size::of_call("ours, four, fused, u64", &mut ours::four_fused(Window::Count(100)), 0),
    ]
}

/// Ours over HTTP requests.
#[must_use]
pub fn ours_over_http() -> Vec<Size> {
    let c = &Classifier::new(rules());
    let layers = four(c, |_| response());
    let mut four = layers.layer(ReadyHttp);
    let mut fused = layers.clone().fused(c.clone()).layer(ReadyHttp);
    let mut three = layers.escalate(|_| Identity::new()).layer(ReadyHttp);
    vec![
        Size::of_call("ours, three, HTTP", &mut three, request()),
        Size::of_call("ours, four, HTTP", &mut four, request()),
        Size::of_call("ours, four, fused, HTTP", &mut fused, request()),
    ]
}

/// Everybody's over HTTP requests, the inner future first.
#[must_use]
pub fn over_http() -> Vec<Size> {
    let mut sizes = vec![Size::of_call("no layer", &mut ReadyHttp, request())];
    sizes.extend(ours_over_http());
    sizes.extend(peers::http_sizes());
    sizes
}

/// The size of what a caller hands over, which a layer that keeps it has to hold.
#[must_use]
pub const fn http_request() -> usize {
    size_of::<::http::Request<Body>>()
}
