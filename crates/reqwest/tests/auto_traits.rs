//! Which auto traits hold is part of the API.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_triage_core::AnyError;
use tower_triage_http::ReplayBody;
use tower_triage_reqwest::{
    Gone, Kept, Marked, MiddlewareFuture, MiddlewareLayer, MiddlewareService, NextFuture,
    NextService, ReqwestErrors, ReqwestReplay, ReqwestStatus, StackMiddleware,
};

assert_impl_all!(Marked: Send, Sync, Unpin);
// Its body may be a stream, which can be read once.
assert_not_impl_any!(Marked: Clone);
assert_impl_all!(Kept<Marked>: Send, Sync);
assert_impl_all!(ReplayBody<reqwest::Body>: Send, Sync, Unpin, Clone);
assert_impl_all!(ReqwestReplay: Copy, Send, Sync, Unpin);
assert_impl_all!(ReqwestErrors: Copy, Send, Sync, Unpin);
assert_impl_all!(ReqwestStatus: Clone, Send, Sync);
assert_impl_all!(NextService: Copy, Send, Sync, Unpin);
assert_impl_all!(NextFuture: Send, Sync, Unpin);
assert_impl_all!(Gone: Copy, Send, Sync, std::error::Error);
assert_impl_all!(AnyError: From<Gone>);
assert_impl_all!(StackMiddleware<NextService>: Clone, Send, Sync);
assert_impl_all!(MiddlewareLayer: Clone, Send, Sync);
assert_impl_all!(MiddlewareService<NextService>: Clone, Send, Sync);
assert_impl_all!(MiddlewareFuture: Send, Unpin);
// The middleware's future is no more than `Send`.
assert_not_impl_any!(MiddlewareFuture: Sync);
