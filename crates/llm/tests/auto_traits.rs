//! One lost `Sync` breaks stacks far away.

use std::rc::Rc;

use static_assertions::{assert_impl_all as all, assert_not_impl_any as none};
use tower_triage_core::{AnyError, Describe, StampOutcome};
use tower_triage_llm::future::PeekFuture;
use tower_triage_llm::{
    AlreadyFailed, BodyFacts, LateFailure, LlmFacts, LlmResponses, LlmRules, Peek, PeekBody,
    PeekLayer,
};

all!(LlmRules: Clone, Send, Sync, Unpin);
all!(LlmResponses: Clone, Send, Sync, Unpin);
all!(LlmRules: StampOutcome<http::Response<()>, AnyError>, Describe<http::Request<Rc<()>>>);
all!(LlmFacts<'_>: Copy, Send, Sync);
// Extensions must be.
all!(BodyFacts: Copy, Send, Sync);
all!(LateFailure: Clone, Send, Sync);
all!(AlreadyFailed: Copy, Send, Sync);
all!(PeekLayer: Clone, Send, Sync);
all!(Peek<()>: Clone, Send, Sync);
none!(Peek<Rc<()>>: Send);
// The body decides: reqwest wants `Sync`, axum's is not.
all!(PeekBody<hyper::body::Incoming>: Send, Sync, Unpin);
all!(PeekBody<axum::body::Body>: Send, Unpin);
none!(PeekBody<axum::body::Body>: Sync);
all!(PeekFuture<std::future::Ready<()>, hyper::body::Incoming>: Send);
